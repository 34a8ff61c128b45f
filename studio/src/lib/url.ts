// The whole state of the page is its address, so a link shows somebody else what you see.

export interface Place {
  model: string
  text: string
  second: string
  target: string
  prefix: string // how the translation must begin
  view: string
  kind: string
  layer: number // -1: nobody has chosen
  head: number
  query: number
  stage: string
  form: string // matrix or links
  hide: boolean // special tokens
  t: number
  k: number
  p: number
  beam: number
  wordA: number
  wordB: number
  runs: string
  number: number // of an example of the test set, which begins anew at its end
}

export const START: Place = {
  model: '', text: '', second: '', target: '', prefix: '', view: '', kind: '', layer: -1, head: -1, query: -1, stage: 'weights',
  form: 'matrix', hide: false, t: 1, k: 0, p: 1, beam: 5, wordA: -1, wordB: -1, runs: '', number: 0,
}

/** Only what differs from the start is written: `#model=runs%2Fdemo&text=Hello&view=attention`. */
export function write(place: Place): string {
  const words = new URLSearchParams()
  for (const key of Object.keys(START) as (keyof Place)[]) {
    if (place[key] !== START[key]) words.set(key, String(place[key]))
  }
  return '#' + words.toString()
}

/** What an address says, whatever it says: numbers that are none and keys nobody knows are left at the start. */
export function read(hash: string): Place {
  const words = new URLSearchParams(hash.replace(/^#/, ''))
  const place: Record<string, string | number | boolean> = { ...START }
  for (const [key, start] of Object.entries(START)) {
    const word = words.get(key)
    if (word === null) continue
    if (typeof start === 'string') place[key] = word
    else if (typeof start === 'boolean') place[key] = word === 'true'
    else if (word.trim() !== '' && Number.isFinite(Number(word))) place[key] = Number(word)
  }
  return place as unknown as Place
}
