"""Is system B better than system A, or was it luck? Paired bootstrap resampling (Koehn 2004), by sacreBLEU."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.evaluate.bleu import bleu_metric, check_equal, chrf_metric


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One metric for two systems on the same sentences; `p_value` is the chance of such a difference by luck alone."""

    metric: str
    first: float
    second: float
    p_value: float
    signature: str

    @property
    def difference(self) -> float:
        return self.second - self.first

    def __str__(self) -> str:
        return (
            f"{self.metric:<5} {self.first:6.2f} {self.second:6.2f}   {self.difference:+.2f}   "
            f"p = {self.p_value:.4f}   {self.signature}"
        )


def compare(
    first: Sequence[str],
    second: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    samples: int = 1000,
) -> tuple[Difference, ...]:
    """BLEU and chrF of two systems' output for the same sources, each with the p-value of their difference."""
    check_equal(first, references)
    check_equal(second, references)
    from sacrebleu.significance import PairedTest

    test: Any = PairedTest(
        named_systems=[("first", first), ("second", second)],
        metrics={"BLEU": bleu_metric(tokenize), "chrF": chrf_metric()},
        references=[references],
        test_type="bs",
        n_samples=samples,
    )
    signatures, table = test()
    found = []
    for name, signature in signatures.items():
        a, b = table[name]
        one, two = float(a.score), float(b.score)
        # sacreBLEU gives two equal systems the smallest p there is; no difference is no evidence for one.
        p = 1.0 if one == two else float(b.p_value)
        label = "BLEU" if name == "BLEU" else "chrF"
        found.append(Difference(metric=label, first=one, second=two, p_value=p, signature=str(signature)))
    return tuple(found)


def compare_bits(
    first: Sequence[float], second: Sequence[float], sizes: Sequence[int], *, samples: int = 1000, seed: int = 12345
) -> Difference:
    """Bits per byte of two language models over the same parts of a text, and the p-value of their difference.

    `first` and `second` are the bits of each part, `sizes` its bytes. Parts are drawn with replacement, the same for
    both; p is how often the difference is as far from the one measured as that is from none, as sacreBLEU counts it.
    """
    a, b, size = (np.asarray(x, np.float64) for x in (first, second, sizes))
    one, two = a.sum() / size.sum(), b.sum() / size.sum()
    drawn = np.random.default_rng(seed).integers(len(size), size=(samples, len(size)))
    apart = (b - a)[drawn].sum(1) / size[drawn].sum(1)
    as_far = int((np.abs(apart - (two - one)) >= abs(two - one)).sum())
    p = 1.0 if one == two else (as_far + 1) / (samples + 1)
    signature = f"parts:{len(size)}|bs:{samples}|seed:{seed}"
    return Difference(metric="bits", first=float(one), second=float(two), p_value=p, signature=signature)


def verdict(result: Difference, first: str, second: str, level: float = 0.05) -> str:
    """The result in a sentence."""
    if result.difference == 0:
        return f"{first} and {second} score the same {result.metric}."
    up = result.difference > 0
    better, worse = (second, first) if up != (result.metric == "bits") else (first, second)  # fewer bits are better
    gap = f"{abs(result.difference):.2f} {result.metric}" + (" per byte" if result.metric == "bits" else "")
    if result.p_value < level:
        return f"{better} is better than {worse} by {gap} (p = {result.p_value:.4f} < {level})."
    return f"{better} is ahead of {worse} by {gap}, which could be chance (p = {result.p_value:.4f} ≥ {level})."
