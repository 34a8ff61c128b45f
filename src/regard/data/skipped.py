"""Rows that cannot be used: they are skipped, counted and listed. Many of them, or strict reading, are an error."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from regard.data.folders import Say
from regard.errors import DataError

LARGEST_SHARE, SHARE = 1 / 3, "a third"  # of the rows that may be skipped
LISTED = 5


class BadRow(NamedTuple):
    line: int
    reason: str
    lines: int = 1  # of the file that it takes: a quote that is never closed swallows many


def report(path: Path, rows: Sequence[BadRow], usable: int, strict: bool, say: Say, unit: str = "line") -> None:
    """Say which rows were skipped, the first of them with their lines; `DataError` if they are too many."""
    if not rows:
        return
    rows = sorted(rows)
    count, total = len(rows), len(rows) + usable
    others = "; ".join(f"{unit} {row.line}: {row.reason}" for row in rows[1:LISTED])
    more = f"; and {count - LISTED:,} more" if count > LISTED else ""
    listed = (f"; {others}" if others else "") + more
    first = f"{unit} {rows[0].line}: {rows[0].reason}"
    if strict:
        raise DataError(f"{path} {first}{listed} (data.strict is set; without it such rows are skipped)")
    lines = sum(row.lines for row in rows)
    if lines > LARGEST_SHARE * (lines + usable):
        raise DataError(f"{path} {first}{listed} ({count:,} of {total:,} rows cannot be used, more than {SHARE})")
    say(f"{path}: skipped {count:,} of {total:,} rows: {first}{listed}")
