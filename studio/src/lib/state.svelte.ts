// One selection, shared by every view: which model, which text, which layer, head and token.
import { fromBase64, Safetensors, toBase64 } from './safetensors'
import { fresh, get, has, offline, post, Refusal, saved, send, Superseded } from './source'
import type { Attention, LookHeader, Model, Token, Unreadable } from './types'
import { read, write, type Place } from './url'

export type Look = Safetensors<LookHeader>

/** Fingerprints that change with the models and the runs; the stage of this tab's question `seq`. */
interface News {
  models: string
  metrics: string
  seq: number
  stage: string
}

const tab = Array.from(crypto.getRandomValues(new Uint8Array(8)), (x) => x.toString(16).padStart(2, '0')).join('')

export const VIEWS: Record<string, string> = {
  input: 'Input',
  tokens: 'Tokens',
  embedding: 'Embedding',
  search: 'Attention as search',
  attention: 'Attention',
  pair: 'Two sentences',
  translation: 'Translation',
  next: 'Next token',
  labels: 'Answers',
  recurrent: 'Recurrent',
  training: 'Training',
}

const ANSWERS = ['classes', 'tags', 'fill', 'similar'] // one view for all of them
const PAIRED = ['pair', 'encoder', 'masked'] // families whose look takes a second text

class Studio {
  at = $state<Place>(read(saved ? saved.state : location.hash))
  models = $state.raw<Model[] | null>(null)
  unreadable = $state.raw<Unreadable[]>([])
  look = $state.raw<Look | null>(null)
  busy = $state(false)
  stage = $state('')
  trouble = $state<{ error: string; hint: string } | null>(null)
  theme = $state<'light' | 'dark'>('light')
  beat = $state(0) // counts news of training runs
  file = $state.raw<{ file: string; name: string } | null>(null) // chosen by the user; base64
  private heard: News | null = null
  branches = $state<string[]>([])
  read = $state('') // the text of `look`; `at.text` may be on its way already
  private seq = 0
  private wait: ReturnType<typeof setTimeout> | undefined
  private lookedAt = ''
  private looking: Promise<void> | null = null

  model: Model | null = $derived(this.models?.find((m) => m.id === this.at.model) ?? null)
  attention: Attention | null = $derived.by(() => {
    const all = this.look?.header.attention ?? []
    return all.find((a) => a.kind === this.at.kind) ?? all[0] ?? null
  })
  // nobody has chosen yet (-1): the sharpest head is the one to see first
  layer = $derived(clamp(this.at.layer < 0 ? (this.attention?.sharpest.layer ?? 0) : this.at.layer, this.attention?.layers ?? this.model?.layers ?? 1))
  head = $derived(clamp(this.at.head < 0 ? (this.attention?.sharpest.head ?? 0) : this.at.head, this.attention?.heads ?? 1))
  query = $derived(this.chosen(this.rows))
  view = $derived(this.views.includes(this.at.view) ? this.at.view : (this.views[0] ?? ''))

  get views(): string[] {
    const shown = this.model?.views ?? []
    const known = Object.keys(VIEWS).filter((v) => shown.includes(v) || (v === 'labels' && ANSWERS.some((a) => shown.includes(a))))
    const there = offline ? known.filter((v) => CARRIED[v]?.() ?? true) : known
    const curves = offline ? has('/api/runs') : this.at.view === 'training' || this.models?.length === 0
    return curves && !there.includes('training') ? [...there, 'training'] : there // a first run has curves before it has a model
  }

  get rows(): Token[] {
    return this.tokens(this.attention?.rows ?? Object.keys(this.look?.header.streams ?? {})[0])
  }

  get columns(): Token[] {
    return this.tokens(this.attention?.columns)
  }

  tokens(stream: string | undefined): Token[] {
    return (stream && this.look?.header.streams[stream]?.tokens) || []
  }

  /** The chosen one of some tokens; the last that is a word, until somebody chooses. */
  chosen(tokens: Token[]): number {
    return clamp(this.at.query < 0 ? tokens.findLastIndex((t) => !t.special) : this.at.query, tokens.length)
  }

