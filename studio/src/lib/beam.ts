// The steps of a beam search, each a list of candidates, best first.
import type { Candidate } from './types'

/** The number, from 1, of the candidate in the step before that this one goes on from; 0 at the first step. */
export function parent(steps: Candidate[][], step: number, { parent }: Candidate): number {
  const before = steps[step - 1]?.map((c, i) => (c.kept && !c.ends ? i : -1)).filter((i) => i >= 0)
  return before ? before[parent] + 1 : 0
}
