"""The server's view of a task: its endpoints, what a request holds, and what it may set."""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import unknown
from regard.errors import ConfigError, LimitError
from regard.ticks import Console

SILENCE = bytes.fromhex(
    "524946464403000057415645666d74201000000001000100401f0000401f0000010008006461746120030000"
) + bytes([128] * 800)
# A white pixel, and a tenth of a second of silence: valid inputs for example requests.
EXAMPLES = {
    "images": {
        "file": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg==",
        "name": "x.png",
    },
    "audio": {"file": base64.b64encode(SILENCE).decode(), "name": "x.wav"},
}
COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")  # gzip, bzip2, xz, Zstandard
PLAIN = (".csv", ".tsv", ".txt", ".json", ".jsonl")  # tables no larger than their files
SUFFIXES = {"images": ".png", "audio": ".wav", "series": ".csv", "tables": ".csv"}  # of files without a name


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A setting of a request: a number within bounds, a text, or a boolean."""

    default: Any
    help: str
    least: float = 0
    most: float = 1_000

    def schema(self) -> dict[str, Any]:
        """The setting as JSON Schema."""
        about = {"default": self.default, "description": self.help}
        if isinstance(self.default, str | bool):
            return {"type": "string" if isinstance(self.default, str) else "boolean", **about}
        return {
            "type": "integer" if isinstance(self.default, int) else "number",
            "minimum": self.least,
            "maximum": self.most,
            **about,
        }

    def check(self, name: str, value: Any) -> Any:
        """The value; `ConfigError` if it is not allowed."""
        types = {str: (str, "text"), bool: (bool, "true or false"), int: (int, "a whole number")}
        expected, what = types.get(type(self.default), ((int, float), "a number"))
        if not isinstance(value, expected) or isinstance(value, bool) != isinstance(self.default, bool):
            raise ConfigError(f"{name} is {value!r:.80}; expected {what}")
        if not isinstance(value, str | bool) and not self.least <= value <= self.most:
            raise ConfigError(f"{name} is {value}; must be between {self.least:g} and {self.most:g}")
        return value


def record(**fields: Mapping[str, Any]) -> dict[str, Any]:
    """An object with exactly these fields, as JSON Schema."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def array(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
NUMBERS = {"type": "object", "additionalProperties": NUMBER}  # by name
CANDIDATES = array(record(text=STRING, score=NUMBER, log_probability=NUMBER))

BEAM = Setting(default=5, least=1, most=32, help="Beams of the search; 1 is greedy.")
N_BEST = Setting(default=1, least=1, most=32, help="How many of the best answers to return, at most one per beam.")
NO_REPEAT = Setting(default=0, most=1 << 20, help="No n-gram of this many tokens occurs twice; 0: no rule.")


