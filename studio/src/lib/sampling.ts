// What temperature, top-k and top-p leave of a distribution. The order of the server's `generate/sampling.py`:
// divide by the temperature, keep the k best, then the smallest set whose probability reaches p.

export interface Filters {
  temperature: number
  topK: number // 0 keeps all
  topP: number // 1 keeps all
}

export interface Ranked {
  ids: Uint32Array // best first
  plain: Float64Array // softmax of the logits as they are
  p: Float64Array // after the filters, summing to 1; 0 where cut
  kept: number // how many survive; they are the first ones
}

export function order(logits: Float32Array): Uint32Array {
  return Uint32Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || a - b)
}

/** `ids` is `order(logits)`: sorted once, used for every move of a slider. */
export function filter(logits: Float32Array, ids: Uint32Array, { temperature, topK, topP }: Filters): Ranked {
  const plain = softmax(logits, ids, 1)
  if (temperature === 0) {
    const p = new Float64Array(ids.length)
    p[0] = 1
    return { ids, plain, p, kept: 1 }
  }
  const p = softmax(logits, ids, temperature)
  let kept = topK > 0 ? Math.min(topK, p.length) : p.length
  let total = 0
  for (let i = 0; i < kept; i++) total += p[i]
  if (topP < 1) {
    const enough = topP * total
    let sum = 0
    let n = 0
    while (n < kept && sum < enough) sum += p[n++]
    kept = Math.max(1, n)
    total = sum
  }
  for (let i = 0; i < p.length; i++) p[i] = i < kept ? p[i] / total : 0
  return { ids, plain, p, kept }
}

function softmax(logits: Float32Array, ids: Uint32Array, temperature: number): Float64Array {
  const top = logits[ids[0]]
  const p = Float64Array.from(ids, (id) => Math.exp((logits[id] - top) / temperature))
  const total = p.reduce((a, b) => a + b, 0)
  return p.map((x) => x / total)
}

/** The rank drawn by `u` in [0, 1). */
export function draw({ p, kept }: Ranked, u: number): number {
  let sum = 0
  for (let i = 0; i < kept; i++) if ((sum += p[i]) > u) return i
  return kept - 1
}
