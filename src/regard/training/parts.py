"""What the loop trains with, built by a task from a `Run`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from regard.objectives.base import Objective
from regard.training.baseline import Baseline
from regard.training.run import Run


class Batches(Protocol):
    """An endless iterator of batches, whose position can be saved and restored."""

    def __next__(self) -> Any: ...
    def skip(self) -> None: ...
    def state(self) -> dict[str, int]: ...
    def restore(self, state: dict[str, int], /) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Everything the loop needs; the model is on the device already."""

    run: Run
    model: nn.Module
    objective: Objective
    loader: Batches
    valid_batches: Callable[[], Iterable[Any]]
    metric: Callable[[Any], dict[str, float]] | None = None
    save_model: Callable[[Path, Any], None]
    baselines: Sequence[Baseline] = ()
    flops_per_target: float = 0.0  # 0: unknown, and the device's utilisation is not reported
    starts_fitted: bool = False  # whether the model may be kept as it is at step 0
