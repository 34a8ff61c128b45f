"""Is system B better than system A, or was it luck? Paired bootstrap resampling (Koehn 2004); for classes, McNemar."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from regard import limits
from regard.evaluate.bleu import bleu_metric, check_equal, chrf_metric
from regard.evaluate.labels import entities


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


def check_samples(samples: int, size: int) -> None:
    """All are drawn at once: `samples` times `size` numbers."""
    limits.require(
        5 * 8 * samples * size, f"drawing {samples:,} samples of {size:,} parts", "draw fewer: --samples 1000"
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
    check_samples(samples, len(references))
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


Counts = Sequence[float] | np.ndarray


def compare_ratios(
    metric: str,
    first: tuple[Counts, Counts],
    second: tuple[Counts, Counts],
    *,
    scale: float = 1.0,
    samples: int = 1000,
    seed: int = 12345,
) -> Difference:
    """A score that is one sum over another, of two systems on the same parts, and the p-value of their difference.

    Each gives what is summed above and below the line for every part. Parts are drawn with replacement, the same for
    both; p is how often the difference is as far from the one measured as that is from none, as sacreBLEU counts it.
    """
    (a, under_a), (b, under_b) = ([np.asarray(x, np.float64) for x in system] for system in (first, second))

    def ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
        return scale * above.sum(-1) / np.maximum(below.sum(-1), 1e-300)  # nothing of nothing is 0

    one, two = float(ratio(a, under_a)), float(ratio(b, under_b))
    check_samples(samples, len(a))
    drawn = np.random.default_rng(seed).integers(len(a), size=(samples, len(a)))
    apart = ratio(b[drawn], under_b[drawn]) - ratio(a[drawn], under_a[drawn])
    as_far = int((np.abs(apart - (two - one)) >= abs(two - one)).sum())
    p = 1.0 if one == two else (as_far + 1) / (samples + 1)
    signature = f"parts:{len(a)}|bs:{samples}|seed:{seed}"
    return Difference(metric=metric, first=one, second=two, p_value=p, signature=signature)


def compare_bits(
    first: Sequence[float], second: Sequence[float], sizes: Sequence[int], *, samples: int = 1000
) -> Difference:
    """Bits per byte of two language models: `first` and `second` are the bits of each part, `sizes` its bytes."""
    return compare_ratios("bits", (first, sizes), (second, sizes), samples=samples)


def compare_labels(
    metric: str,
    first: Sequence[tuple[int, int]],
    second: Sequence[tuple[int, int]],
    *,
    samples: int = 1000,
) -> Difference:
    """Accuracy or F1 in per cent, from what `counted` gives for each text. With one label a text p is exact: how often
    as many coins as there are texts that only one of the two gets right fall as unevenly (McNemar 1947)."""
    one, two = (np.array(system, np.int64).T for system in (first, second))
    found = compare_ratios(metric, tuple(one), tuple(two), scale=100.0, samples=samples)
    if (one[1] != 1).any() or (two[1] != 1).any():
        return found
    only_first, only_second = int((one[0] > two[0]).sum()), int((one[0] < two[0]).sum())
    n, ways, tail = only_first + only_second, 1, 1
    for k in range(min(only_first, only_second)):
        ways = ways * (n - k) // (k + 1)  # n over k + 1, from n over k: quick for thousands of coins, and still exact
        tail += ways
    return replace(found, p_value=min(1.0, 2 * tail / 2**n), signature=f"examples:{len(one[0])}|mcnemar:exact")


def counted(true: Sequence[str], guessed: Sequence[str], of_entities: bool) -> tuple[int, int]:
    """Of one text, what an accuracy or an F1 is summed from: right of all labels, or twice the entities found of all
    that are there and all that were guessed."""
    if not of_entities:
        return sum(a == b for a, b in zip(true, guessed, strict=True)), len(true)
    there, made = entities(true), entities(guessed)
    return 2 * len(there & made), len(there) + len(made)


def verdict(result: Difference, first: str, second: str, level: float = 0.05) -> str:
    """The result in a sentence."""
    if result.difference == 0:
        return f"{first} and {second} score the same {result.metric}."
    up = result.difference > 0
    better, worse = (second, first) if up != (result.metric == "bits") else (first, second)  # fewer bits are better
    unit = {"bits": "bits per byte", "BLEU": "BLEU"}.get(result.metric, f"points of {result.metric}")
    gap = f"{abs(result.difference):.2f} {unit}"
    if result.p_value < level:
        return f"{better} is better than {worse} by {gap} (p = {result.p_value:.4f} < {level})."
    return f"{better} is ahead of {worse} by {gap}, which could be chance (p = {result.p_value:.4f} ≥ {level})."
