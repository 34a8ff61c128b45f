"""Masked pre-training of series: the values of some points are hidden, and predicted from the others."""

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batch import Samples
from regard.models.series import norm, real_points
from regard.objectives.base import Objective, evaluating

FAR = 1.0  # spreads; a larger error counts linearly, not squared (Huber 1964): outliers are common


class FillSeriesLoss(Objective):
    """Devlin et al. 2019's idea for numbers. The last of a batch's inputs marks the hidden points."""

    name = "fill-series"
    unit = "points"
    dynamic = True

    def count(self, batch: Samples) -> int:
        return int(batch.targets.sum())

    def loss_sum(self, model: Any, batch: Samples) -> Tensor:
        """The mean over predicted points times the hidden ones: patches may overlap, or leave points out."""
        loss, _, predicted = self.device_loss(model, *batch.inputs)
        return loss * batch.targets.sum() / predicted.clamp(min=1)

    def device_loss(self, model: Any, times: Any, values: Any, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Huber's loss summed over the hidden points, that of always predicting the band's mean, and their count."""
        lengths, hidden = rest[2], rest[-1]
        real, c = real_points(values, lengths), model.config
        kinds = model.tokens.kinds(values, rest[1])
        filled = model.filled(model.states(times, values, *rest)[0]).float()  # B N P
        truth = self.patches(norm(values, kinds, real & ~hidden)[0], c).clamp(-10, 10).float()
        counts = self.patches(hidden & real, c)
        loss = F.huber_loss(filled, truth, reduction="none", delta=FAR)
        plain = F.huber_loss(torch.zeros_like(truth), truth, reduction="none", delta=FAR)
        return (loss * counts).sum(), (plain * counts).sum(), counts.sum()

    @staticmethod
    def patches(x: Tensor, c: Any) -> Tensor:
        """B T -> B N P."""
        return F.pad(x, (0, max(0, c.patch - x.size(1)))).unfold(1, c.patch, c.stride)

    def held_out(self, model: Any, batches: Iterable[Samples]) -> dict[str, float]:
        """The loss per hidden point, and the baseline: that of predicting the mean of its band."""
        total, plain, count = 0.0, 0.0, 0
        with evaluating(model):
            for batch in batches:
                loss, naive, points = self.device_loss(model, *batch.inputs)
                total, plain, count = total + loss.item(), plain + naive.item(), count + int(points)
        return {"loss": total / max(1, count), "of_the_mean": plain / max(1, count)}
