"""ROUGE-1, ROUGE-2 and ROUGE-L (Lin 2004): the overlap of a summary with its reference, with an interval.

As rouge-score computes them: F-measures, lower case, words are runs of a-z and 0-9 (so this is for English), no
stemming; ROUGE-L takes each text as one sequence. Of several references the best counts, for each measure separately.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from regard.errors import DataError, LimitError
from regard.metrics.bleu import check_equal
from regard.metrics.labels import prf

Reference = str | Sequence[str]  # one text, or several that are equally right
SEED = 12345  # of the resampling, as in sacreBLEU
SIGNATURE = "F-measure|case:lc|words:a-z0-9|stem:no|refs:best"
MOST = 10**10  # pairs of words in one table: some seconds
LONGEST = 16  # characters, more than any abbreviation has
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|et al|cf|vs|resp|[Ff]igs?|[Ee]qs?|[Ss]ecs?|Nos?|Dr|Mrs?|Ms|Prof|St|[A-Z])\.$")


@dataclass(frozen=True, kw_only=True)
class Measure:
    """The mean over all texts, 0 to 100. The interval holds 95 % of the bootstrap resamples."""

    name: str
    f: float
    low: float
    high: float
    precision: float
    recall: float

    def __str__(self) -> str:
        return (
            f"{self.name}  {self.f:5.1f}   95 % interval {self.low:.1f} to {self.high:.1f}   "
            f"precision {self.precision:.1f}, recall {self.recall:.1f}"
        )


@dataclass(frozen=True, kw_only=True)
class RougeScore:
    rouge1: Measure
    rouge2: Measure
    rougeL: Measure
    texts: int
    signature: str

    def __str__(self) -> str:
        lines = map(str, (self.rouge1, self.rouge2, self.rougeL))
        return "\n".join((*lines, f"{self.texts:,} texts   {self.signature}"))


def score(hypotheses: Sequence[str], references: Sequence[Reference], *, samples: int = 1000) -> RougeScore:
    """All three with bootstrap intervals; `references[i]` may be several texts."""
    tables = measure_all(hypotheses, references)
    n = len(references)
    rng = np.random.default_rng(SEED)
    drawn = [rng.integers(n, size=n) for _ in range(samples)]

    def measure(name: str) -> Measure:
        table = tables[name]
        precision, recall, f = table.mean(0)
        low, high = np.percentile([table[rows, 2].mean() for rows in drawn], (2.5, 97.5))
        numbers = dict(f=f, low=low, high=high, precision=precision, recall=recall)
        return Measure(name=f"ROUGE-{name[5:]}", **{k: 100 * float(v) for k, v in numbers.items()})

    one, two, longest = map(measure, tables)
    return RougeScore(rouge1=one, rouge2=two, rougeL=longest, texts=n, signature=SIGNATURE)


def quick(hypotheses: Sequence[str], references: Sequence[Reference]) -> dict[str, float]:
    """F of `rouge1`, `rouge2` and `rougeL` without intervals, for evaluations during training."""
    return {name: 100 * float(table[:, 2].mean()) for name, table in measure_all(hypotheses, references).items()}


def first_sentence(text: str) -> str:
    """The baseline of a summary: the text up to the first full stop, question or exclamation mark.

    A mark ends a sentence if a space and no lower-case letter follow it, and no abbreviation or initial precedes it.
    """
    text = " ".join(text.split())
    for end in re.finditer(r"(?<![.!?])[.!?]++[\"'”’)\]]*+(?= (?![a-z]))", text):
        if not ABBREVIATION.search(text, max(0, end.end() - LONGEST), end.end()):
            return text[: end.end()]
    return text


# -- one text -----------------------------------------------------------------------------------------------------


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def rouge_n(hypothesis: list[str], reference: list[str], n: int) -> tuple[float, float, float]:
    """Precision, recall and F of runs of `n` words; each counts as often as it occurs in both. Lin 2004, section 2."""
    ours, theirs = (Counter(zip(*(text[i:] for i in range(n)), strict=False)) for text in (hypothesis, reference))
    return prf((ours & theirs).total(), ours.total(), theirs.total())


def rouge_l(hypothesis: list[str], reference: list[str]) -> tuple[float, float, float]:
    """The same for the longest common subsequence: words in the same order, gaps allowed. Lin 2004, section 3.1."""
    return prf(common_subsequence(hypothesis, reference), len(hypothesis), len(reference))


def common_subsequence(a: list[str], b: list[str]) -> int:
    """Length of the longest common subsequence, a column of the usual table per step, as the bits of one integer.

    Hyyrö 2004: bit i is 0 where the table grows from row i to i + 1, so zeros are counted at the end.
    """
    if len(a) > len(b):
        a, b = b, a  # the shorter one in bits
    if len(a) * len(b) > MOST:
        raise LimitError(
            f"a text and its reference of {len(b):,} and {len(a):,} words: ROUGE-L compares at most {MOST:,} pairs of "
            "words; split them"
        )
    places: dict[str, int] = {}
    for i, word in enumerate(a):
        places[word] = places.get(word, 0) | 1 << i
    full = column = (1 << len(a)) - 1
    for word in b:
        match = column & places.get(word, 0)
        column = ((column + match) | (column - match)) & full
    return len(a) - column.bit_count()


MEASURES: dict[str, Callable[[list[str], list[str]], tuple[float, float, float]]] = {
    "rouge1": lambda ours, theirs: rouge_n(ours, theirs, 1),
    "rouge2": lambda ours, theirs: rouge_n(ours, theirs, 2),
    "rougeL": rouge_l,
}


def measure_all(hypotheses: Sequence[str], references: Sequence[Reference]) -> dict[str, np.ndarray]:
    """For every measure, precision, recall and F of each text, against the reference with the best F."""
    check_equal(hypotheses, references)
    if missing := [i for i, theirs in enumerate(references, 1) if not isinstance(theirs, str) and not theirs]:
        raise DataError(f"text {missing[0]} has no reference, and {len(missing) - 1} more; leave them out")
    split = [
        (words(ours), [words(r) for r in ([theirs] if isinstance(theirs, str) else theirs)])
        for ours, theirs in zip(hypotheses, references, strict=True)
    ]
    return {
        name: np.array([max((measure(ours, one) for one in theirs), key=lambda t: t[2]) for ours, theirs in split])
        for name, measure in MEASURES.items()
    }
