// What the server says, as TypeScript.

export interface Model {
  id: string
  name: string
  family: string // empty: the studio has no figures of it
  reads: 'text' | 'images' | 'audio' | 'series' | 'tables'
  task: string
  arch: string
  parameters: number
  layers: number
  heads: number
  kind: 'run' | 'published'
  modified: number
  metrics: boolean
  views: string[]
  example: string
  example2: string | null
}

/** A folder that looks like a model's and cannot be read. */
export interface Unreadable {
  id: string
  name: string
  error: string
}

/** How a metric of a run is shown. */
export interface Metric {
  label: string
  kind: 'loss' | 'score' | 'speed' | 'optimiser'
}

export interface Token {
  id: number
  text: string
  shown: string
  word: number
  special: boolean
  bytes: number[] | null
  start: number
  end: number
}

export interface Attention {
  kind: string
  rows: string
  columns: string
  layers: number
  heads: number
  causal: boolean
  thumbs: string
  sharpest: { layer: number; head: number }
  finding: string
}

export interface Choice {
  id: number
  text: string
  p: number
  typable: boolean // not a part of a character, nor a special token
}

export interface Vocabulary {
  texts: string[]
  untypable: number[]
}

export interface Candidate {
  text: string
  score: number
  parent: number // among those of the step before that went on
  kept: boolean
  ends: boolean
}

export interface Hypothesis {
  text: string
  score: number
  tokens: { id: number; text: string; logp: number }[]
}

export interface Results {
  next?: { logits: string; top: Choice[]; surprisal: (number | null)[] }
  classes?: { label: string; p: number }[]
  tags?: { word: string; label: string; p: number; start: number; end: number }[]
  fill?: { position: number; words: Choice[] }[]
  similar?: { cosine: number }
  answer?: string
  occlusion?: { of: string; changes: number[] } // how much the answer falls without each part
  forecast?: { column: string; times: string[]; levels: number[]; mean: number[]; low: number[]; high: number[] }
  translation?: {
    hypotheses: Hypothesis[]
    steps: { token: string; top: Choice[] }[]
    beam: Candidate[][]
  }
}

/** How an input that is not text is drawn: its parts follow `before` tokens that stand for the whole. */
export interface Drawing {
  kind: 'image' | 'curve' | 'row'
  unit: string
  before: number
  count: number // of parts; padding may follow them
  attention: string // the kind that is laid over it; empty: none
  rows?: number
  columns?: number
  wide?: boolean
  spans?: [number, number][] // of points, for each part
  bands?: string[]
}

export interface LookHeader {
  look: string
  model: Model
  seconds: number
  streams: Record<string, { tokens: Token[] }>
  attention: Attention[]
  results: Results
  finding: Record<string, string>
  notes: string[]
  picture: Drawing | null
  example: { on: string; number: number; count: number } | null
}
