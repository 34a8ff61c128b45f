import { expect, test } from 'vitest'
import { parent } from '../src/lib/beam'
import { csv, number, percent, said, show } from '../src/lib/format'
import { aligned } from '../src/lib/pair'
import { filled } from '../src/lib/save'
import { linear, logarithmic } from '../src/lib/scale'
import type { Token } from '../src/lib/types'

test('numbers for people', () => {
  expect([0.12345, -2, 0, 1234.56, -1e-7, NaN, -Infinity].map(number)).toEqual(['0.1235', '−2.0000', '0.0000', '1234.6', '−1.00e−7', 'masked', '−∞'])
  expect([0.5, 0, 1e-9].map(percent)).toEqual(['50.0 %', '0.0 %', '< 0.1 %'])
})

test('CSV is read back by the rules of RFC 4180', () => {
  expect(csv({ columns: ['a', 'b'], rows: [['x,y', 1.5], ['say "hi"', -1], ['two\nlines', 0]] })).toBe(
    'a,b\r\n"x,y",1.5\r\n"say ""hi""",-1\r\n"two\nlines",0\r\n',
  )
})

test('no text is a formula to a spreadsheet, and numbers stay numbers', () => {
  const rows = [['=HYPERLINK("http://a")', -1.5], ['-year', 0], ['@x', 0], ['-', 0], ['␣=a', 0]]
  expect(csv({ columns: ['+a'], rows })).toBe('\'+a\r\n"\'=HYPERLINK(""http://a"")",-1.5\r\n\'-year,0\r\n\'@x,0\r\n-,0\r\n␣=a,0\r\n')
})

test('a candidate goes on from one that was kept and did not end', () => {
  const one = (kept: boolean, ends: boolean, parent = 0) => ({ text: '', score: 0, parent, kept, ends })
  const steps = [[one(true, true), one(false, false), one(true, false)], [one(true, false)]]
  expect([parent(steps, 0, steps[0][2]), parent(steps, 1, steps[1][0])]).toEqual([0, 3])
})

test('white space is seen', () => {
  expect(show(' a\n\t\u001b')).toBe('␣a⏎⇥\\x1b')
  expect(show('')).toBe('(empty)')
  expect(['␣it', '▁it', '␣', 'a␣b', undefined].map(said)).toEqual(['“it”', '“it”', '“␣”', '“a␣b”', ''])
})

test('ticks are round, inside, and as precise as they are near', () => {
  expect(linear(0, 1, 0, 100).ticks(5).map((t) => t.text)).toEqual(['0.0', '0.2', '0.4', '0.6', '0.8', '1.0'])
  expect(linear(0.9999, 1, 0, 1).ticks(2).map((t) => t.text)).toEqual(['0.99990', '0.99995', '1.00000'])
  expect(linear(0, 2, 0, 1, true).ticks(10).map((t) => t.value)).toEqual([0, 1, 2])
  expect(linear(10, 20, 0, 100).at(15)).toBe(50)
  expect(logarithmic(1e-6, 1, 0, 60).at(1e-3)).toBeCloseTo(30)
  expect(logarithmic(1e-6, 1, 0, 60).ticks(3).map((t) => t.text)).toEqual(['1e−6', '1e−4', '0.01', '1'])
})

test('tokens of two texts meet where they are the same', () => {
  const tokens = (ids: number[]) => ids.map((id) => ({ id }) as Token)
  expect(aligned(tokens([1, 2, 3]), tokens([1, 9, 3]))).toEqual([[0, 0], [1, null], [null, 1], [2, 2]])
  expect(aligned(tokens([]), tokens([5]))).toEqual([[null, 0]])
})

test('text in a saved page cannot end its script', () => {
  const page = '<p></p><script id="regard-look" type="application/json">null</script>'
  const out = filled(page, { text: '</script><script>alert(1)</script>$&' })
  expect(out.match(/<script/g)).toHaveLength(1)
  const inside = out.slice(out.indexOf('json">') + 6, out.lastIndexOf('</script>'))
  expect(JSON.parse(inside)).toEqual({ text: '</script><script>alert(1)</script>$&' })
  expect(() => filled('<p></p>', {})).toThrow('no place')
})
