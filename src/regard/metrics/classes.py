"""Scores of classifiers and taggers, as values and as text: accuracy with its interval, F1, calibration, confusion."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.data.iob import is_iob
from regard.metrics.labels import (
    alarm,
    by_class,
    calibration_error,
    confusion,
    entity_score,
    interval,
    macro_f1,
    reliability,
)
from regard.words import table


def judge_classes(
    likely: np.ndarray,
    true: np.ndarray,
    labels: Sequence[str],
    unit: str,
    baselines: Sequence[str] = (),
    remarks: Sequence[str] = (),
) -> tuple[dict[str, Any], str]:
    """The scores of N L probabilities against N true classes, and the same as text.

    `baselines` are printed below the accuracy, `remarks` below the scores.
    """
    predicted = likely.argmax(1)
    counts, bins = confusion(true, predicted, len(labels)), reliability(likely, true)
    classes = by_class(counts, labels)
    low, high = interval(int((true == predicted).sum()), len(true))
    scores: dict[str, Any] = {
        "accuracy": float((true == predicted).mean()),
        "accuracy_interval": [low, high],
        "macro_f1": macro_f1(true, predicted, len(labels)),
        "ece": calibration_error(bins),
        "loss": float(-np.log(np.maximum(likely[np.arange(len(true)), true], 1e-300)).mean()),
        unit: len(true),
        "labels": list(labels),
        "confusion": counts.tolist(),
        "by_class": [dataclasses.asdict(c) for c in classes],
        "reliability": [dataclasses.asdict(b) for b in bins],
    }
    lines = [
        f"accuracy     {scores['accuracy']:.2%} (95 % interval {low:.1%} to {high:.1%})",
        *baselines,
        f"macro F1     {scores['macro_f1']:.2%}",
        f"ECE          {scores['ece']:.2%}",
        *remarks,
        *filter(None, [alarm(true, predicted, labels)]),
    ]
    header = ["true \\ predicted", *labels]
    matrix = [[label, *(f"{n:,}" for n in row)] for label, row in zip(labels, counts.tolist(), strict=True)]
    lines += ["", class_table(classes), "", table([header, *matrix], right=range(1, len(header)))]
    sure = [(f"{b.low:.0%}-{b.high:.0%}", f"{b.count:,}", f"{b.confidence:.1%}", f"{b.accuracy:.1%}") for b in bins]
    lines += ["", table([("SURE", unit.upper(), "MEAN", "RIGHT"), *sure], right=[0, 1, 2, 3])]
    return scores, "\n".join(lines)


def judge_tags(
    true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], labels: Sequence[str]
) -> tuple[dict[str, Any], str]:
    """The scores of tagged words: accuracy, and F1 of entities (strict IOB2) or, for other labels, of each class."""
    pairs = [(a, b) for x, y in zip(true, predicted, strict=True) for a, b in zip(x, y, strict=True)]
    accuracy = sum(a == b for a, b in pairs) / len(pairs)
    scores: dict[str, Any] = {"accuracy": accuracy, "words": len(pairs)}
    lines = [f"accuracy   {accuracy:.2%} of {len(pairs):,} words"]
    if is_iob(labels):
        score = entity_score(true, predicted)
        classes = score.by_type
        scores |= {"entity_f1": score.f1, "entity_precision": score.precision, "entity_recall": score.recall}
        shares = f"precision {score.precision:.2%}, recall {score.recall:.2%}"
        lines.append(f"entity F1  {score.f1:.2%} ({shares}) of {score.entities:,} entities, strict IOB2")
    else:
        at = {label: i for i, label in enumerate(labels)}
        classes = by_class(confusion([at[a] for a, _ in pairs], [at[b] for _, b in pairs], len(at)), labels)
    scores["by_type" if is_iob(labels) else "by_class"] = [dataclasses.asdict(c) for c in classes]
    return scores, "\n".join([*lines, "", class_table(classes)])


def class_table(classes: Any) -> str:
    rows = [(c.label, f"{c.precision:.1%}", f"{c.recall:.1%}", f"{c.f1:.1%}", f"{c.support:,}") for c in classes]
    return table([("LABEL", "PRECISION", "RECALL", "F1", "TRUE"), *rows], right=[1, 2, 3, 4])
