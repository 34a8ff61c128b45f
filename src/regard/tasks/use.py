"""How a trained model is used, whatever its task: what the verbs hand in, and what they get back."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import ConfigError, DataError

if TYPE_CHECKING:
    from regard.tasks.base import Task


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
    length_penalty: float = 0.6
    tokenize: str = "auto"
    picture: str = ""
    out: Path | None = None
    strict: bool = False  # whether a row that cannot be used is an error

    def refuse_others(self, verb: str, task: str, takes: Iterable[str]) -> None:
        """Raise `ConfigError` for options that were typed and mean nothing to this task."""
        fields, usual = vars(self), vars(Options())
        wrong = [name for name in fields if fields[name] != usual[name] and name not in takes]
        if wrong:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in wrong)
            raise ConfigError(f"{names}: not for {task}; see: regard {verb} --help")

    def pick(self, names: Iterable[str]) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class TestSet:
    """What a model is scored on: its name, the inputs of its predictor, and what the answers are compared with."""

    __test__ = False  # for pytest: a class of ours

    on: str
    inputs: Any
    targets: Any
    train: Any = None  # the training examples, for baselines; None: not available
    extra: Any = None  # whatever else the task needs to score them
    contents: Sequence[Hashable] = ()  # what identifies each example, to find it in the training set


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result of an evaluation: on what, how, the numbers by name, and how they read."""

    on: str
    detail: str = ""  # "1,000 images"
    values: dict[str, Any]
    text: str
    outputs: Iterable[str] = ()  # the answers themselves, for `--out`

    def noted(self) -> dict[str, Any]:
        """What the run's scores.jsonl keeps: plain numbers and words."""
        return {"on": self.on} | {k: v for k, v in self.values.items() if isinstance(v, int | float | str)}


def with_overlap(
    task: "Task", verdict: Verdict, predictor: Any, folder: Path, contents: Sequence[Hashable], unit: str = ""
) -> Verdict:
    """The verdict, with how many of the examples it is about the model was trained on."""
    from regard.data.overlap import count, evaluation_warning

    if not contents or not (folder / "run.json").is_file():
        return verdict
    try:
        seen = count(contents, task.training_contents(predictor, task.own_data(folder)))
    except DataError:
        seen = None
    warning = evaluation_warning(seen, len(contents), unit or task.unit)
    values, text = verdict.values | {"seen_in_training": seen}, "\n".join(filter(None, [verdict.text, warning]))
    return replace(verdict, values=values, text=text)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs of a file, in order, each with the cells its row begins with; None is one that cannot be read."""

    examples: Iterable[tuple[dict[str, Any], Any]]
    unit: str = "rows"  # what progress counts
    total: int = 0


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
    """The rows of all examples, as they are answered; the cells of an input that is None are those of no answer.

    An answer whose column is there already is `predicted_…`.
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
