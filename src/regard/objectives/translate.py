"""Translation: predict each target token from the source and the target tokens before it."""

from collections.abc import Iterable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from regard.models.base import EncoderDecoder
from regard.objectives.base import Objective, evaluating, word_metrics
from regard.objectives.losses import (
    chunked_cross_entropy_sum,
    picked,
    plain_cross_entropy_sum,
    sampled_cross_entropy_sum,
)


class TranslateLoss(Objective):
    """Label-smoothed cross-entropy over the real target positions; padding never reaches the head.

    With `sampled`, training normalises over the tokens of the batch and that many others; validation over all.
    """

    name = "translate"

    def __init__(self, smoothing: float = 0.1, sampled: int = 0):
        self.smoothing, self.sampled = smoothing, sampled
        self.fixed_shapes = not sampled  # the size of a sample depends on the targets

    def count(self, batch: Any) -> int:
        return batch.targets_count

    def inputs(self, batch: Any) -> tuple[Any, ...]:
        """Source, its lengths (None: no padding), decoder inputs, and positions of the real targets."""
        return batch.source, None if batch.full_source else batch.source_lengths, batch.inputs, batch.chosen

    def targets(self, batch: Any) -> Tensor:
        """The real ones; of a fixed batch all, the others negative."""
        return picked(batch.labels, batch.chosen)

    def scored(self, model: EncoderDecoder, *inputs: Any) -> Tensor:
        source, lengths, begun, chosen = inputs
        return model.logits(picked(model(source, lengths, begun), chosen))

    def cross_entropy(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits, targets, reduction="sum", label_smoothing=self.smoothing, ignore_index=-1)

    def loss_sum(self, model: EncoderDecoder, batch: Any) -> Tensor:
        tensors = *self.inputs(batch), self.targets(batch)
        return self.device_loss(model, *tensors)

    def device_loss(
        self,
        model: EncoderDecoder,
        source: Tensor,
        lengths: Tensor | None,
        inputs: Tensor,
        chosen: Tensor | None,
        targets: Tensor,
    ) -> Tensor:
        x = picked(model(source, lengths, inputs), chosen)  # M D
        if self.sampled:
            return sampled_cross_entropy_sum(x, model.head, targets, self.sampled, self.smoothing)
        if model.bias is not None:
            return plain_cross_entropy_sum(x, model.head, targets, self.smoothing, model.bias)
        return chunked_cross_entropy_sum(x, model.head, targets, self.smoothing)

    def held_out(self, model: EncoderDecoder, batches: Iterable[Any]) -> dict[str, float]:
        """Cross-entropy per target token, without smoothing."""
        total, count = 0.0, 0
        with evaluating(model):
            for batch in batches:
                source, lengths, inputs, chosen = self.inputs(batch)
                x = picked(model(source, lengths, inputs), chosen)
                total += plain_cross_entropy_sum(x, model.head, self.targets(batch), bias=model.bias).item()
                count += self.count(batch)
        return word_metrics(total, count)
