"""JSON files of run and model folders. They are not trusted: whatever is wrong with one is an error in one sentence."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard import limits
from regard.errors import CheckpointError

GROWTH = 12  # bytes of memory per byte of JSON, about
KINDS = {dict: "a JSON object", list: "a JSON list"}


def read_json(path: Path, kind: type = dict) -> Any:
    """The value in a file, which must be of type `kind`; `FileNotFoundError` if there is no file."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise CheckpointError(f"{path} is not a file that can be read")  # reading a pipe would block
    limits.require(GROWTH * about.st_size, f"reading {path}")
    try:
        return expect(parse(path.read_bytes()), kind)
    except ValueError as e:
        raise CheckpointError(f"{path} cannot be read ({e})") from None


def read_json_if_any(path: Path) -> dict[str, Any]:
    """The object in a file; {} if there is no file."""
    return read_json(path) if path.is_file() else {}


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, indented."""
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")


def group(values: dict[str, Any], name: str) -> dict[str, Any]:
    """The object under `name`; {} if it is missing or not an object."""
    value = values.get(name)
    return value if isinstance(value, dict) else {}


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSONL file, up to the first broken line: a crash may cut the last one short."""
    with path.open("rb") as lines:
        for line in lines:
            try:
                yield expect(parse(line), dict)
            except ValueError:
                return


def parse(text: bytes) -> Any:
    """The value; `ValueError` if `text` is not JSON or is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"expected {KINDS[kind]}, got {type(value).__name__}")
    return value
