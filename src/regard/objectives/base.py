"""The interface of an objective to the training loop."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class Objective:
    """Returns sums and counts: the loop divides once, over micro-batches and ranks, so padding cannot bias the loss."""

    name = ""
    unit = ""  # the name of a target, if not a token
    warning = ""  # about the last evaluated model
    dynamic: bool | None = None  # whether to compile for dynamic shapes; None: torch decides
    fixed_shapes = False  # whether a step of `marked` batches of one shape can be recorded: see training/recorded.py

    def count(self, batch: Any) -> int:
        """The number of targets in the batch, without synchronising."""
        raise NotImplementedError

    def tokens(self, batch: Any) -> int:
        """The count for measuring speed: targets, unless the model reads more tokens than that."""
        return self.count(batch)

    def loss_sum(self, model: Any, batch: Any) -> Tensor:
        """The training loss summed over the batch's targets."""
        raise NotImplementedError

    def inputs(self, batch: Any) -> tuple[Any, ...]:
        """The arguments of `scored`."""
        raise NotImplementedError

    def scored(self, model: Any, *inputs: Any) -> Tensor:
        """The logits of the targets, M V: a function of tensors. Only of objectives that choose among V classes."""
        raise NotImplementedError

    def targets(self, batch: Any) -> Tensor:
        """The targets, M, in the order of the logits; negative ones do not count."""
        raise NotImplementedError

    def cross_entropy(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The training loss of M V logits, summed."""
        raise NotImplementedError

    def device_loss(self, *args: Any, **kwargs: Any) -> Any:
        """The part of `loss_sum` on the device: a function of tensors, which can be compiled."""
        raise NotImplementedError

    def compile(self) -> None:
        """Compile model, head and loss as one graph."""
        self.device_loss = torch.compile(self.device_loss, dynamic=self.dynamic)

    def held_out(self, model: Any, batches: Iterable[Any]) -> dict[str, float]:
        """One deterministic pass over the validation set: "loss" per target, and the task's other scores."""
        raise NotImplementedError


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without gradients and dropout; restores the mode afterwards."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def word_metrics(total: float, count: int) -> dict[str, float]:
    """Cross-entropy per token, and its perplexity."""
    return {"loss": total / count, "perplexity": math.exp(min(total / count, 700.0))}
