// One head's matrix, exact from the server, or from the thumbnails where a saved file carries nothing better.
import type { Safetensors } from './safetensors'
import { offline } from './source'
import { fetched, type Look } from './state.svelte'
import type { Attention, Token } from './types'

export interface Head {
  data: Float32Array
  rows: number
  columns: number
  pooled: boolean
}

interface Wanted {
  look: Look
  part: Attention | undefined // a translator may have none
  layer: number
  head: number
  stage: string
}

export function headOf(wanted: () => Wanted) {
  const path = () => {
    const { look, part, layer, head, stage } = wanted()
    if (!part) return null
    const words = { look: look.header.look, kind: part.kind, layer: String(layer), head: String(head), stage }
    return '/api/head?' + new URLSearchParams(words)
  }
  const answer = fetched<Safetensors<{ pooled?: boolean }>>(path)
  return {
    get value(): Head | null {
      const { look, part, layer, head, stage } = wanted()
      if (!part) return null
      const [T, S] = [part.rows, part.columns].map((s) => look.header.streams[s].tokens.length)
      if (answer.value) {
        const { data, shape } = answer.value.tensor('matrix')
        const pooled = Boolean(answer.value.header.pooled)
        const fits = pooled ? T >= shape[0] && S >= shape[1] : shape[0] === T && shape[1] === S
        return fits ? { data, rows: shape[0], columns: shape[1], pooled } : null // of the text before this one
      }
      if (offline && stage === 'weights') {
        const { data, shape } = look.tensor(part.thumbs)
        const [, heads, r, c] = shape
        const from = (layer * heads + head) * r * c
        return { data: data.slice(from, from + r * c), rows: r, columns: c, pooled: r !== T || c !== S }
      }
      return null
    },
    get waiting(): boolean {
      return answer.waiting
    },
    get error(): string {
      return offline && wanted().stage === 'weights' ? '' : answer.error
    },
  }
}

export function rowPath(look: Look, part: Attention, layer: number, head: number, query: number): string {
  const words = { look: look.header.look, kind: part.kind, layer: String(layer), head: String(head), query: String(query) }
  return '/api/row?' + new URLSearchParams(words)
}

/** The rows and columns drawn, with special tokens left out when `hide`, and how much weight each row then hides. */
export function rowsShown({ data, rows, columns, pooled }: Head, queries: Token[], keys: Token[], hide: boolean) {
  const keep = (tokens: Token[], n: number) => Array.from({ length: n }, (_, i) => i).filter((i) => !hide || !tokens[i]?.special)
  const [r, c] = [keep(queries, rows), keep(keys, columns)]
  const whole = r.length === rows && c.length === columns
  const block = (tokens: Token[], n: number, i: number) => (pooled ? (tokens[Math.floor((i * tokens.length) / n)]?.shown ?? '') : tokens[i].shown)
  const names = [
    Array.from({ length: rows }, (_, i) => block(queries, rows, i)),
    Array.from({ length: columns }, (_, i) => block(keys, columns, i)),
  ]
  const out = whole ? data : Float32Array.from(r.flatMap((i) => c.map((j) => data[i * columns + j])))
  const total = (i: number, all: number[]) => all.reduce((sum, j) => sum + data[i * columns + j], 0)
  const every = Array.from({ length: columns }, (_, j) => j)
  const hidden = hide && c.length < columns ? r.map((i) => Math.max(0, total(i, every) - total(i, c))) : null
  let most = 0
  for (const x of out) if (Math.abs(x) > most) most = Math.abs(x)
  return { data: out, rows: r, columns: c, names, hidden, most }
}
