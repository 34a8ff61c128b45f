"""What a `Case` of a model holds, and what all cases share."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.batch import Batch, Samples
from regard.models import build
from regard.objectives.base import Objective

VOCAB, PAD, EOS = 23, 22, 0
LABELS = ("a", "b", "c")
Inputs = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """`inputs` are what the model is called with, each of B rows or None; floats are float64."""

    config: Any
    inputs: Inputs
    forward: Callable[..., Tensor]  # the model and its inputs -> B … logits, scores or forecasts
    shape: tuple[int, ...]  # of that
    objective: Objective
    batch: Batch  # of the same rows, for the objective
    lengths: tuple[Any, ...] = (slice(None),) * 3  # what counts of the outputs of each row
    alone: Callable[[Inputs, int], Inputs] = lambda inputs, b: tuple(row(x, b) for x in inputs)  # without padding
    classes: int = 0  # of which an untrained model guesses one; 0: its loss says nothing
    first_loss: tuple[float, float] = (-0.1, 0.8)  # above log(classes): logits with a spread of 1 cost half a nat
    words: int | None = None  # which of the inputs are ids of which a position sees only those before it
    decodes: bool = False  # by `begin` and `step`
    looks: int = 0  # calls of an attention
    hidden: tuple[int, int] | None = None  # a row, and the first of its keys that is padding
    shake: float = 2.0
    prepare: Callable[[nn.Module], None] = field(default=lambda model: None)

    def model(self, shake: Callable[..., nn.Module]) -> nn.Module:
        """Matrices scaled up, in float64, so that a wrong path shows."""
        model = build(self.config)
        self.prepare(model)
        return shake(model, self.shake).double().eval()


def row(x: Tensor | None, b: int, n: Any = None) -> Tensor | None:
    """Row b of a batch, up to n."""
    return None if x is None else x[b : b + 1] if n is None or x.ndim < 2 else x[b : b + 1, :n]


def floats(thing: Any) -> Any:
    """The same in float32: a tensor, a tuple of them, or a batch."""
    if isinstance(thing, Tensor):
        return thing.float() if thing.is_floating_point() else thing
    if isinstance(thing, tuple):
        return tuple(map(floats, thing))
    if isinstance(thing, Batch):
        return replace(thing, **{f.name: floats(getattr(thing, f.name)) for f in fields(thing)})
    return thing


def words(model: nn.Module, *inputs: Any) -> Tensor:
    return model.logits(model(*inputs))


def scores(model: nn.Module, *inputs: Any) -> Tensor:
    return model.scores(model(*inputs))


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


CLASSES = torch.tensor([0, 2, 1])


def samples(*inputs: Any, targets: Tensor = CLASSES) -> Batch:
    return Samples(inputs, targets, np.arange(3))
