"""The predictor protocol: inputs in, an answer for each, in order; and the answers that several tasks share."""

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from regard.data import memory
from regard.data.files import in_groups
from regard.errors import ConfigError

Input = TypeVar("Input")


class Predictor:
    """A trained model, ready for use. `regard.load` returns one; its task defines what an input is.

    Its `family` selects what `regard.inside` shows of it.
    """

    model: Any
    task: Any = None  # set by `regard.load`, as is the folder
    folder: Path = Path()
    test: Any = None  # the test set that examples come from, once it is read

    def __getstate__(self) -> dict[str, Any]:
        """All but the `reader`, whose packed weights cannot be copied: a copy packs its own."""
        return {name: value for name, value in vars(self).items() if name != "reader"}

    def predict(self, *args: Any, **options: Any) -> Iterator[Any]:
        """`predict(inputs)`: an answer for each, in order. Inputs are consumed lazily, some at a time."""
        raise NotImplementedError

    def __call__(self, inputs: Any, **options: Any) -> Any:
        """A list of inputs returns a list of answers; a single text, pair (a tuple) or row (a dict) its answer.

        A table (pandas, polars, pyarrow, a dict of columns) returns a table of the same library: its rows with the
        columns that `regard predict` adds. A `Path` is a file or folder, as for `regard predict`, and returns its rows
        as dicts. Options are those of `predict`; for a table also `text`, the column of the text.
        """
        if isinstance(inputs, Path):
            return self.task.rows_of(self, inputs, options)
        if memory.has_columns(inputs):
            with tempfile.TemporaryDirectory() as folder:
                file = memory.write(inputs, Path(folder), files=True)
                return memory.with_answers(inputs, self.task.rows_of(self, file, options))
        one = isinstance(inputs, str | tuple | dict)
        values = [inputs] if one else memory.as_list(inputs)
        answers = list(self.predict(self.task.as_inputs(self, values), **options))
        return answers[0] if one else answers


@dataclass(frozen=True)
class Classification:
    """The likeliest label and the probabilities of all."""

    label: str
    probabilities: dict[str, float]


class Output:
    """How a model's logits become answers: here, one class of several."""

    def __init__(self, labels: tuple[str, ...]):
        self.labels = labels

    def values(self, scores: Tensor) -> Tensor:
        """B L logits -> B L probabilities."""
        return scores.softmax(-1)

    def answer(self, values: np.ndarray) -> Any:
        """The answer to an input, from its L `values`."""
        label = self.labels[int(values.argmax())]
        return Classification(label, dict(zip(self.labels, values.tolist(), strict=True)))


class ClassPredictor(Predictor):
    """A predictor of classes, or of whatever its `output` makes of logits. A subclass computes the logits."""

    output: Output
    chunk = 256  # inputs read at a time

    @property
    def labels(self) -> tuple[str, ...]:
        return self.output.labels

    def probabilities(self, inputs: Any) -> np.ndarray:
        """N L, in the order of `labels`."""
        raise NotImplementedError

    def values(self, scores: Tensor) -> np.ndarray:
        return self.output.values(scores.double()).cpu().numpy()

    def predict(self, inputs: Iterable[Any]) -> Iterator[Any]:
        for some in chunks(inputs, self.chunk):
            yield from map(self.output.answer, self.probabilities(some))


def list_of_files(files: Any) -> Any:
    if isinstance(files, str | Path):
        raise ConfigError("expected a list of files, got one; write [file], in brackets")
    return files


def chunks(inputs: Iterable[Input], size: int) -> Iterator[list[Input]]:
    """Inputs in lists of at most `size`. A single text instead of a list, an easy mistake, is an error."""
    if isinstance(inputs, str):
        raise ConfigError("expected a list of inputs, got one text; write [text], in brackets")
    yield from in_groups(inputs, size)
