"""Formatting of numbers, durations and tables for people, and checks of what they type."""

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

from regard.errors import ConfigError


def count(number: float, what: str, plural: str = "") -> str:
    """`1 batch`, `2 batches`, `1,024 texts`, `0.5 minutes`."""
    plural = plural or what + ("es" if what.endswith(("s", "x", "ch", "sh")) else "s")
    shown = f"{number:g}" if isinstance(number, float) else f"{number:,}"
    return f"{shown} {what if number == 1 else plural}"


def some(items: Iterable[str], most: int = 24, between: str = " ") -> str:
    """The first `most` items, then their number if some are left out."""
    items = list(items)
    return between.join(items[:most]) + (f" … ({len(items):,})" if len(items) > most else "")


def metric_name(key: str) -> str:
    """A metric's name as shown to people; files keep the key."""
    return "validation loss" if key == "held_out_loss" else key.replace("_", " ")


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Rows as aligned columns; those numbered in `right` are right-aligned."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


SURROGATES = re.compile("[\ud800-\udfff]")  # how Python represents bytes that are not UTF-8


def names_file(text: str) -> bool:
    """Whether the text is the name of an existing file."""
    return os.path.isfile(text)  # noqa: PTH113 - pathlib's raises where a text is too long for a name


def check_text(name: str, value: Any) -> None:
    """Raise `ConfigError` for text that is not UTF-8; the name of a file may be anything."""
    for text in [value] if isinstance(value, str) else value or []:
        if SURROGATES.search(text) and not names_file(text):
            raise ConfigError(f"{name} is not UTF-8: {text[:60]}; check the encoding of the terminal or the script")
