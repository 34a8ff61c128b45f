"""The learning rate as a pure function of the step. Steps count from 1, as in the papers."""

import math
from dataclasses import dataclass

from regard.config import unknown
from regard.errors import ConfigError

KINDS = ("noam", "inverse_sqrt", "cosine", "linear", "constant")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """`warmup` steps up in a straight line, then down as `kind` says."""

    kind: str = "cosine"
    warmup: int = 200

    def __post_init__(self):
        if self.kind not in KINDS:
            raise unknown("schedule", self.kind, KINDS)
        least = 1 if self.kind in ("noam", "inverse_sqrt") else 0
        if self.warmup < least:
            raise ConfigError(f"schedule.warmup is {self.warmup}; {self.kind} wants at least {least}")

    @property
    def ends(self) -> bool:
        """Whether the rate depends on how many steps there will be, once warm."""
        return self.kind in ("cosine", "linear")


def lr_at(schedule: Schedule, step: int, steps: int, width: int, peak: float) -> float:
    """The learning rate of a step.

    `peak` is the highest rate, except for noam, which it multiplies. `steps` may be 0 (not known yet) during warm-up,
    which does not depend on it.
    """
    warmup = schedule.warmup
    if schedule.kind == "noam":  # section 5.3, equation 3
        return peak * width**-0.5 * min(step**-0.5, step * warmup**-1.5)
    if step < warmup:
        return peak * step / warmup
    if schedule.kind == "inverse_sqrt":
        return peak * math.sqrt(warmup / step)
    if schedule.kind == "constant" or step == warmup:
        return peak
    assert steps, "only warm-up may run before the number of steps is known"
    done = min(1.0, (step - warmup) / max(1, steps - warmup))
    return peak * (1 - done if schedule.kind == "linear" else (1 + math.cos(math.pi * done)) / 2)
