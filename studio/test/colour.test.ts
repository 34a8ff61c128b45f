import { expect, test } from 'vitest'
import { amount, CIVIDIS, ink, luminance, paint, parse, SERIES, signed } from '../src/lib/colour'

const contrast = (a: number, b: number) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)

test('cividis is cividis: colours of the published table between our stops', () => {
  const published: [number, number[]][] = [
    [8, [0, 40, 91]], [24, [5, 51, 113]], [41, [41, 63, 110]], [72, [75, 84, 108]], [104, [104, 106, 113]], [137, [133, 130, 121]], [168, [163, 154, 116]], [201, [197, 181, 104]], [232, [231, 209, 80]], [248, [249, 224, 58]],
  ]
  for (const [i, rgb] of published) rgb.forEach((x, j) => expect(Math.abs(CIVIDIS[i * 4 + j] - x)).toBeLessThanOrEqual(2))
})

test('more is lighter at every step, so it is read without colour', () => {
  let last = -1
  for (let i = 0; i <= 64; i++) {
    const now = luminance(amount(i / 64))
    expect(now).toBeGreaterThan(last)
    last = now
  }
  expect(amount(-3)).toEqual(amount(0))
  expect(amount(3)).toEqual(amount(1))
})

test('signs part at zero', () => {
  expect(signed(-1, 'light')).toEqual([0, 114, 178])
  expect(signed(1, 'dark')).toEqual([213, 94, 0])
  expect(signed(0, 'light')).toEqual([247, 247, 244])
  expect(signed(5, 'light')).toEqual(signed(1, 'light'))
})

test('masked cells stay clear, others are opaque', () => {
  const pixels = paint([0, NaN, 2], 'amount', 2, 'light')
  expect([pixels[3], pixels[7], pixels[11]]).toEqual([255, 0, 255])
  expect([...pixels.slice(8, 11)]).toEqual(amount(1))
})

test('words on any colour of the scales are read: contrast 4.5 and more', () => {
  for (let i = 0; i <= 100; i++) {
    for (const rgb of [amount(i / 100), signed(i / 50 - 1, 'light'), signed(i / 50 - 1, 'dark')]) {
      expect(contrast(luminance(rgb), luminance(parse(ink(rgb))))).toBeGreaterThanOrEqual(4.5)
    }
  }
})

test('curves are seen on both papers, and differ by dash as well', () => {
  for (const s of SERIES) {
    expect(contrast(luminance(parse(s.light)), 1)).toBeGreaterThanOrEqual(3)
    expect(contrast(luminance(parse(s.dark)), luminance(parse('#1b1e23')))).toBeGreaterThanOrEqual(3)
  }
  expect(new Set(SERIES.map((s) => s.dash)).size).toBe(SERIES.length)
})
