"""What is printed of classes, whatever was classified: one answer, or the scores of many."""

import csv
import dataclasses
import io
import json as jsonlib
from collections.abc import Iterable, Iterator
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
