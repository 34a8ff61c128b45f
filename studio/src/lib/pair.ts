// Two texts side by side: which tokens stand for each other.
import type { Token } from './types'

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
