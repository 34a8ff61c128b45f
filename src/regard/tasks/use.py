"""How a trained model is used, whatever its task: what the verbs hand in, and what they get back."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Options:
    """What may be typed after `evaluate`, `predict` and `compare`; a task declares which of them it takes."""

    data: str = ""  # a file or folder of the user's; "": the run's own test or validation set
    labels: str = ""  # of series: a table of ids and labels
    source: str = ""
    target: str = ""
    text: str = ""  # columns of a table
    second: str = ""
    context: int = 0
    stride: int = 0
    beam: int = 5
    picture: str = ""
    out: Path | None = None

    def refuse_others(self, verb: str, task: str, takes: Iterable[str]) -> None:
        """Raise `ConfigError` for options that were typed and mean nothing to this task."""
        fields, usual = vars(self), vars(Options())
        wrong = [name for name in fields if fields[name] != usual[name] and name not in takes]
        if wrong:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in wrong)
            raise ConfigError(f"{names}: not for {task}; see: regard {verb} --help")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What an evaluation found: on what, on how many examples, the numbers by name, and how they read."""

    on: str
    count: str  # "1,000 images"
    values: dict[str, Any]
    text: str

    def noted(self) -> dict[str, Any]:
        """What the run's scores.jsonl keeps: plain numbers and words."""
        return {"on": self.on} | {k: v for k, v in self.values.items() if isinstance(v, int | float | str)}


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """A row for each input, in order. `lines` renders a row as text; without it the rows are a table."""

    rows: Iterable[dict[str, Any]]
    unit: str = "rows"  # what progress counts
    total: int = 0
    lines: Any = field(default=None)  # dict -> str
