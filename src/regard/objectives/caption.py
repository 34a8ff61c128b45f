"""Captioning: predict each word from the image and the words before it."""

from typing import Any

from regard.data.batch import Samples
from regard.objectives.translate import TranslateLoss


class CaptionLoss(TranslateLoss):
    """Translation from pixels: images are all of one size, and padding of captions is marked by -1."""

    name = "caption"
    dynamic = False

    def count(self, batch: Samples) -> int:
        return int((batch.targets >= 0).sum())

    def tensors(self, batch: Samples) -> tuple[Any, ...]:
        pixels, inputs = batch.inputs
        return pixels, None, inputs, None, batch.targets.flatten()
