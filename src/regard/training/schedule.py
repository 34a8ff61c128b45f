"""The learning rate as a pure function of the step. Steps count from 1, as in the papers."""

import math

from regard.training.settings import Schedule


def lr_at(schedule: Schedule, step: int, steps: int, width: int, peak: float) -> float:
    """The learning rate of a step.

    `peak` is the highest rate; noam's is multiplied by it. While `steps` is 0 (not known yet), the rate stays at the
    peak after warm-up.
    """
    warmup = schedule.warmup
    if schedule.kind == "noam":  # section 5.3, equation 3
        return peak * width**-0.5 * min(step**-0.5, step * warmup**-1.5)
    if step < warmup:
        return peak * step / warmup
    if schedule.kind == "inverse_sqrt":
        return peak * math.sqrt(warmup / step)
    if schedule.kind == "constant" or step == warmup or not steps:
        return peak
    done = min(1.0, (step - warmup) / max(1, steps - warmup))
    return peak * (1 - done if schedule.kind == "linear" else (1 + math.cos(math.pi * done)) / 2)
