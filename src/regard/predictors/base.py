"""The protocol of all predictors: inputs in, an answer for each, in order; and the answers that several tasks share."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from regard.errors import ConfigError

Input = TypeVar("Input")


class Predictor(Protocol):
    """A trained model, ready for use. `regard.load` returns one; its task says what an input is."""

    model: Any

    def predict(self, inputs: Iterable[Any], **options: Any) -> Iterator[Any]:
        """An answer for each input, in order. Inputs are read as answers are taken, some at a time."""
        ...


@dataclass(frozen=True)
class Classification:
    """The likeliest label and the probabilities of all."""

    label: str
    probabilities: dict[str, float]


class ClassPredictor:
    """A predictor of classes. A subclass computes the probabilities of some inputs."""

    labels: tuple[str, ...]
    chunk = 256  # inputs whose probabilities are computed at once

    def probabilities(self, inputs: Any) -> np.ndarray:
        """N L, in the order of `labels`."""
        raise NotImplementedError

    def predict(self, inputs: Iterable[Any]) -> Iterator[Classification]:
        for some in chunks(inputs, self.chunk):
            yield from self.classifications(self.probabilities(some))

    def classifications(self, probabilities: np.ndarray) -> list[Classification]:
        return [
            Classification(self.labels[int(row.argmax())], dict(zip(self.labels, row.tolist(), strict=True)))
            for row in probabilities
        ]


def list_of_files(files: Any) -> Any:
    if isinstance(files, str | Path):
        raise ConfigError("expected a list of files, got one; write [file], in brackets")
    return files


def chunks(inputs: Iterable[Input], size: int) -> Iterator[list[Input]]:
    """Some inputs at a time. A single text, which is easily passed instead of a list, is an error."""
    if isinstance(inputs, str):
        raise ConfigError("expected a list of inputs, got one text; write [text], in brackets")
    inputs = iter(inputs)
    while some := list(islice(inputs, size)):
        yield some
