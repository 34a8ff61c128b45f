"""How a trained model is used, whatever its task: what the verbs pass in, and what they get back."""

import json
import os
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.config import unknown
from regard.errors import ConfigError, DataError

if TYPE_CHECKING:
    from regard.tasks.base import Task


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `evaluate`, `predict` and `compare`; a task declares which of them it takes."""

    data: str = ""  # the user's file or folder; "": the run's own test or validation set
    labels: str = ""  # for series: a table of ids and labels
    source: str = ""
    target: str = ""
    text: str = ""  # columns of a table
    second: str = ""
    context: int = 0
    stride: int = 0
    beam: int = 5
    length_penalty: float = 0.6
    tokenize: str = "auto"
    picture: str = ""
    out: Path | None = None
    strict: bool = False  # whether a row that cannot be used is an error

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Options":
        """From names and values; an unknown name is an error that suggests the nearest."""
        for name in options:
            if name not in cls.__dataclass_fields__:
                raise unknown("option", name, cls.__dataclass_fields__)
        return cls(**options)

    def refuse_others(self, verb: str, task: str, takes: Iterable[str]) -> None:
        """Raise `ConfigError` for options that were set but do not apply to this task."""
        fields, usual = vars(self), vars(Options())
        wrong = [name for name in fields if fields[name] != usual[name] and name not in takes]
        if wrong:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in wrong)
            raise ConfigError(f"{names}: not for {task}; see: regard {verb} --help")

    def pick(self, names: Iterable[str]) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class TestSet:
    """What a model is scored on: a name, the predictor's inputs, and the targets."""

    __test__ = False  # not a pytest class

    on: str
    inputs: Any
    targets: Any
    train: Any = None  # the training examples, for baselines; None: not available
    extra: Any = None  # whatever else the task needs to score them
    contents: Sequence[Hashable] = ()  # what identifies each example, to find it in the training set


@dataclass(frozen=True)
class ShownExample:
    """An input of a predictor, in a sequence of one: the `number` of `count` in the set `on`."""

    on: str
    number: int
    count: int
    inputs: Any


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result of an evaluation: the data, the settings, the scores by name, and as text."""

    task: str = ""
    on: str
    detail: str = ""  # "1,000 images"
    values: dict[str, Any]
    text: str
    outputs: Iterable[str] = ()  # the answers themselves, for `--out`
    contents: Sequence[Hashable] = ()  # what identifies each example, to find it in the training set
    unit: str = ""  # of the examples; "": the task's

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __str__(self) -> str:
        return f"on {self.on}{f', {self.detail}' if self.detail else ''}\n{self.text}"

    def noted(self) -> dict[str, Any]:
        """What the run's scores.jsonl records: plain numbers and words."""
        return {"on": self.on} | {k: v for k, v in self.values.items() if isinstance(v, int | float | str)}


def with_overlap(verdict: Verdict, task: "Task", predictor: Any, folder: Path) -> Verdict:
    """The verdict, with how many of its examples the model was trained on."""
    from regard.data.overlap import count, evaluation_warning

    if not verdict.contents or not (folder / "run.json").is_file():
        return verdict
    try:
        seen = count(verdict.contents, task.training_contents(predictor, task.own_data(folder)))
    except DataError:
        seen = None
    warning = evaluation_warning(seen, len(verdict.contents), verdict.unit or task.unit)
    values, text = verdict.values | {"seen_in_training": seen}, "\n".join(filter(None, [verdict.text, warning]))
    return replace(verdict, values=values, text=text)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two models on the same examples: a `Difference` for each metric; the first decides."""

    on: str
    examples: int
    unit: str  # of the examples
    differences: list[Any]


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs of a file, in order, each with the cells its row starts with; None for one that cannot be read."""

    examples: Iterable[tuple[dict[str, Any], Any]]
    unit: str = "rows"  # what progress counts
    total: int = 0
    table: bool = False  # whether inputs, and so answers, have the columns of a table


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """A row for each input, in order. `line` renders a row as text; without it the rows are a table."""

    rows: Iterable[dict[str, Any]]
    unit: str = "rows"
    total: int = 0
    line: Callable[[dict[str, Any]], str] | None = field(default=None)


def answer_all(
    examples: Iterable[tuple[dict[str, Any], Any]],
    predict: Callable[[Iterable[Any]], Iterator[Any]],
    row: Callable[[Any], dict[str, Any]],
) -> Iterator[dict[str, Any]]:
    """The rows of all examples, as they are answered; an input of None gets empty cells.

    An answer's column that already exists in the input becomes `predicted_…`.
    """
    waiting: deque[tuple[dict[str, Any], bool]] = deque()

    def inputs() -> Iterator[Any]:
        for cells, value in examples:
            waiting.append((cells, value is not None))
            if value is not None:
                yield value

    def joined(answer: Any) -> dict[str, Any]:
        cells, _ = waiting.popleft()
        names = {name.lower() for name in cells}
        return cells | {f"predicted_{k}" if k.lower() in names else k: v for k, v in row(answer).items()}

    def unread() -> Iterator[dict[str, Any]]:
        while waiting and not waiting[0][1]:
            yield joined(None)

    for answer in predict(inputs()):
        yield from unread()
        yield joined(answer)
    yield from unread()


def text_inputs(file: Path, column: str, say: Callable[[str], None], unit: str = "texts") -> Inputs:
    """The lines of a text, or the rows of a table with the texts of one column, in file order. A blank one is None."""
    from regard.data.pairs import read_lines
    from regard.data.skipped import has
    from regard.data.tables import TEXTS, is_table, read_table

    if not is_table(file):
        if column:
            raise ConfigError(f"--text names a column of a table, but {file} has lines of text; leave it out")
        return Inputs(examples=(({"source": x}, x if x.strip() else None) for x in read_lines(file)), unit=unit)
    table = read_table(file, [column], say=say, strict=False)
    name = table.find(column, TEXTS, "text", 0)
    rows = table.with_gaps({name: has("text")}, say)
    examples = ((cells, cells[name] if usable else None) for cells, usable in rows)
    return Inputs(examples=examples, unit=unit, total=len(table) + len(table.skipped), table=True)


def pick_device(name: str) -> str:
    """auto → cuda if available; a device torch cannot use is an error here, not a crash later."""
    import torch

    name = name.lower()
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return name
    if name != "cuda" and not (name.startswith("cuda:") and name[5:].isdigit()):
        raise ConfigError(f"--device {name!r}: expected auto, cpu, cuda or cuda:N")
    if not torch.cuda.is_available():
        raise ConfigError(f"--device {name}: torch sees no GPU here; type --device cpu")
    if name != "cuda" and int(name[5:]) >= torch.cuda.device_count():
        raise ConfigError(f"--device {name}: there are {torch.cuda.device_count()} GPUs, counted from 0")
    if name != "cuda":
        torch.cuda.set_device(name)  # our kernels launch on the current device
    return name


def note(run: Path, score: dict[str, Any]) -> None:
    """Append a score to scores.jsonl if possible: the folder may be read-only. A link is not followed."""
    try:
        opener = lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o666)  # noqa: E731
        with open(run / "scores.jsonl", "a", encoding="utf-8", errors="backslashreplace", opener=opener) as file:
            file.write(json.dumps(score, ensure_ascii=False) + "\n")
    except OSError:
        pass
