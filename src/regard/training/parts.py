"""What the loop trains with, made by a task from one Run."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from regard.objectives.base import Objective
from regard.training.baseline import Baseline
from regard.training.run import Run


class Batches(Protocol):
    """An endless supply that knows where it is."""

    def __next__(self) -> Any: ...
    def skip(self) -> None: ...
    def state(self) -> dict[str, int]: ...
    def restore(self, state: dict[str, int], /) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Everything the loop asks for; the model is on the device already."""

    run: Run
    model: nn.Module
    objective: Objective
    loader: Batches
    valid_batches: Callable[[], Iterable[Any]]
    metric: Callable[[Any], dict[str, float]] | None = None
    save_model: Callable[[Path, Any], None]
    baselines: Sequence[Baseline] = ()
    flops_per_target: float = 0.0  # 0: not known, and then the device's utilisation is not reported