  get hash(): string {
    return write(this.at)
  }

  async start(): Promise<void> {
    if (saved) {
      this.models = []
      if (!saved.look) return // curves alone
      this.look = new Safetensors<LookHeader>(fromBase64(saved.look))
      this.at.model = this.look.header.model.id
      this.read = this.at.text
      this.models = [this.look.header.model]
      return
    }
    this.heard = await fresh<News>(`/api/news?tab=${tab}`).catch(() => null)
    this.beat++ // a view may have asked before that
    await this.refresh()
    void this.poll()
    addEventListener('hashchange', () => {
      if (location.hash !== this.hash) {
        this.at = read(location.hash)
        this.settle()
        void this.run()
      }
    })
  }

  async refresh(): Promise<void> {
    const [before, known] = [this.at.model, this.model]
    try {
      const found = await fresh<{ models: Model[]; unreadable: Unreadable[] }>('/api/models')
      this.models = found.models
      this.unreadable = found.unreadable
    } catch (e) {
      return this.fail(e)
    }
    if (!known) this.settle() // of a model that was there, the text may be empty because somebody emptied it
    if (!this.at.model) return
    if (before !== this.at.model || !this.look) return void this.run()
    const { id, modified } = this.look.header.model
    if (id === this.at.model && modified !== this.model?.modified) void this.run(true) // trained on, or gone
  }

  /** A first visit shows the newest model with its own example. */
  private settle(): void {
    if (!this.at.model) this.at.model = this.models?.[0]?.id ?? ''
    if (!this.at.text && this.model) this.at.text = this.model.example
    if (!this.at.second && this.model?.example2) this.at.second = this.model.example2
  }

  choose(id: string): void {
    const old = this.model
    this.at.model = id
    const next = this.model
    if (!next) return
    if (!this.at.text || this.at.text === old?.example || old?.family !== next.family) this.at.text = next.example
    if (!this.at.second || this.at.second === old?.example2 || old?.family !== next.family) this.at.second = next.example2 ?? ''
    Object.assign(this.at, { target: '', prefix: '', kind: '', layer: -1, head: -1, query: -1, wordA: -1, wordB: -1 })
    this.branches = []
    this.file = null
    this.at.number = 0
    void this.run()
  }

  /** Whether what the model reads is typed: a text, or the row of a table. */
  get typable(): boolean {
    return this.model?.reads === 'text' || this.model?.reads === 'tables'
  }

  /** Another example of the model's test set. */
  turn(by: number): void {
    this.file = null
    Object.assign(this.at, { text: this.typable ? '' : this.at.text, number: this.at.number + by, query: -1 })
    void this.run()
  }

  async take(file: File): Promise<void> {
    this.file = { file: toBase64(await file.arrayBuffer()), name: file.name }
    this.at.query = -1
    void this.run()
  }

  typed(text: string): void {
    this.at.text = text
    Object.assign(this.at, { target: '', prefix: '', wordA: -1, wordB: -1 }) // they belonged to the text before
    this.branches = []
    this.soon()
  }

  /** Branch: go on with `text`, and remember the way back. */
  branch(text: string): void {
    this.branches = [...this.branches, this.at.text]
    this.at.text = text
    void this.run()
  }

  back(): void {
    const last = this.branches.at(-1)
    if (last === undefined) return
    this.branches = this.branches.slice(0, -1)
    this.at.text = last
    void this.run()
  }

  soon(): void {
    clearTimeout(this.wait)
    this.wait = setTimeout(() => void this.run(), 450)
  }

  async run(again = false): Promise<void> {
    clearTimeout(this.wait)
    if (offline || !this.at.model) return
    const { model, target, prefix, beam, number } = this.at
    const text = this.model && !this.typable ? '' : this.at.text
    if (this.model && !this.model.family) return this.fail(new Refusal(`The studio has no figures of a model for ${this.model.task}.`, 'Its training curves are shown, if it was trained here.', 0))
    const second = (PAIRED.includes(this.model?.family ?? '') && this.at.second) || null
    const question = { model, text, second, target: target || null, prefix: prefix || null, beam, number, file: this.file }
    const key = JSON.stringify(question)
    const seq = ++this.seq // whatever is under way answers another question
    this.looking = null
    if (!again && key === this.lookedAt && this.look) {
      this.busy = false
      this.trouble = null
      return
    }
    this.busy = true
    this.stage = ''
    this.looking = this.answer(question, key, seq)
    await this.looking
  }

