import { expect, test } from 'vitest'
import { draw, filter, order } from '../src/lib/sampling'

const p = [0.1, 0.4, 0.2, 0.25, 0.05]
const logits = Float32Array.from(p, Math.log)
const ids = order(logits)
const all = { temperature: 1, topK: 0, topP: 1 }
const near = (got: Float64Array, want: number[]) => want.forEach((x, i) => expect(got[i]).toBeCloseTo(x, 6))

test('tokens stand by their probability, equals by their id', () => {
  expect([...ids]).toEqual([1, 3, 2, 0, 4])
  expect([...order(Float32Array.of(1, 2, 1, 2))]).toEqual([1, 3, 0, 2])
})

test('without filters it is the softmax', () => {
  const r = filter(logits, ids, all)
  near(r.p, [0.4, 0.25, 0.2, 0.1, 0.05])
  expect(r.kept).toBe(5)
})

test('temperature sharpens and flattens: p^(1/t), by hand', () => {
  const sum = 0.16 + 0.0625 + 0.04 + 0.01 + 0.0025
  near(filter(logits, ids, { ...all, temperature: 0.5 }).p, [0.16 / sum, 0.0625 / sum, 0.04 / sum, 0.01 / sum, 0.0025 / sum])
  near(filter(logits, ids, { ...all, temperature: 0 }).p, [1, 0, 0, 0, 0])
  near(filter(logits, ids, { ...all, temperature: 0.5 }).plain, [0.4, 0.25, 0.2, 0.1, 0.05])
})

test('top-k keeps k and shares the rest', () => {
  const r = filter(logits, ids, { ...all, topK: 2 })
  near(r.p, [0.4 / 0.65, 0.25 / 0.65, 0, 0, 0])
  expect(r.kept).toBe(2)
  expect(filter(logits, ids, { ...all, topK: 99 }).kept).toBe(5)
})

test('top-p keeps the smallest set that reaches p, and always one', () => {
  expect(filter(logits, ids, { ...all, topP: 0.64 }).kept).toBe(2)
  expect(filter(logits, ids, { ...all, topP: 0.66 }).kept).toBe(3)
  expect(filter(logits, ids, { ...all, topP: 0.01 }).kept).toBe(1)
})

test('top-p counts what top-k left', () => {
  // of the two best, 0.4 / 0.65 = 0.615 is enough for 0.6
  const r = filter(logits, ids, { temperature: 1, topK: 2, topP: 0.6 })
  expect(r.kept).toBe(1)
  near(r.p, [1, 0, 0, 0, 0])
})

test('very far logits do not overflow', () => {
  const r = filter(Float32Array.of(1e4, -1e4), Uint32Array.of(0, 1), { ...all, temperature: 0.05 })
  near(r.p, [1, 0])
})

test('draws fall as the probabilities say', () => {
  const r = filter(logits, ids, { ...all, topK: 3 })
  const edges = [0, 0.4 / 0.85, 0.65 / 0.85, 1]
  for (let rank = 0; rank < 3; rank++) {
    expect(draw(r, edges[rank] + 1e-6)).toBe(rank)
    expect(draw(r, edges[rank + 1] - 1e-6)).toBe(rank)
  }
})
