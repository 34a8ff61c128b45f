// Scales that keep their order for every kind of colour vision and in grey: cividis for amounts, blue to vermilion for signs.

export type RGB = [number, number, number]

/** Okabe and Ito's colours (2008), each with a dash and a mark, so that colour is never alone. */
export const SERIES = [
  { light: '#0072b2', dark: '#56b4e9', dash: '', mark: 'circle' },
  { light: '#b34f00', dark: '#ff9a52', dash: '7 3', mark: 'square' },
  { light: '#00795a', dark: '#2fc9a0', dash: '2 3', mark: 'triangle' },
  { light: '#a8457f', dark: '#e59cc6', dash: '9 3 2 3', mark: 'diamond' },
  { light: '#7a6200', dark: '#f0e442', dash: '4 2', mark: 'circle' },
  { light: '#444444', dark: '#d0d0d0', dash: '1 2', mark: 'square' },
] as const

export function parse(css: string): RGB {
  const hex = css.match(/^#(..)(..)(..)$/)
  const [r, g, b] = hex ? hex.slice(1).map((x) => parseInt(x, 16)) : css.match(/[\d.]+/g)!.map(Number)
  return [r, g, b]
}

/** Cividis (Nuñez, Anderton and Renslow 2018), every fifth of its 256 colours; straight lines lie between. */
const STOPS = (
  '00224e 002656 002a5f 002d68 003070 083370 163770 203a6f 273e6e 2e416d 34456c 3a486c 3f4c6c 444f6c 49536c 4e566c 535a6d ' +
  '575d6d 5c616e 60646f 656870 696b71 6d6f72 727274 767676 7a7a78 7e7d78 838179 888578 8d8878 928c78 969077 9b9476 a09875 ' +
  'a59c74 aaa073 afa471 b5a86f baac6d bfb06b c4b468 c9b965 cfbd62 d4c15f dac65b dfca57 e5cf52 ead34c f0d846 f6dd3f fce236 ' +
  'fee838 '
).trim().split(' ')

/** All 256 as bytes r g b a, ready for a canvas: level 0 is no weight, 255 the most. */
export const CIVIDIS: Uint8ClampedArray = new Uint8ClampedArray(256 * 4)
for (let i = 0; i < 256; i++) {
  const low = Math.min(STOPS.length - 2, Math.floor(i / 5))
  const [from, to] = [parse('#' + STOPS[low]), parse('#' + STOPS[low + 1])]
  CIVIDIS.set([...from.map((x, j) => Math.round(x + ((to[j] - x) * (i - 5 * low)) / 5)), 255], i * 4)
}

const NEGATIVE: RGB = [0, 114, 178]
const POSITIVE: RGB = [213, 94, 0]
const MIDDLE: Record<'light' | 'dark', RGB> = { light: [247, 247, 244], dark: [38, 41, 46] }

/** -1 is blue, 0 the paper, 1 vermilion. */
export function signed(x: number, theme: 'light' | 'dark'): RGB {
  const end = x < 0 ? NEGATIVE : POSITIVE
  const share = Math.min(1, Math.abs(x))
  return MIDDLE[theme].map((m, i) => Math.round(m + (end[i] - m) * share)) as RGB
}

export function amount(x: number): RGB {
  const i = Math.round(Math.max(0, Math.min(1, x)) * 255) * 4
  return [CIVIDIS[i], CIVIDIS[i + 1], CIVIDIS[i + 2]]
}

export type Scale = 'amount' | 'signed'

/** Paints a table of numbers, a pixel a number; NaN (masked) is left clear, so the paper shows through. */
export function paint(data: ArrayLike<number>, scale: Scale, most: number, theme: 'light' | 'dark'): Uint8ClampedArray<ArrayBuffer> {
  const pixels = new Uint8ClampedArray(data.length * 4)
  for (let i = 0; i < data.length; i++) {
    const x = most > 0 ? data[i] / most : 0
    if (Number.isNaN(data[i])) continue
    pixels.set(scale === 'amount' ? amount(x) : signed(x, theme), i * 4)
    pixels[i * 4 + 3] = 255
  }
  return pixels
}

/** Black or white, whichever is read more easily on `rgb` (WCAG 2 relative luminance). */
export function ink(rgb: RGB): string {
  return luminance(rgb) > 0.179 ? '#000000' : '#ffffff'
}

export function luminance(rgb: RGB): number {
  const [r, g, b] = rgb.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4))
  return 0.2126 * r + 0.7152 * g + 0.0722 * b
}

export const css = ([r, g, b]: RGB): string => `rgb(${r} ${g} ${b})`
