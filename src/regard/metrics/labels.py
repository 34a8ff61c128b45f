"""How well labels are predicted: accuracy, F1, confusion, calibration, entities; and a bag of words as a baseline."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.errors import DataError

BINS = 15  # of the calibration error, as in Guo et al. 2017
WORD = re.compile(r"\w+|[^\w\s]")


def confusion(true: Sequence[int] | np.ndarray, predicted: Sequence[int] | np.ndarray, labels: int) -> np.ndarray:
    """L L: how often the class of a row was taken for the class of a column."""
    return np.bincount(np.asarray(true) * labels + np.asarray(predicted), minlength=labels * labels).reshape(
        labels, labels
    )


@dataclass(frozen=True)
class ClassScore:
    """How one class fared; `support` is how often it truly comes."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int


def by_class(table: np.ndarray, labels: Sequence[str]) -> list[ClassScore]:
    """Precision, recall and F1 of each class, from the confusion table; 0 where there is nothing to divide by."""
    hits, predicted, true = np.diag(table), table.sum(0), table.sum(1)
    return [
        ClassScore(label, *prf(int(h), int(g), int(t)), int(t))
        for label, h, g, t in zip(labels, hits, predicted, true, strict=True)
    ]


def prf(hits: int, predicted: int, true: int) -> tuple[float, float, float]:
    """Precision, recall and their harmonic mean."""
    return (
        hits / predicted if predicted else 0.0,
        hits / true if true else 0.0,
        2 * hits / (predicted + true) if hits else 0.0,
    )


def macro_f1(true: np.ndarray, predicted: np.ndarray, labels: int) -> float:
    """The mean F1 over the classes that come, truly or predicted."""
    table = confusion(true, predicted, labels)
    met = table.sum(0) + table.sum(1) > 0
    return float(np.mean([s.f1 for s, m in zip(by_class(table, [""] * labels), met, strict=True) if m]))


def alarm(true: np.ndarray, predicted: np.ndarray, labels: Sequence[str], balanced: bool = False) -> str:
    """What to say when a single class takes every prediction, the sign of a classifier that has learned nothing."""
    if len(np.unique(predicted)) != 1 or len(np.unique(true)) < 2:
        return ""
    return (
        f"ALARM: all {len(predicted):,} validation examples are labelled {labels[int(predicted[0])]!r}; the model has "
        "learned nothing yet" + ("" if balanced else "; if it is the majority class, --set data.balanced=true may help")
    )


def interval(right: int, count: int) -> tuple[float, float]:
    """Where a share that was seen as right/count truly lies, 95 times of 100 (Wilson 1927)."""
    from scipy.stats import binomtest

    bounds = binomtest(right, count).proportion_ci(method="wilson")
    return float(bounds.low), float(bounds.high)


# -- calibration --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bin:
    """Answers about as sure as each other: how sure they were, and how often they were right."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


def reliability(probabilities: np.ndarray, true: np.ndarray, bins: int = BINS) -> list[Bin]:
    """N L probabilities in bins (low, high] of the likeliest class's; a bin nobody is in is left out."""
    sure, right = probabilities.max(1), probabilities.argmax(1) == true
    which = np.clip(np.ceil(sure * bins).astype(int) - 1, 0, bins - 1)
    return [
        Bin(b / bins, (b + 1) / bins, int(inside.sum()), float(sure[inside].mean()), float(right[inside].mean()))
        for b in range(bins)
        if (inside := which == b).any()
    ]


def calibration_error(table: Sequence[Bin]) -> float:
    """ECE (Naeini et al. 2015): the mean gap between being sure and being right."""
    total = sum(b.count for b in table)
    return sum(b.count * abs(b.accuracy - b.confidence) for b in table) / total


# -- entities -----------------------------------------------------------------------------------------------------


def is_iob(labels: Sequence[str]) -> bool:
    """Whether these tags mark entities: O, B-X and I-X, and nothing else."""
    return any(x.startswith("B-") for x in labels) and all(x == "O" or x[:2] in ("B-", "I-") for x in labels)


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """(type, first word, word after the last), strictly as IOB2 has it: B-X opens, I-X only continues an X."""
    spans, kind, start = set(), "", 0
    for i, tag in enumerate([*tags, "O"]):
        if kind and tag != f"I-{kind}":
            spans.add((kind, start, i))
            kind = ""
        if tag.startswith("B-"):
            kind, start = tag[2:], i
    return spans


@dataclass(frozen=True)
class EntityScore:
    """Entities found whole and of the right type, over all (micro) and for each type."""

    precision: float
    recall: float
    f1: float
    entities: int
    by_type: list[ClassScore]


def entity_score(true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> EntityScore:
    hits, guesses, golds = Counter[str](), Counter[str](), Counter[str]()
    for gold, guess in zip(true, predicted, strict=True):
        if len(gold) != len(guess):
            raise DataError(f"{len(guess)} tags predicted for a sentence of {len(gold)} words")
        a, b = entities(gold), entities(guess)
        for counter, which in ((hits, a & b), (guesses, b), (golds, a)):
            counter.update(name for name, _, _ in which)
    names = sorted(golds | guesses)
    types = [ClassScore(name, *prf(hits[name], guesses[name], golds[name]), golds[name]) for name in names]
    return EntityScore(*prf(hits.total(), guesses.total(), golds.total()), golds.total(), types)


# -- a baseline ---------------------------------------------------------------------------------------------------


def bag_of_words(texts: Sequence[tuple[str, ...]], labels: Sequence[str], test: Sequence[tuple[str, ...]]) -> list[str]:
    """The labels of `test` by multinomial naive Bayes (Manning et al. 2008, chapter 13): which words, not their order.

    Words are lower-cased; those of a second text count as others. A word never met in training is ignored.
    """
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    model: Any = make_pipeline(CountVectorizer(analyzer=words), MultinomialNB())
    return model.fit(texts, labels).predict(test).tolist()


def words(text: tuple[str, ...]) -> list[str]:
    return [f"{i}:{w}" if i else w for i, part in enumerate(text) for w in WORD.findall(part.lower())]
