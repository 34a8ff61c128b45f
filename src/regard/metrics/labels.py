"""Metrics of predicted labels: F1, confusion, calibration, entities; and a bag of words as a baseline."""

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
    """L L: how often the true class of a row was predicted as the class of a column."""
    return np.bincount(np.asarray(true) * labels + np.asarray(predicted), minlength=labels * labels).reshape(
        labels, labels
    )


@dataclass(frozen=True)
class ClassScore:
    """The scores of one class; `support` is the number of its true examples."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int


def by_class(table: np.ndarray, labels: Sequence[str]) -> list[ClassScore]:
    """Precision, recall and F1 of each class, from the confusion table; 0 / 0 counts as 0."""
    hits, predicted, true = np.diag(table), table.sum(0), table.sum(1)
    return [
        ClassScore(label, *prf(int(h), int(g), int(t)), int(t))
        for label, h, g, t in zip(labels, hits, predicted, true, strict=True)
    ]


def prf(hits: int, predicted: int, true: int) -> tuple[float, float, float]:
    """Precision, recall, and their harmonic mean F = 2PR / (P + R), which is 2·hits / (predicted + true)."""
    return hits / max(1, predicted), hits / max(1, true), 2 * hits / max(1, predicted + true)


def macro_f1(true: np.ndarray, predicted: np.ndarray, labels: int) -> float:
    """The mean F1 over the classes that occur, as true or as predicted."""
    table = confusion(true, predicted, labels)
    met = table.sum(0) + table.sum(1) > 0
    return float(np.mean([s.f1 for s, m in zip(by_class(table, [""] * labels), met, strict=True) if m]))


def alarm(true: np.ndarray, predicted: np.ndarray, labels: Sequence[str], balanced: bool = False) -> str:
    """The warning if all predictions are one class, the sign of a classifier that has learned nothing; else ""."""
    if len(np.unique(predicted)) != 1 or len(np.unique(true)) < 2:
        return ""
    return (
        f"ALARM: all {len(predicted):,} validation examples are labelled {labels[int(predicted[0])]!r}; the model has "
        "learned nothing yet" + ("" if balanced else "; if it is the majority class, --set data.balanced=true may help")
    )


def interval(right: int, count: int) -> tuple[float, float]:
    """The 95 % confidence interval of the proportion right / count (Wilson 1927)."""
    from scipy.stats import binomtest

    bounds = binomtest(right, count).proportion_ci(method="wilson")
    return float(bounds.low), float(bounds.high)


# -- calibration --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bin:
    """Predictions of similar confidence: their mean confidence, and their accuracy."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


def reliability(probabilities: np.ndarray, true: np.ndarray, bins: int = BINS) -> list[Bin]:
    """N L probabilities in bins (low, high] of the likeliest class's probability; empty bins are left out."""
    sure, right = probabilities.max(1), probabilities.argmax(1) == true
    which = np.clip(np.ceil(sure * bins).astype(int) - 1, 0, bins - 1)
    return [
        Bin(b / bins, (b + 1) / bins, int(inside.sum()), float(sure[inside].mean()), float(right[inside].mean()))
        for b in range(bins)
        if (inside := which == b).any()
    ]


def calibration_error(table: Sequence[Bin]) -> float:
    """ECE (Naeini et al. 2015): the mean gap between confidence and accuracy."""
    total = sum(b.count for b in table)
    return sum(b.count * abs(b.accuracy - b.confidence) for b in table) / total


# -- entities -----------------------------------------------------------------------------------------------------


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """(type, first word, word after the last), by strict IOB2: B-X opens an entity, I-X only continues an X."""
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
    """Scores of entities with the right span and type, over all (micro) and for each type."""

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

    Words are lower-cased; those of a second text are features of their own. Words not seen in training are ignored.
    """
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    model: Any = make_pipeline(CountVectorizer(analyzer=words), MultinomialNB())
    return model.fit(texts, labels).predict(test).tolist()


def words(text: tuple[str, ...]) -> list[str]:
    return [f"{i}:{w}" if i else w for i, part in enumerate(text) for w in WORD.findall(part.lower())]
