import { expect, test } from 'vitest'
import { read, START, write, type Place } from '../src/lib/url'

test('an address brings back what it was made from', () => {
  const place: Place = {
    ...START, model: 'runs/a&b=c #1', text: 'Ünïcode 😀 <b>&amp;\n+ % "', second: '?', view: 'next', kind: 'cross',
    layer: 3, head: 0, query: 12, stage: 'masked', form: 'links', hide: true, t: 0.7, k: 40, p: 0.95, beam: 8, wordA: 0, runs: 'a,b',
  }
  expect(read(write(place))).toEqual(place)
})

test('what was never chosen is not written', () => {
  expect(write(START)).toBe('#')
  expect(write({ ...START, model: 'm', layer: 0 })).toBe('#model=m&layer=0')
})

test('nonsense leaves the start', () => {
  expect(read('#layer=x&t=&k=Infinity&nothing=1&hide=perhaps')).toEqual(START)
  expect(read('')).toEqual(START)
  expect(read('#text=%E0%A4%A')).toMatchObject({ view: '' })
})
