"""What the label column holds: a class, a number, or several labels at once.

Readers store a code for each cell, its index among the distinct values, and a task decodes it. So a new meaning of the
column is one class here, for texts, images, series and tables.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.data import split
from regard.data.cells import is_missing
from regard.errors import DataError


class ClassTargets:
    """One of a few names; the validation set is stratified by them."""

    how = split.BY_CLASS
    numbers = False

    def fault(self, cell: str) -> str:
        """Why a cell cannot be a target; "" if it can."""
        return "" if cell.strip() else "no label"

    def strata(self, cells: Sequence[str]) -> Sequence[str]:
        """The stratum of each cell."""
        return cells

    def codes(self, train: Iterable[str], valid: Sequence[str], file: str, places: Sequence[str] = ()) -> list[str]:
        """The distinct cells in the order of their codes; `DataError` for those that cannot be learned or scored.
        `places` are the locations of `valid`."""
        names = sorted(set(train))
        if len(names) < 2:
            raise DataError(f"{file}: all examples have the label {names[0]!r}; expected at least two classes")
        check_known(valid, names, places or [file] * len(valid))
        return names

    def report(self, counts: Mapping[str, int], one: str, kind: str) -> list[str]:
        return split.classes(counts, one, kind)


class NumberTargets(ClassTargets):
    """A finite number."""

    how = split.BY_CONTENT
    numbers = True

    def fault(self, cell: str) -> str:
        if is_missing(cell):
            return "no number"
        return "" if math.isfinite(_number(cell)) else f"{cell[:40]!r} is not a number"

    def strata(self, cells: Sequence[str]) -> Sequence[str]:
        return [""] * len(cells)

    def codes(self, train: Iterable[str], valid: Sequence[str], file: str, places: Sequence[str] = ()) -> list[str]:
        train = set(train)
        values = {cell: to_number(cell, file) for cell in sorted(train | set(valid))}
        if len({values[cell] for cell in train}) < 2:
            raise DataError(f"{file}: the target is {min(train)} everywhere; there is nothing to learn")
        return list(values)

    def report(self, counts: Mapping[str, int], one: str, kind: str) -> list[str]:
        values = np.repeat([float(cell) for cell in counts], list(counts.values()))
        low, high, mean, std = values.min(), values.max(), values.mean(), values.std()
        return [f"targets from {low:.6g} to {high:.6g}, mean {mean:.6g}, standard deviation {std:.6g}"]


class LabelSetTargets(NumberTargets):
    """Any number of labels, separated by `|`, `;` or `,`; an empty cell is an example without any."""

    numbers = False

    def fault(self, cell: str) -> str:
        return ""

    def codes(self, train: Iterable[str], valid: Sequence[str], file: str, places: Sequence[str] = ()) -> list[str]:
        train = set(train)
        if not (names := all_labels(train)):
            raise DataError(f"{file}: no example has a label")
        check_known(all_labels(valid), names, [file] * len(all_labels(valid)))
        return sorted(train | set(valid))

    def report(self, counts: Mapping[str, int], one: str, kind: str) -> list[str]:
        each: Counter[str] = Counter()
        for cell, number in counts.items():
            each.update(dict.fromkeys(labels_in(cell), number))
        mean = each.total() / max(1, sum(counts.values()))
        return [*split.classes(dict(sorted(each.items())), one, "labels"), f"{mean:.2f} labels per example on average"]


TARGETS: dict[str, ClassTargets] = {"classes": ClassTargets(), "numbers": NumberTargets(), "sets": LabelSetTargets()}


@dataclass(frozen=True)
class ClassData:
    """Prepared examples with a code each: both parts have codes, N, in `labels`."""

    labels: tuple[str, ...]  # in the order of their codes
    train: Any
    valid: Any
    notes: tuple[str, ...] = ()  # what was left out, and why
    files: int = 0  # a fingerprint of the examples and their labels
    how: str = ""  # the validation set was chosen
    unit: str = "row"
    about: str = ""
    classes: str = "classes"  # their name in the report
    targets: ClassTargets = TARGETS["classes"]

    def report(self) -> str:
        counts = np.bincount(self.train.labels, minlength=len(self.labels)).tolist()
        by_label = dict(zip(self.labels, counts, strict=True))
        line = split.report(len(self.train), len(self.valid), f"{self.unit}s", self.how)
        classes = self.targets.report(by_label, self.unit, self.classes)
        return "\n".join([f"{line}; {self.about}", *classes, *self.notes])


def check_known(labels: Sequence[str], trained: Sequence[str], places: Sequence[str]) -> None:
    """Raise `DataError` for a label that was not in training."""
    names = set(trained)
    for label, place in zip(labels, places, strict=True):
        if label not in names:
            raise DataError(f"{place}: the label {label!r} is not among those trained on: {', '.join(trained)}")


def to_number(cell: str, place: str) -> float:
    if not math.isfinite(value := _number(cell)):
        raise DataError(f"{place}: the target {cell!r} is not a number; fix it, or name another column: --label NAME")
    return value


def _number(cell: str) -> float:
    """NaN if it is not a number."""
    try:
        return float(cell)
    except ValueError:
        return math.nan


def labels_in(cell: str) -> list[str]:
    return sorted({name for part in re.split(r"[|;,]", cell) if (name := part.strip())})


def all_labels(cells: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({name for cell in cells for name in labels_in(cell)}))
