// Two texts side by side: which word to compare, and which tokens stand for each other.
import type { Token } from './types'

/** What the server counts as a word: BERT cuts punctuation off, other families go by white space. */
export const pieces = (family: string): RegExp =>
  ['language', 'recurrent-language', 'translator'].includes(family) ? /\S+/g : /[\p{L}\p{N}]+|[^\s\p{L}\p{N}]/gu

/** The numbers of a word that both texts have and that means something: the last such word, "it" before all others. */
export function guess(a: string, b: string, pieces: RegExp): [number, number] {
  const split = (text: string) => [...text.matchAll(pieces)].map((m) => m[0].toLowerCase().replace(/[^\p{L}\p{N}]/gu, ''))
  const [x, y] = [split(a), split(b)]
  const shared = x.map((word, i) => ({ word, i, j: y.lastIndexOf(word) })).filter((s) => s.word && s.j >= 0)
  const plain = ['the', 'a', 'an', 'was', 'is', 'of', 'to', 'and', 'because', 'i']
  const best = shared.find((s) => s.word === 'it') ?? shared.filter((s) => !plain.includes(s.word)).at(-1) ?? shared.at(-1)
  return best ? [best.i, best.j] : [0, 0]
}

/** Places of tokens that stand for each other (longest common subsequence of ids), null where one text has none. */
export function aligned(a: Token[], b: Token[]): [number | null, number | null][] {
  const [n, m] = [a.length, b.length]
  const length = Array.from({ length: n + 1 }, () => new Uint16Array(m + 1))
  for (let i = n - 1; i >= 0; i--) {
    for (let j = m - 1; j >= 0; j--) {
      length[i][j] = a[i].id === b[j].id ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1])
    }
  }
  const out: [number | null, number | null][] = []
  let [i, j] = [0, 0]
  while (i < n || j < m) {
    if (i < n && j < m && a[i].id === b[j].id) out.push([i++, j++])
    else if (j >= m || (i < n && length[i + 1][j] >= length[i][j + 1])) out.push([i++, null])
    else out.push([null, j++])
  }
  return out
}
