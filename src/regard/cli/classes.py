"""What is printed of classes, whatever was classified: one answer, or the scores of many."""

import csv
import dataclasses
import io
import json as jsonlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.common import show, write_lines
from regard.ticks import Console
from regard.words import table

if TYPE_CHECKING:
    from regard.predictors.labeller import Answer


def show_answer(answer: "Answer", json: bool) -> None:
    if json:
        show(dataclasses.asdict(answer))
        return
    ranked = sorted(answer.probabilities.items(), key=lambda item: -item[1])
    print(answer.label)
    print(table([(f"  {label}", f"{p:.1%}") for label, p in ranked], right=[1]))


def judge_classes(
    likely: Any,
    true: Any,
    labels: Sequence[str],
    beside: Sequence[str],
    said: Sequence[str],
    unit: str,
    picture: str,
    flags: Console,
) -> tuple[dict[str, Any], str]:
    """N L probabilities against N true classes: all scores, and the same as text.

    Lines `beside` stand below the accuracy, lines `said` below the scores.
    """
    import numpy as np

    from regard.evaluate.labels import alarm, by_class, calibration_error, confusion, interval, macro_f1, reliability

    guessed = likely.argmax(1)
    counts, bins = confusion(true, guessed, len(labels)), reliability(likely, true)
    classes = by_class(counts, labels)
    low, high = interval(int((true == guessed).sum()), len(true))
    found: dict[str, Any] = {
        "accuracy": float((true == guessed).mean()),
        "accuracy_interval": [low, high],
        "macro_f1": macro_f1(true, guessed, len(labels)),
        "ece": calibration_error(bins),
        "loss": float(-np.log(np.maximum(likely[np.arange(len(true)), true], 1e-300)).mean()),
        unit: len(true),
        "labels": list(labels),
        "confusion": counts.tolist(),
        "by_class": [dataclasses.asdict(c) for c in classes],
        "reliability": [dataclasses.asdict(b) for b in bins],
    }
    lines = [
        f"accuracy     {found['accuracy']:.2%} (95 % interval {low:.1%} to {high:.1%})",
        *beside,
        f"macro F1     {found['macro_f1']:.2%}",
        f"ECE          {found['ece']:.2%}",
        *said,
        *filter(None, [alarm(true, guessed, labels)]),
    ]
    header = ["true \\ guessed", *labels]
    matrix = [[label, *(f"{n:,}" for n in row)] for label, row in zip(labels, counts.tolist(), strict=True)]
    lines += ["", class_table(classes), "", table([header, *matrix], right=range(1, len(header)))]
    sure = [(f"{b.low:.0%}-{b.high:.0%}", f"{b.count:,}", f"{b.confidence:.1%}", f"{b.accuracy:.1%}") for b in bins]
    lines += ["", table([("SURE", unit.upper(), "MEAN", "RIGHT"), *sure], right=[0, 1, 2, 3])]
    if picture:
        from regard.explain.reliability import draw

        flags.say(f"picture: {draw(bins, found['ece'], picture)}")
    return found, "\n".join(lines)


def class_table(classes: Any) -> str:
    rows = [(c.label, f"{c.precision:.1%}", f"{c.recall:.1%}", f"{c.f1:.1%}", f"{c.support:,}") for c in classes]
    return table([("LABEL", "PRECISION", "RECALL", "F1", "TRUE"), *rows], right=[1, 2, 3, 4])


def write_rows(
    rows: Iterable[dict[str, Any]], out: Path | None, json: bool, flags: Console, what: str = "rows", total: int = 0
) -> None:
    """Rows of the same columns as CSV, or as objects where that is asked for; to a file, or to stdout.

    `total` of `what` are expected, for who waits for the file.
    """
    objects = json or (out is not None and out.suffix.lower() == ".jsonl")
    write_lines(as_lines(rows, objects), out, flags, what, total)


def as_lines(rows: Iterable[dict[str, Any]], objects: bool) -> Iterator[str]:
    for number, row in enumerate(rows):
        if objects:
            yield jsonlib.dumps(row, ensure_ascii=False) + "\n"
            continue
        line = io.StringIO()
        writer = csv.writer(line, lineterminator="\n")
        writer.writerows([row.values()] if number else [row.keys(), row.values()])
        yield line.getvalue()
