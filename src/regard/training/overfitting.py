"""Whether a model overfits: training and validation loss, compared during a run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from regard.training.run import Run

RISES = 2  # evaluations after the best one before we warn: one may be noise
RISEN = 1.02  # times the best validation loss that the last one must reach


Point = tuple[int, float, float]  # of an evaluation: its step, the mean training loss since the one before, its loss


@dataclass
class Curve:
    """The first, the best and the last evaluation, and how many came after the best."""

    first: Point | None = None
    best: Point | None = None
    last: Point | None = None
    since_best: int = 0
    losses: list[float] = field(default_factory=list)  # of training, since the last evaluation

    def add(self, event: Mapping[str, Any]) -> None:
        if event.get("final"):
            return
        if isinstance(loss := event.get("loss"), float) and math.isfinite(loss):
            self.losses.append(loss)
        if isinstance(valid := event.get("held_out_loss"), float) and math.isfinite(valid) and self.losses:
            self.last, self.since_best = (event["step"], mean(self.losses), valid), self.since_best + 1
            self.losses, self.first = [], self.first or self.last
            if self.best is None or valid < self.best[2]:
                self.best, self.since_best = self.last, 0


def what_next(curve: Curve, run: Run, folder: Path, seconds: float, kept: str = "") -> str:
    """Advice for a model that learned too little: more time if its training loss fell, else a lower rate."""
    if kept == "step 0":
        return "Training did not improve the model, which is kept as it started; more data may help"
    if curve.first and curve.last and curve.first is not curve.last and curve.last[1] >= curve.first[1]:
        return f"Its training loss did not fall; train again with a lower rate: --set optim.lr={run.optim.lr / 4:.2g}"
    if overfitting(curve, run):
        return "It overfits: use more data"
    minutes = max(1, math.ceil(4 * seconds / 60))
    return f"Its training loss was still falling; train longer: regard train --resume {folder} --minutes {minutes}"


def overfitting(curve: Curve, run: Run) -> str:
    """The warning when the validation loss rises while the training loss falls; "" for a run that does not overfit."""
    if curve.best is None or curve.last is None:
        return ""
    (step, trained, low), (_, training, high) = curve.best, curve.last
    if curve.since_best < RISES or high < RISEN * abs(low) or training >= trained:
        return ""
    dropout = getattr(run.model, "dropout", None)
    more = "" if dropout is None else f", or --set model.dropout={min(0.5, dropout + 0.1):g}"
    return (
        f"OVERFITTING: since step {step} the validation loss rose from {digits(low)} to {digits(high)} while the "
        f"training loss fell from {digits(trained)} to {digits(training)}; the best model so far is kept. Use more "
        f"data, or type --set patience=2 to stop sooner{more}"
    )


def digits(loss: float) -> str:
    """Three decimals, or three significant digits for a smaller loss."""
    return f"{loss:.3f}" if abs(loss) >= 0.1 else f"{loss:.3g}"
