"""The validation set: chosen by a hash of the content, the same share of every class; by time where order matters.

Equal content is never on both sides, and the order of the rows does not matter. A run records its rule
(`data.split_rule`), so that it keeps its validation set when the rule changes.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from regard.data.settings import LEGACY_SPLIT
from regard.errors import ConfigError, DataError

MANY = 10  # with this many examples, the validation set has at least two
SHOWN = 12  # classes in a report
BY_CLASS = "of each class, chosen by a hash of the content"
BY_CONTENT = "chosen by a hash of the content"
AT_THE_END = "at the end of the text"
T = TypeVar("T")


def digest(content: str | bytes) -> bytes:
    """The hash of a content; examples that belong together share one, such as the captions of an image."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).digest()


def key(config: Any, valid: Path | None) -> dict[str, str]:
    """What the rule adds to the key of a prepared folder; nothing with validation files, which need no rule, nor for
    older runs, whose folders keep their names."""
    return {} if valid or config.split_rule == LEGACY_SPLIT else {"split_rule": config.split_rule}


def count(total: int, share: float) -> int:
    """The size of the validation set: the share, at least two of ten or more examples, never all."""
    return max(0, min(max(round(share * total), 2 if total >= MANY else 1), total - 1))


def hold_out(
    digests: Sequence[bytes], labels: Sequence[str] | None, share: float, what: str, fold: int = 0, rule: str = ""
) -> np.ndarray:
    """Which examples are in the validation set: a share of every class, with remainders distributed fairly; never the
    only example of a class. Examples without a class ("") do not affect the others.

    `fold` 0 to N - 1 with a share of 1/N are the folds of a cross-validation: each example is in one of them.
    """
    labels = [""] * len(digests) if labels is None else labels
    if rule == LEGACY_SPLIT:
        chosen = _legacy(digests, labels, share)
    else:
        chosen = _chosen(digests, labels, Fraction(share).limit_denominator(1000), fold)
        left = {label for unit, label in zip(digests, labels, strict=True) if unit not in chosen}
        chosen -= {unit for unit, label in zip(digests, labels, strict=True) if label not in left}
    aside = np.array([unit in chosen for unit in digests], bool)
    if not aside.any() or aside.all():
        once = 2 < len(digests) == len(set(labels))
        hint = f"; {len(digests):,} labels, each of one example: is it the right column? (--label NAME)" * once
        different = f", {len(set(digests)):,} of them different," * (len(set(digests)) < len(digests))
        raise DataError(f"{len(digests):,} {what}{different} are too few to split; give more, or --valid FILE{hint}")
    return aside


def _chosen(digests: Sequence[bytes], labels: Sequence[str], share: Fraction, fold: int) -> set[bytes]:
    """The first of each class in the order of their hashes; for a later fold, those that follow."""
    classes = _classes(digests, labels, min)
    several = {label: sorted(units) for label, units in classes.items() if len(units) > 1}
    total, before, chosen = sum(map(len, several.values())), 0, set[bytes]()
    least = min(2 if len(digests) >= MANY else 1, total // 2)
    if share * total < least:
        if fold:
            raise ConfigError(f"data.fold is {fold}, but {total:,} examples make no folds of {least}; set data.folds")
        share = Fraction(least, total)
    for label in sorted(several, key=lambda label: (not label, label)):
        units = several[label]
        edges = [[_round((g + f) * share) for g in (before, before + len(units))] for f in range(fold + 1)]
        sizes = [stop - start for start, stop in edges]
        chosen.update(units[sum(sizes[:-1]) :][: min(sizes[-1], len(units) - 1)])
        before += len(units)
    return chosen


def _classes(digests: Sequence[bytes], labels: Sequence[str], pick: Any) -> dict[str, list[bytes]]:
    """The distinct contents of each class; `pick` decides the class of a content with two labels."""
    label_of: dict[bytes, str] = {}
    for unit, label in zip(digests, labels, strict=True):
        label_of[unit] = pick(label_of.get(unit, label), label)
    classes: dict[str, list[bytes]] = defaultdict(list)
    for unit, label in label_of.items():
        classes[label].append(unit)
    return classes


def _round(x: Fraction) -> int:
    return floor(x + Fraction(1, 2))


def hash64(content: str) -> int:
    """The beginning of a digest, for contents too many to keep."""
    return int.from_bytes(digest(content)[:8])


def threshold(hashes: Sequence[int], share: float, least: int = 1) -> int:
    """The hash up to which contents are in the validation set; -1 if there are too few."""
    ordered = np.unique(np.asarray(hashes, np.uint64))
    number, total = count(len(ordered), share), len(ordered)
    number = number if total >= MANY else min(max(least, number), total // 2)
    return int(ordered[number - 1]) if number else -1


def parts(rows: Iterable[T], aside: np.ndarray) -> tuple[list[T], list[T]]:
    """The training and the validation rows."""
    both: tuple[list[T], list[T]] = ([], [])
    for row, held in zip(rows, aside, strict=True):
        both[int(held)].append(row)
    return both


def in_time(total: int, shares: Sequence[float]) -> list[tuple[int, int]]:
    """The start and end of consecutive parts of `total` rows. `shares` may be numbers of rows."""
    sizes = shares if min(shares) >= 1 else [share * total for share in shares]
    ends = [round(sum(sizes[: i + 1])) for i in range(len(sizes))]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def report(train: int, valid: int, what: str, how: str = "") -> str:
    """The sizes in one sentence; `how` is empty if the user gave the validation set."""
    line = f"{train:,} {what} to train on, {valid:,} for validation"
    return f"{line}: {100 * valid / (train + valid):.0f} % {how}" if how else line


def classes(counts: Mapping[str, int], one: str = "", kind: str = "classes") -> list[str]:
    """How often each class occurs, most frequent first; and which have only one example (`one`)."""
    total, common = max(1, sum(counts.values())), sorted(counts.items(), key=lambda item: -item[1])
    shown = [f"{label}: {n:,} ({n / total:.1%})" for label, n in common[:SHOWN]]
    more = [f"and {len(common) - SHOWN} more"] * (len(common) > SHOWN)
    lonely = [f"one {one} only: {label}" for label, n in counts.items() if n == 1 and one]
    return [f"{len(counts)} {kind}: {', '.join([*shown, *more])}", *lonely]


# Older runs: their validation sets must not change


def _legacy(digests: Sequence[bytes], labels: Sequence[str], share: float) -> set[bytes]:
    """Every class rounded separately, with at least one example."""
    classes = {label: sorted(units) for label, units in _classes(digests, labels, lambda _, last: last).items()}
    chosen = {unit for units in classes.values() for unit in units[: round(share * len(units))]}
    largest = max(classes.values(), key=len, default=[])
    return chosen or set(largest[:1] if len(largest) > 1 else ())


def legacy_folds(digests: Sequence[bytes], labels: Sequence[str], folds: int, fold: int) -> np.ndarray:
    """The folds of series: the n-th of each class in the order of ids, from a different start in each class."""
    chosen = np.zeros(len(digests), bool)
    for start, label in enumerate(sorted(set(labels), key=lambda label: (not label, label))):
        rows = sorted((i for i, other in enumerate(labels) if other == label), key=lambda i: digests[i])
        if len(rows) > 1:
            chosen[[row for place, row in enumerate(rows) if (place + start) % folds == fold]] = True
    return chosen
