"""Captioning: predict each token from the image and the tokens before it."""

from typing import Any

from torch import Tensor

from regard.data.batch import Samples
from regard.objectives.translate import TranslateLoss


class CaptionLoss(TranslateLoss):
    """Translation from pixels: images have one size, and padding of captions is -1."""

    name = "caption"
    dynamic = False

    def count(self, batch: Samples) -> int:
        return int((batch.targets >= 0).sum())

    def inputs(self, batch: Samples) -> tuple[Any, ...]:
        pixels, begun = batch.inputs
        return pixels, None, begun, None

    def targets(self, batch: Samples) -> Tensor:
        return batch.targets.flatten()