  private async answer(question: { text: string }, key: string, seq: number): Promise<void> {
    try {
      const look = await send<Look>('/api/look', { ...question, tab, seq })
      if (seq !== this.seq) return
      this.look = look
      this.read = question.text
      this.lookedAt = key
      this.trouble = null
    } catch (e) {
      if (seq === this.seq && !(e instanceof Superseded)) this.fail(e)
    }
    if (seq !== this.seq) return
    this.busy = false
    this.looking = null
  }

  /** The newest question of a tab stops an older one, so this one waits for a look that is under way. */
  ask = async <T>(path: string, body: object): Promise<T> => {
    for (;;) {
      while (this.looking) await this.looking
      try {
        return await post<T>(path, body, { tab, seq: ++this.seq })
      } catch (e) {
        if (!(e instanceof Superseded && this.looking)) throw e // a look that came later stopped it: ask again after it
      }
    }
  }

  /** What was looked at before would answer another question: it goes, and the trouble stands in its place. */
  fail(e: unknown): void {
    this.busy = false
    this.look = null
    this.lookedAt = ''
    if (e instanceof Refusal) this.trouble = { error: e.message, hint: e.hint }
    else this.trouble = { error: e instanceof Error ? e.message : String(e), hint: '' }
  }

  /** News, asked for again and again: a stream would hold one of the six connections that all tabs share. */
  private async poll(): Promise<void> {
    try {
      const news = document.hidden ? this.heard : await fresh<News>(`/api/news?tab=${tab}`)
      if (news && news.models !== this.heard?.models) void this.refresh()
      if (news && news.metrics !== this.heard?.metrics) this.beat++
      if (news?.seq === this.seq) this.stage = news.stage
      this.heard = news
    } catch {
      // the next question of the page says that nobody answers
    }
    setTimeout(() => void this.poll(), this.busy ? 300 : 1000)
  }

  step(what: 'layer' | 'head', by: number): void {
    const most = what === 'layer' ? (this.attention?.layers ?? this.model?.layers ?? 1) : (this.attention?.heads ?? 1)
    this.at[what] = clamp(this[what] + by, most)
  }
}

/** Views of a saved file that need more than the look itself: shown when their numbers came along. */
const CARRIED: Record<string, () => boolean> = {
  embedding: () => has('/api/embedding'),
  search: () => has('/api/row'),
  pair: () => has('/api/pair'),
  recurrent: () => has('/api/recurrent'),
  training: () => has('/api/runs'),
}

export function clamp(i: number, count: number): number {
  return Math.max(0, Math.min(Math.trunc(i) || 0, count - 1))
}

export const studio = new Studio()

/** The answer to a question that changes; null until the answer to the present one is here. */
export function fetched<T>(path: () => string | null, how: (path: string) => Promise<T> = get) {
  const question = $derived(path())
  let latest = $state.raw<{ question: string; value: T | null; error: string } | null>(null)
  const answer = $derived(question !== null && latest?.question === question ? latest : null)
  $effect(() => {
    const asked = question
    if (asked === null) return
    let live = true
    how(asked).then(
      (value) => live && (latest = { question: asked, value, error: '' }),
      (e) => {
        if (!live || e instanceof Superseded) return // what came in its place asks again
        latest = { question: asked, value: null, error: [e.message, e.hint].filter(Boolean).join(' ') }
        if (e instanceof Refusal && e.status === 410) void studio.run(true) // the server made room; look again
      },
    )
    return () => void (live = false)
  })
  return {
    get value() {
      return answer?.value ?? null
    },
    get error() {
      return answer?.error ?? ''
    },
    get waiting() {
      return question !== null && !answer
    },
  }
}
