"""JSON files of a run or model folder. Anybody may have written them, so every way to be wrong is one sentence."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard import limits
from regard.errors import CheckpointError

GROWTH = 12  # bytes of memory for a byte of JSON, about
KINDS = {dict: "a JSON object", list: "a JSON list"}


def read_json(path: Path, kind: type = dict) -> Any:
    """The value of a file, which must be of this `kind`. A file that is missing is a `FileNotFoundError`."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise CheckpointError(f"{path} is not a file that can be read")  # a pipe would be waited for
    limits.require(GROWTH * about.st_size, f"reading {path}")
    try:
        return expect(parse(path.read_bytes()), kind)
    except ValueError as e:
        raise CheckpointError(f"{path} cannot be read ({e})") from None


def read_json_if_any(path: Path) -> dict[str, Any]:
    """The object of a file; {} where there is none."""
    return read_json(path) if path.is_file() else {}


def group(values: dict[str, Any], name: str) -> dict[str, Any]:
    """The object of this name inside another; {} where it is missing or something else."""
    value = values.get(name)
    return value if isinstance(value, dict) else {}


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file with one a line, up to the first line that is not one: a crash may cut the last short."""
    with path.open("rb") as lines:
        for line in lines:
            try:
                yield expect(parse(line), dict)
            except ValueError:
                return


def parse(text: bytes) -> Any:
    """The value; `ValueError` for what is not JSON, or nested deeper than anybody means."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"expected {KINDS[kind]}, got {type(value).__name__}")
    return value
