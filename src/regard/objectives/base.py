"""What the training loop asks of an objective."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class Objective:
    """Sums and counts: the loop divides once, over micro-batches and ranks, so padding cannot bend the loss."""

    name = ""
    unit = ""  # what a target is, where that is not a token
    warning = ""  # about the model that was evaluated last
    dynamic: bool | None = None  # whether the compiled loss is made for any shape; None: torch decides

    def count(self, batch: Any) -> int:
        """How many targets the batch holds, known on the host."""
        raise NotImplementedError

    def tokens(self, batch: Any) -> int:
        """What speed is measured in: targets, unless only some of the tokens read are."""
        return self.count(batch)

    def loss_sum(self, model: Any, batch: Any) -> Tensor:
        """The training loss summed over the batch's targets."""
        raise NotImplementedError

    def device_loss(self, *args: Any, **kwargs: Any) -> Any:
        """What `loss_sum` computes on the device, of tensors alone."""
        raise NotImplementedError

    def compile(self) -> None:
        """From now on model, head and loss run as one compiled graph."""
        self.device_loss = torch.compile(self.device_loss, dynamic=self.dynamic)

    def held_out(self, model: Any, batches: Iterable[Any]) -> dict[str, float]:
        """One deterministic pass over the validation set: "loss" per target, and what else the task reports."""
        raise NotImplementedError


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without gradients and dropout; then the mode of before."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def word_metrics(total: float, count: int) -> dict[str, float]:
    """Cross-entropy per word, and the perplexity that it amounts to."""
    return {"loss": total / count, "perplexity": math.exp(min(total / count, 700.0))}
