"""Whether a model still learns what carries over: losses of training and validation, compared as they go."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from regard.train.run import Run

RISES = 2  # evaluations after the best one before we say so: one may be noise
RISEN = 1.02  # how far above the best validation loss the last one is


@dataclass
class Curve:
    """By evaluation: its step, the mean training loss since the one before, and the validation loss."""

    points: list[tuple[int, float, float]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)  # of training, since the last evaluation

    def add(self, event: Mapping[str, Any]) -> None:
        if event.get("final"):
            return
        if isinstance(loss := event.get("loss"), float) and math.isfinite(loss):
            self.losses.append(loss)
        if isinstance(valid := event.get("held_out_loss"), float) and math.isfinite(valid) and self.losses:
            self.points.append((event["step"], mean(self.losses), valid))
            self.losses = []


def overfitting(curve: Curve, run: Run) -> str:
    """What to say when the validation loss rises while the training loss falls; "" for a run that does not overfit."""
    if not curve.points:
        return ""
    best = min(range(len(curve.points)), key=lambda i: curve.points[i][2])
    (step, trained, low), (_, training, high) = curve.points[best], curve.points[-1]
    if len(curve.points) - 1 - best < RISES or high < RISEN * abs(low) or training >= trained:
        return ""
    dropout = getattr(run.model, "dropout", None)
    more = "" if dropout is None else f", or --set model.dropout={min(0.5, dropout + 0.1):g}"
    return (
        f"OVERFITTING: since step {step} the validation loss rose from {low:.3f} to {high:.3f} while the training loss "
        f"fell from {trained:.3f} to {training:.3f}; the best model so far is kept. Give more data, or type "
        f"--set patience=2 to stop sooner{more}"
    )