class Served:
    """The part of a `Task` used by `regard.serve`. By default an input is a text or a file."""

    name: str
    reads: str
    endpoints: tuple[str, ...] = ()  # of OpenAI's API, in addition to `/v1/predict`
    writes = False  # whether it decodes token by token, in a running batch (`generate.scheduler`)
    joins = True  # whether the inputs of several requests can be answered together
    request_settings: Mapping[str, Setting] = {}
    request_example: Any = "The cat drank the milk because it was hungry."
    answer_schema: Mapping[str, Any] = {}  # what `to_json` returns, as JSON Schema

    def input_schema(self, predictor: Any) -> dict[str, Any]:
        """One input of a request, as JSON Schema."""
        if self.reads == "text":
            return {"type": "string", "minLength": 1, "examples": [self.example_input(predictor)]}
        file = {"type": "string", "contentEncoding": "base64", "description": "The bytes of the file."}
        name = {"type": "string", "description": f"Its name; the suffix gives its format, such as {self.suffix}."}
        forms: list[dict[str, Any]] = [
            {"type": "object", "properties": {"file": file, "name": name}, "required": ["file"]}
        ]
        if self.tabular:
            cells = {"type": "array", "items": {"type": "object"}, "description": "The rows of a table, by column."}
            forms.append({"type": "object", "properties": {"rows": cells}, "required": ["rows"]})
        examples = {} if (example := self.example_input(predictor)) is None else {"examples": [example]}
        return {"anyOf": [form | {"additionalProperties": False} for form in forms], **examples}

    def example_input(self, predictor: Any) -> Any:
        """An example input for this model; None if there is none."""
        return EXAMPLES.get(self.reads, self.request_example)

    @property
    def suffix(self) -> str:
        return SUFFIXES[self.reads]

    @property
    def tabular(self) -> bool:
        """Whether an input is itself a table, which may be sent as rows instead of a file."""
        return self.suffix == ".csv"

    def request_input(
        self, predictor: Any, value: Any, folder: Path, console: Console, most: Mapping[str, float]
    ) -> Any:
        """One input of a request as a list for `predictor.predict`; a file is written to `folder`.

        `most` is the maximum of pixels, or seconds, of a file.
        """
        if self.reads == "text":
            return self.parse_inputs(predictor, [self.text_value(value)], console)
        path = self.file_value(value, folder)
        if self.tabular and path.suffix.lower() not in PLAIN:
            raise ConfigError(f"a {path.suffix} file may hold a table of any size; send one of {', '.join(PLAIN)}")
        unit, size = measure(self.reads, path)
        if size > most.get(unit, size):
            raise LimitError(f"the file has {size:,.0f} {unit}; this server allows at most {most[unit]:,.0f}")
        return self.parse_inputs(predictor, [str(path)], console)

    def parse_inputs(self, predictor: Any, words: Sequence[str], console: Console) -> Any:
        raise NotImplementedError

    def text_value(self, value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"expected a text, got {short(value)}")
        return value

    def file_value(self, value: Any, folder: Path) -> Path:
        """The file of an input, written to `folder` under our own name with its suffix."""
        fields = {"file", "name", *(["rows"] if self.tabular else [])}
        if not isinstance(value, dict) or not value.keys() & {"file", "rows"}:
            expected = f'{{"file": BASE64, "name": "x{self.suffix}"}}' + (' or {"rows": […]}' if self.tabular else "")
            raise ConfigError(f"expected {expected}, got {short(value)}")
        for field in value.keys() - fields:
            raise unknown("field", field, sorted(fields))
        if "rows" in value and len(value) > 1:
            raise ConfigError(f"rows stands alone; leave out {' and '.join(sorted(value.keys() - {'rows'}))}")
        if self.tabular and isinstance(value.get("rows"), list):
            path = folder / "input.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in value["rows"]), "utf-8")
            return path
        try:
            data = base64.b64decode(value["file"].partition("base64,")[2] or value["file"], validate=True)
        except (binascii.Error, ValueError, AttributeError, KeyError):
            raise ConfigError("file is not base64; expected the bytes of a file in base64") from None
        if self.tabular and data.startswith(COMPRESSED):
            raise ConfigError("the file is compressed, so its size is unbounded; send it uncompressed")
        ending = "".join(c for c in Path(str(value.get("name", ""))).suffix[:8] if c.isalnum() or c == ".")
        path = folder / f"input{ending or self.suffix}"
        path.write_bytes(data)
        return path

    def check_settings(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options of `predictor.predict` that a request sets."""
        for name in options:
            if name not in self.request_settings:
                raise unknown("option", name, self.request_settings or ["none for this model"])
        return {name: self.request_settings[name].check(name, value) for name, value in options.items()}

    def explain(self, predictor: Any, one: Any, answer: Any) -> Any:
        """Where the model looked for its answer to one input, given as a list of one; as JSON."""
        raise ConfigError(f"explain is not for {self.name}; leave it out")

    @property
    def explains(self) -> bool:
        """Whether a request may ask for an explanation."""
        return type(self).explain is not Served.explain

    def count_tokens(self, predictor: Any, inputs: Any) -> int:
        """Tokens of all inputs, for responses that report them."""
        return 0


def measure(reads: str, path: Path) -> tuple[str, float]:
    """The unit of a file's size and the size its header claims, before anything of that size is allocated."""
    if reads == "images":
        from regard.data.pixels import count_pixels

        return "pixels", count_pixels(path)
    if reads == "audio":
        from regard.data.waveform import count_seconds

        return "seconds", count_seconds(path)
    return "bytes", 0


def short(value: Any) -> str:
    """A value of a request, for a message."""
    return "an empty text" if isinstance(value, str) and not value.strip() else f"{json.dumps(value):.80}"
