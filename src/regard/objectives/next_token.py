"""Language modelling: predict each token from those before it."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batch import Tokens
from regard.data.settings import NONE
from regard.models.base import LanguageModel
from regard.objectives.base import Objective, evaluating, word_metrics
from regard.objectives.losses import chunked_cross_entropy_sum, picked, plain_cross_entropy_sum


class NextToken(Objective):
    """Cross-entropy of the next token, over the targets that count: all of a text, the answers of a dialogue."""

    name = "lm"
    fixed_shapes = True
    compiled = False

    def __init__(self, smoothing: float = 0.0):
        self.smoothing = smoothing

    def count(self, batch: Tokens) -> int:
        return batch.count

    def inputs(self, batch: Tokens) -> tuple[Any, ...]:
        return batch.inputs, batch.documents, batch.chosen

    def targets(self, batch: Tokens) -> Tensor:
        return picked(batch.labels, batch.chosen)

    def scored(self, model: LanguageModel, *inputs: Any) -> Tensor:
        ids, documents, chosen = inputs
        return model.logits(picked(model(ids, documents), chosen))

    def cross_entropy(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits, targets, reduction="sum", label_smoothing=self.smoothing, ignore_index=NONE)

    def loss_sum(self, model: LanguageModel, batch: Tokens) -> Tensor:
        batch = batch.marked() if self.compiled and batch.counts is not None else batch
        return self.device_loss(model, batch.inputs, batch.labels, batch.chosen, batch.documents)

    def device_loss(
        self, model: LanguageModel, inputs: Tensor, targets: Tensor, chosen: Tensor | None, documents: Tensor | None
    ) -> Tensor:
        x, targets = picked(model(inputs, documents), chosen), picked(targets, chosen)  # M D, M
        return linear_cross_entropy(chunked_cross_entropy_sum, model, x, targets, smoothing=self.smoothing)

    def compile(self) -> None:
        super().compile()
        self.compiled = True

    def held_out(self, model: LanguageModel, batches: Iterable[Tokens]) -> dict[str, float]:
        """Cross-entropy per token over the whole validation text, in one deterministic pass."""
        total, count = torch.zeros((), dtype=torch.float64), 0
        with evaluating(model):
            for batch in batches:
                x = picked(model(batch.inputs, batch.documents), batch.chosen)
                targets = picked(batch.targets, batch.chosen)
                total = total.to(x.device) + linear_cross_entropy(plain_cross_entropy_sum, model, x, targets)
                count += batch.count
        return word_metrics(total.item(), count)


def linear_cross_entropy(
    how: Callable[..., Tensor], model: LanguageModel, x: Tensor, targets: Tensor, **settings
) -> Tensor:
    """The loss of M D states under the model's head; a head with a bias (recurrent models) uses the plain loss."""
    if model.bias is not None:
        return plain_cross_entropy_sum(x, model.head, targets, bias=model.bias, vocab=model.config.vocab, **settings)
    return how(x, model.head, targets, vocab=model.config.vocab, **settings)
