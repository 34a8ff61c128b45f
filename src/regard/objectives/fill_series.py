"""Masked pre-training of series: some points hide their value, and the model tells it from the others."""

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batch import Samples
from regard.models.series import norm, real_points

FAR = 1.0  # spreads: beyond it a miss counts by its size, not by its square (Huber 1964), as outliers are many


class FillSeries:
    """Devlin et al. 2019's idea for numbers. The last of a batch's inputs says which points are hidden."""

    name = "fill-series"
    unit = "points"

    def count(self, batch: Samples) -> int:
        return int(batch.targets.sum())

    def loss_sum(self, model: Any, batch: Samples) -> Tensor:
        """Where patches overlap, or leave points out, the mean over the places asked counts for every hidden point."""
        loss, _, asked = self.misses(model, *batch.inputs)
        return loss * batch.targets.sum() / asked.clamp(min=1)

    def misses(self, model: Any, times: Any, values: Any, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Huber's loss summed over the hidden points, that of always guessing the band's mean, and their count."""
        lengths, hidden = rest[2], rest[-1]
        real, c = real_points(values, lengths), model.config
        kinds = model.tokens.kinds(values, rest[1])
        told = model.filled(model.states(times, values, *rest)[0]).float()  # B N P
        truth = self.patches(norm(values, kinds, real & ~hidden)[0], c).clamp(-10, 10)
        asked = self.patches(hidden & real, c)
        loss = F.huber_loss(told, truth, reduction="none", delta=FAR)
        plain = F.huber_loss(torch.zeros_like(truth), truth, reduction="none", delta=FAR)
        return (loss * asked).sum(), (plain * asked).sum(), asked.sum()

    @staticmethod
    def patches(x: Tensor, c: Any) -> Tensor:
        """B T -> B N P."""
        return F.pad(x, (0, max(0, c.patch - x.size(1)))).unfold(1, c.patch, c.stride)

    def compile(self) -> None:
        self.misses = torch.compile(self.misses, dynamic=True)

    @torch.no_grad()
    def held_out(self, model: Any, batches: Iterable[Samples]) -> dict[str, float]:
        """The loss of a hidden point, and that of guessing the mean of its band, which is to be beaten."""
        training = model.training
        model.eval()
        total, plain, count = 0.0, 0.0, 0
        for batch in batches:
            loss, naive, points = self.misses(model, *batch.inputs)
            total, plain, count = total + loss.item(), plain + naive.item(), count + int(points)
        model.train(training)
        return {"loss": total / max(1, count), "of_the_mean": plain / max(1, count)}
