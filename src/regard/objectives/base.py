"""What the training loop asks of an objective."""

from collections.abc import Iterable
from typing import Any, Protocol

from torch import Tensor


class Objective(Protocol):
    """Where an objective has a `warning`, it is about the model that was evaluated last; "" for none."""

    name: str

    def count(self, batch: Any) -> int:
        """How many targets the batch holds, known on the host."""
        ...

    def loss_sum(self, model: Any, batch: Any) -> Tensor:
        """The training loss summed over the batch's targets: the loop divides once, over micro-batches and ranks."""
        ...

    def compile(self) -> None:
        """From now on what `loss_sum` does on the device runs compiled."""
        ...

    def held_out(self, model: Any, batches: Iterable[Any]) -> dict[str, float]:
        """One deterministic pass over held-out batches: "loss" per target, and what else the task reports."""
        ...
