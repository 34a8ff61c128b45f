"""Regression: a number for each example, by least squares."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.objectives.base import Objective, evaluating
from regard.objectives.classify import ByCode, ClassifyLoss


class RegressLoss(Objective):
    """Squared error, in units of the targets' standard deviation. A batch holds a code for each target; `values` are
    the numbers by code, and `examples` reads this type of batch."""

    name = "regress"
    dynamic = True

    def __init__(self, examples: ClassifyLoss, values: np.ndarray, mean: float = 0.0, std: float = 1.0):
        self.examples, self.unit, self.mean, self.std = examples, examples.unit, mean, std
        self.values = ByCode((values - mean) / std)

    def count(self, batch: Any) -> int:
        return self.examples.count(batch)

    def targets(self, batch: Any) -> Tensor:
        return self.values(self.examples.targets(batch))

    def loss_sum(self, model: Any, batch: Any) -> Tensor:
        return self.device_loss(model, self.targets(batch), *self.examples.inputs(batch))

    def device_loss(self, model: Any, targets: Tensor, *inputs: Any) -> Tensor:
        return (self.examples.scored(model, *inputs).float().squeeze(-1) - targets).square().sum()

    def held_out(self, model: Any, batches: Iterable[Any]) -> dict[str, float]:
        """The loss, R², and the mean absolute error in the target's own unit."""
        with evaluating(model):
            pairs = [(self.targets(b), self.examples.logits(model, b).float().squeeze(-1)) for b in batches]
        true, predicted = (torch.cat(x).cpu().double().numpy() for x in zip(*pairs, strict=True))
        errors, spread = true - predicted, float(true.var())
        r2 = {"r2": 1 - float((errors**2).mean()) / spread} if spread else {}  # undefined where all targets are equal
        return {"loss": float((errors**2).mean()), **r2, "mae": float(np.abs(errors).mean()) * self.std}
