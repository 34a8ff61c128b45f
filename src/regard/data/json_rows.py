"""Rows of a table written as JSON: an object on each line, or one array of flat objects."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard import limits
from regard.data.delimited import Delimited
from regard.data.files import ending
from regard.errors import DataError
from regard.jsonfile import GROWTH

ARRAY = '[{"text": "…", "label": "…"}, …]'
SPACE = re.compile(r"[ \t\r\n]*")

Object = dict[str, Any]


def is_array(path: Path, text: Delimited) -> bool:
    """Whether a file is read as one array: a `.json` is, unless it holds an object on each line."""
    if ending(path) != ".json":
        return False
    try:
        return not isinstance(json.loads(next((line for line in text.lines() if line.strip()), "")), dict)
    except (ValueError, RecursionError):
        return True


def read_object(where: str, line: str) -> Object:
    """The JSON object on a line."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise DataError(f"{where}: not JSON ({e})") from None
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected an object, as {{'text': …, 'label': …}}, got {line[:40]!r}")
    return row


def read_array(path: Path, text: Delimited) -> Iterator[tuple[int, Object]]:
    """The objects of an array, one at a time, each with the line it begins on."""
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
            reason = getattr(e, "msg", e)  # without the place, which is counted from the file's beginning
            raise DataError(f"{path} line {line}: not a JSON array ({reason})") from None
        if not isinstance(value, dict):
            raise DataError(f"{path} line {line}: expected an array of objects, {ARRAY}, got {str(value)[:40]!r} in it")
        yield line, value
        if mark == ",":
            place = _skip(data, place + 1)
    if _skip(data, place + 1) < len(data):
        raise DataError(f"{path}: expected one array of objects, {ARRAY}; there is more after it")


def check_flat(path: Path, line: int, row: Object) -> Object:
    for name, value in row.items():
        if isinstance(value, dict | list):
            raise DataError(
                f"{path} line {line}: {name!r} holds {'an object' if isinstance(value, dict) else 'a list'}; expected "
                f"flat objects, {ARRAY}: text, numbers, true, false or null"
            )
    return row


def _skip(data: str, place: int) -> int:
    space = SPACE.match(data, place)
    return space.end() if space else place
