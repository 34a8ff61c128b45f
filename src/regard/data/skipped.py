"""Rows that cannot be used: skipped, counted and listed. Too many of them, or any if strict, are an error."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from regard.data.cells import is_missing, to_days, to_number
from regard.data.folders import Say
from regard.errors import DataError

LARGEST_SHARE, SHARE = 1 / 3, "a third"  # of the rows may be skipped
LISTED = 5

Check = Callable[[str], str]  # why a cell cannot be used; "" if it can


class BadRow(NamedTuple):
    line: int
    reason: str
    lines: int = 1  # lines of the file it takes: an unclosed quote takes many
    name: str = ""  # if it has one and no line

    def __str__(self) -> str:
        return f"{self.name or self.line}: {self.reason}"


def has(what: str) -> Check:
    """The check that a cell is not empty: "no text"."""
    return lambda cell: "" if cell.strip() else f"no {what}"


HAS_LABEL = has("label")


def number_fault(cell: str, mark: str = ".") -> str:
    """Why a cell is not a number; "" if it is, or is missing."""
    try:
        to_number(cell, mark)
    except ValueError:
        return f"{cell.strip()[:40]!r} is not a number"
    return ""


def date_fault(cell: str) -> str:
    """Why a cell is not a date; "" if it is, or is missing."""
    return "" if is_missing(cell) or to_days(cell) is not None else f"{cell.strip()[:40]!r} is not a date"


def report(
    path: Path, rows: Sequence[BadRow], usable: int, strict: bool, say: Say, unit: str = "line", *,
    what: str = "rows", done: str = "skipped", limit: float = LARGEST_SHARE,
) -> None:  # fmt: skip
    """Report the skipped rows, the first of them with their lines; `DataError` if there are too many."""
    if not rows:
        return
    rows = sorted(rows, key=lambda row: row.line)
    count, total = len(rows), len(rows) + usable
    others = "; ".join(f"{unit} {row}" for row in rows[1:LISTED])
    more = f"; and {count - LISTED:,} more" if count > LISTED else ""
    listed = (f"; {others}" if others else "") + more
    first = f"{unit} {rows[0]}"
    if strict:
        raise DataError(f"{path} {first}{listed} (without --strict such {what} are skipped)")
    lines = sum(row.lines for row in rows)
    if lines > limit * (lines + usable):
        unusable = f"{count:,} of {total:,} {what} cannot be used, more than {SHARE}"
        raise DataError(
            f"{path} {first}{listed} ({unusable}); check that the file is read as it should be, or remove them"
        )
    say(f"{path}: {done} {count:,} of {total:,} {what}: {first}{listed}")
