"""Forecasting: the mean by its squared error, quantiles by the pinball loss, in units of each column's spread.

NaN targets are gaps and do not count."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from regard.data.batch import Samples
from regard.objectives.base import Objective, evaluating


class ForecastLoss(Objective):
    name = "forecast"
    unit = "numbers"

    def count(self, batch: Samples) -> int:
        return batch.targets.numel() - int(batch.targets.isnan().sum())

    def loss_sum(self, model: Any, batch: Samples) -> Tensor:
        return self.device_loss(model, batch.targets, *batch.inputs)

    def device_loss(self, model: Any, future: Tensor, *inputs: Any) -> Tensor:
        miss = (future[..., None] - model(*inputs)) / model.spread[:, None]  # B H C 1+Q
        miss = miss.masked_fill(future.isnan()[..., None], 0.0)
        total = miss[..., 0].square().sum()
        if model.config.quantiles:
            total = total + pinball(miss[..., 1:], model.config.quantiles).sum()
        return total

    def held_out(self, model: Any, batches: Iterable[Samples]) -> dict[str, float]:
        """Squared and absolute error of the mean, over all windows, steps and columns; the share of values between the
        outer quantiles. The loss is the squared error alone, by which models are compared."""
        several = len(model.config.quantiles) > 1
        square, absolute, inside, count = 0.0, 0.0, 0, 0
        with evaluating(model):
            for batch in batches:
                forecast, future, there = model(*batch.inputs), batch.targets, ~batch.targets.isnan()
                miss, count = ((future - forecast[..., 0]) / model.spread)[there], count + int(there.sum())
                square, absolute = square + miss.square().sum().item(), absolute + miss.abs().sum().item()
                inside += int(((forecast[..., 1] <= future) & (future <= forecast[..., -1])).sum()) if several else 0
        return {"loss": square / count, "mae": absolute / count} | ({"inside": inside / count} if several else {})


def pinball(miss: Tensor, quantiles: tuple[float, ...]) -> Tensor:
    """Koenker and Bassett 1978: too low costs q, too high 1 - q; … Q, `miss` being truth minus forecast."""
    pairs = zip(quantiles, miss.unbind(-1), strict=True)  # host numbers: nothing is copied to the device
    return torch.stack([torch.maximum(q * x, (q - 1) * x) for q, x in pairs], -1)
