/** A number for people: four decimals where that says enough, three digits where it does not. */
export function number(x: number): string {
  if (Number.isNaN(x)) return 'masked'
  if (!Number.isFinite(x)) return x > 0 ? '∞' : '−∞'
  const size = Math.abs(x)
  const text = size !== 0 && (size < 1e-3 || size >= 1e5) ? x.toExponential(2) : x.toFixed(size >= 100 ? 1 : 4)
  return text.replaceAll('-', '−')
}

export function percent(x: number): string {
  if (x > 0 && x < 0.0005) return '< 0.1 %'
  return `${(100 * x).toFixed(1)} %`
}

export function count(n: number): string {
  if (n >= 1e9) return `${(n / 1e9).toFixed(1)} B`
  if (n >= 1e6) return `${(n / 1e6).toFixed(1)} M`
  if (n >= 1e4) return `${Math.round(n / 1e3)} k`
  return n.toLocaleString('en')
}

export const plural = (n: number, what: string): string => `${n.toLocaleString('en')} ${what}${n === 1 ? '' : 's'}`

export type Cell = string | number
export interface Table {
  columns: string[]
  rows: Cell[][]
}

/** RFC 4180: quotes doubled, cells with commas, quotes or line ends in quotes; numbers in full. Text that a spreadsheet would
 * run as a formula gets an apostrophe in front. */
export function csv({ columns, rows }: Table): string {
  const plain = (x: Cell) => (typeof x === 'string' && /^[=+\-@\t\r]./.test(x) ? `'${x}` : String(x))
  const quoted = (x: string) => (/[",\r\n]/.test(x) ? `"${x.replaceAll('"', '""')}"` : x)
  const cell = (x: Cell) => quoted(plain(x))
  return [columns, ...rows].map((row) => row.map(cell).join(',')).join('\r\n') + '\r\n'
}

const SEEN: Record<string, string> = { ' ': '␣', '\n': '⏎', '\t': '⇥' }

/** White space and control characters made visible. */
export function show(word: string): string {
  if (word === '') return '(empty)'
  return word.replace(/[\u0000-\u0020\u007f-\u009f]/g, (c) => SEEN[c] ?? `\\x${c.charCodeAt(0).toString(16).padStart(2, '0')}`)
}

/** A token inside a sentence: without the mark of the space before it. */
export function said(shown: string | undefined): string {
  return shown === undefined ? '' : `“${shown.replace(/^[␣▁]+(?=.)/, '')}”`
}
