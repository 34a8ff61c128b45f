"""Translation: predict each target token from the source and the target tokens before it."""

from collections.abc import Iterable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from regard.data.batch import Pairs
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

    def count(self, batch: Any) -> int:
        return batch.targets_count

    def tensors(self, batch: Any) -> tuple[Any, ...]:
        """Source, its lengths (None: no padding), decoder inputs, positions of the real targets, and those targets."""
        lengths = None if batch.full_source else batch.source_lengths
        return batch.source, lengths, batch.inputs, batch.chosen, picked(batch.target, batch.chosen)

    def loss_sum(self, model: EncoderDecoder, batch: Any) -> Tensor:
        return self.device_loss(model, *self.tensors(batch))

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
                source, lengths, inputs, chosen, targets = self.tensors(batch)
                x = picked(model(source, lengths, inputs), chosen)
                total += plain_cross_entropy_sum(x, model.head, targets, bias=model.bias).item()
                count += self.count(batch)
        return word_metrics(total, count)


class ConsistentTranslate(TranslateLoss):
    """R-Drop (Liang et al. 2021): two passes with different dropout must agree.

    ½ (CE₁ + CE₂ + α · ½ (KL(p₁‖p₂) + KL(p₂‖p₁))), with α = `weight`.
    """

    def __init__(self, smoothing: float = 0.1, weight: float = 5.0):
        super().__init__(smoothing)
        self.weight = weight

    def loss_sum(self, model: EncoderDecoder, batch: Pairs) -> Tensor:
        return self.device_loss(model, *self.tensors(batch.twice()))

    def device_loss(
        self,
        model: EncoderDecoder,
        source: Tensor,
        lengths: Tensor | None,
        inputs: Tensor,
        chosen: Tensor | None,
        targets: Tensor,
    ) -> Tensor:
        x = picked(model(source, lengths, inputs), chosen)  # 2M D
        logits = model.logits(x).float()
        words = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=self.smoothing)
        p, q = logits.log_softmax(-1).chunk(2)
        apart = ((p.exp() - q.exp()) * (p - q)).sum()  # KL(p‖q) + KL(q‖p)
        return 0.5 * (words + self.weight * 0.5 * apart)
