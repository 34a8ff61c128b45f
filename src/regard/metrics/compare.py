"""Is system B better than system A, or is it noise? Paired bootstrap resampling (Koehn 2004); for classes, McNemar."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard import limits
from regard.metrics.bleu import bleu_metric, check_equal, chrf_metric
from regard.metrics.labels import entities


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One metric of two systems on the same examples, with the p-value of their difference."""

    metric: str
    first: float
    second: float
    p_value: float
    signature: str
    lower_is_better: bool = False

    @property
    def difference(self) -> float:
        return self.second - self.first

    def __str__(self) -> str:
        digits = 2 if max(abs(self.first), abs(self.second)) >= 10 else 4
        scores = " ".join(f"{x:6.{digits}f}" for x in (self.first, self.second))
        p = f"p = {self.p_value:.4f}" if self.p_value >= 0.0001 else "p < 0.0001"
        return f"{self.metric:<5} {scores}   {self.difference:+.{digits}f}   {p}   {self.signature}"


@dataclass(frozen=True, kw_only=True)
class Sums:
    """A score by example: `scale` times the sum of `above` over the sum of `below`."""

    metric: str
    above: Sequence[float] | np.ndarray
    below: Sequence[float] | np.ndarray
    scale: float = 100.0
    lower_is_better: bool = False


def check_samples(samples: int, size: int) -> None:
    """Raise `LimitError` unless `samples` resamples of `size` examples, all held at once, fit into memory."""
    limits.require(
        5 * 8 * samples * size, f"drawing {samples:,} samples of {size:,} parts", "take fewer: --samples 1000"
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
    differences = []
    for name, signature in signatures.items():
        a, b = table[name]
        one, two = float(a.score), float(b.score)
        # sacreBLEU gives two equal systems the smallest possible p, but no difference is no evidence for one.
        p = 1.0 if one == two else float(b.p_value)
        label = "BLEU" if name == "BLEU" else "chrF"
        differences.append(Difference(metric=label, first=one, second=two, p_value=p, signature=str(signature)))
    return tuple(differences)


def compare_sums(first: Sums, second: Sums, *, samples: int = 1000, seed: int = 12345) -> Difference:
    """Compare two systems on the same examples, with the p-value of their difference.

    Examples are resampled with replacement, the same for both; p is how often the difference is as far from the
    measured one as that is from zero, as in sacreBLEU. If every example is right or wrong, p is McNemar's exact test
    (1947) on the examples that only one of the two gets right.
    """
    (a, under_a), (b, under_b) = ([np.asarray(x, np.float64) for x in (s.above, s.below)] for s in (first, second))

    def ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
        return first.scale * above.sum(-1) / np.maximum(below.sum(-1), 1e-300)  # 0 / 0 is 0

    one, two = float(ratio(a, under_a)), float(ratio(b, under_b))
    if all((x == 1).all() for x in (under_a, under_b)) and all(np.isin(x, (0, 1)).all() for x in (a, b)):
        p, signature = mcnemar(int((a > b).sum()), int((a < b).sum())), f"examples:{len(a)}|mcnemar:exact"
    else:
        check_samples(samples, len(a))
        drawn = np.random.default_rng(seed).integers(len(a), size=(samples, len(a)))
        apart = ratio(b[drawn], under_b[drawn]) - ratio(a[drawn], under_a[drawn])
        as_far = int((np.abs(apart - (two - one)) >= abs(two - one)).sum())
        p = 1.0 if one == two else (as_far + 1) / (samples + 1)
        signature = f"parts:{len(a)}|bs:{samples}|seed:{seed}"
    lower = first.lower_is_better
    return Difference(metric=first.metric, first=one, second=two, p_value=p, signature=signature, lower_is_better=lower)


def mcnemar(only_first: int, only_second: int) -> float:
    """The two-sided p-value of McNemar's exact test."""
    from scipy.stats import binomtest

    return float(binomtest(only_first, only_first + only_second).pvalue) if only_first + only_second else 1.0


def counted(true: Sequence[str], predicted: Sequence[str], of_entities: bool) -> tuple[int, int]:
    """Numerator and denominator of a corpus score, for one text: correct and all labels (accuracy), or twice the shared
    entities and those of both sides (F1)."""
    if not of_entities:
        return sum(a == b for a, b in zip(true, predicted, strict=True)), len(true)
    ours, theirs = entities(predicted), entities(true)
    return 2 * len(ours & theirs), len(ours) + len(theirs)


def verdict(result: Difference, first: str, second: str, level: float = 0.05) -> str:
    """The result in a sentence."""
    if result.difference == 0:
        return f"{first} and {second} score the same {result.metric}."
    better, worse = (second, first) if (result.difference > 0) != result.lower_is_better else (first, second)
    unit = result.metric if result.metric in ("bits per byte", "BLEU") else f"points of {result.metric}"
    gap = f"{abs(result.difference):.2f} {unit}"
    p = f"p = {result.p_value:.4f}" if result.p_value >= 0.0001 else "p < 0.0001"
    if result.p_value < level:
        return f"{better} is better than {worse} by {gap} ({p}, significant at {level})."
    return f"{better} is ahead of {worse} by {gap}, which could be noise ({p}, not significant at {level})."
