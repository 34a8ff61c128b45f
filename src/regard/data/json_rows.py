"""Rows of a table written as JSON: an object on each line, or one array of flat objects."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from regard import limits
from regard.data.delimited import Delimited
from regard.data.files import ending
from regard.data.skipped import BadRow
from regard.errors import DataError
from regard.jsonfile import GROWTH

ARRAY = '[{"text": "…", "label": "…"}, …]'
SPACE = re.compile(r"[ \t\r\n]*")

Object = dict[str, Any]


def is_array(path: Path, text: Delimited) -> bool:
    """Whether a file is read as one array: a `.json` is, unless it holds one object per line."""
    if ending(path) != ".json":
        return False
    try:
        return not isinstance(json.loads(next((line for line in text.lines() if line.strip()), "")), dict)
    except (ValueError, RecursionError):
        return True


class NotJson(NamedTuple):
    """A line that is not JSON, and why."""

    reason: str


def read_objects(path: Path, text: Delimited, flat: bool = False) -> list[tuple[int, Object]]:
    """The objects of a file, each with its line; those of an array must be flat if requested. Anything else goes to
    `text.bad`, or is an error if strict."""
    objects, flat = [], flat and is_array(path, text)
    for line, value in read_values(path, text):
        if not (reason := fault(value, flat)):
            objects.append((line, value))
        elif text.strict:
            raise DataError(f"{path} line {line}: {reason}")
        else:
            text.bad.append(BadRow(line, reason))
    return objects


def fault(value: Any, flat: bool = False) -> str:
    """Why a value cannot be a row; "" if it can."""
    if isinstance(value, NotJson):
        return f"not JSON ({value.reason})"
    if not isinstance(value, dict):
        return f"expected an object, {{'text': …, 'label': …}}, got {json.dumps(value, ensure_ascii=False)[:40]!r}"
    for name, cell in value.items() if flat else ():
        if isinstance(cell, dict | list):
            holds = f"{name!r} holds {'an object' if isinstance(cell, dict) else 'a list'}"
            return f"{holds}; expected flat objects, {ARRAY}: text, numbers, true, false or null"
    return ""


def read_values(path: Path, text: Delimited) -> Iterator[tuple[int, Any]]:
    """The values of an array, or one on each line, each with its line."""
    return read_array(path, text) if is_array(path, text) else parse_lines(text.lines())


def parse_lines(lines: Iterable[str]) -> Iterator[tuple[int, Any]]:
    """The value on each non-blank line, or `NotJson`."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as e:
                yield number, NotJson(str(e))


def read_array(path: Path, text: Delimited) -> Iterator[tuple[int, Any]]:
    """The values of an array, one at a time, each with its first line."""
    limits.require(GROWTH * len(text.data), f"reading {path}", "write it as JSONL, an object on each line")
    data = "".join(text.lines())
    place, line, counted = _skip(data, 0), 1, 0
    if data[place : place + 1] != "[":
        raise DataError(f"{path}: expected an array of objects, {ARRAY}, got {data[place : place + 40]!r}")
    decoder, place = json.JSONDecoder(), _skip(data, place + 1)
    while data[place : place + 1] != "]":
        line, counted = line + data.count("\n", counted, place), place
        try:
            value, place = decoder.raw_decode(data, place)
            place = _skip(data, place)
            if (mark := data[place : place + 1]) not in (",", "]"):
                raise ValueError(f"expected a comma or the array's end, got {mark!r}" if mark else "it ends too early")
        except (ValueError, RecursionError) as e:
            reason = getattr(e, "msg", e)  # without the position, which counts from the start of the file
            raise DataError(f"{path} line {line}: not a JSON array ({reason})") from None
        yield line, value
        if mark == ",":
            place = _skip(data, place + 1)
    if _skip(data, place + 1) < len(data):
        raise DataError(f"{path}: expected one array of objects, {ARRAY}; there is more text after it")


def _skip(data: str, place: int) -> int:
    space = SPACE.match(data, place)
    return space.end() if space else place
