"""Contrastive learning from pairs: a text should be closer to its own second text than to the others of its batch."""

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn.masks import pooled
from regard.objectives.base import Objective, evaluating

SHARPNESS = 20.0  # inverse temperature of the cosines; 1/0.05 as in Gao et al. 2021


class ContrastLoss(Objective):
    """Van den Oord et al. 2018, equation 4, in both directions; `pooling` turns a text's states into one vector."""

    name = "contrast"
    unit = "pairs"
    dynamic = True

    def __init__(self, pooling: str = "mean"):
        self.pooling = pooling

    def count(self, batch: Any) -> int:
        return len(batch.rows)

    def vectors(self, model: Any, batch: Any) -> tuple[Tensor, Tensor]:
        """B D each, unit vectors."""
        first, sizes, second, second_sizes = batch.inputs
        sides = ((first, sizes), (second, second_sizes))
        one, two = (pooled(model(ids, lengths), lengths, self.pooling).float() for ids, lengths in sides)
        return F.normalize(one, dim=-1), F.normalize(two, dim=-1)

    def loss_sum(self, model: Any, batch: Any) -> Tensor:
        return contrast(*self.vectors(model, batch))

    def held_out(self, model: Any, batches: Iterable[Any]) -> dict[str, float]:
        """The loss over all validation pairs, and how often a text's own second text is the closest of all."""
        with evaluating(model):
            sides = zip(*(self.vectors(model, batch) for batch in batches), strict=True)
            one, two = (torch.cat(side) for side in sides)
            right = (one @ two.mT).argmax(1) == torch.arange(len(one), device=one.device)
            return {"loss": float(contrast(one, two)) / len(one), "accuracy": float(right.float().mean())}


def contrast(one: Tensor, two: Tensor) -> Tensor:
    """The loss summed over pairs, the mean of both directions."""
    scores, own = SHARPNESS * one @ two.mT, torch.arange(len(one), device=one.device)
    return (F.cross_entropy(scores, own, reduction="sum") + F.cross_entropy(scores.mT, own, reduction="sum")) / 2
