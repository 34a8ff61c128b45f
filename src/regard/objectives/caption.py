"""Captioning: predict each word from the image and the words before it."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from regard.data.batch import Samples
from regard.models.base import EncoderDecoder
from regard.objectives.losses import chunked_cross_entropy_sum, plain_cross_entropy_sum


class Caption:
    """Label-smoothed cross-entropy over the words of captions; what only fills them up does not count."""

    name = "caption"

    def __init__(self, smoothing: float = 0.1):
        self.smoothing = smoothing

    def count(self, batch: Samples) -> int:
        return int((batch.targets >= 0).sum())

    def loss_sum(self, model: EncoderDecoder, batch: Samples) -> Tensor:
        pixels, inputs = batch.inputs
        assert pixels is not None and inputs is not None
        return self.device_loss(model, pixels, inputs, batch.targets)

    def device_loss(self, model: EncoderDecoder, pixels: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        x = model(pixels, None, inputs)  # B T D
        return chunked_cross_entropy_sum(x.flatten(0, 1), model.head, targets.flatten(), self.smoothing)

    def compile(self) -> None:
        self.device_loss = torch.compile(self.device_loss, dynamic=False)

    @torch.no_grad()
    def held_out(self, model: EncoderDecoder, batches: Iterable[Samples]) -> dict[str, float]:
        """Cross-entropy per word, without smoothing."""
        training = model.training
        model.eval()
        total, count = 0.0, 0
        for batch in batches:
            pixels, inputs = batch.inputs
            assert pixels is not None and inputs is not None
            x = model(pixels, None, inputs).flatten(0, 1)
            total += plain_cross_entropy_sum(x, model.head, batch.targets.flatten()).item()
            count += self.count(batch)
        model.train(training)
        return {"loss": total / count, "perplexity": math.exp(min(total / count, 700.0))}
