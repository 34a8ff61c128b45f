"""Cross-entropy with more to learn from than the targets: other models, and the model's own other pass."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.objectives.base import Objective


class Regularised(Objective):
    """The cross-entropy of another objective, `own`, with one or both of

    - distillation (Hinton et al. 2015): a `share` of it is the cross-entropy with the mean of the teachers'
      probabilities, at the same positions;
    - R-Drop (Liang et al. 2021): two passes with different dropout must agree, weighted by `consistency` = α:
      ½ (CE₁ + CE₂ + α · ½ (KL(p₁‖p₂) + KL(p₂‖p₁))).
    """

    def __init__(
        self, own: Objective, consistency: float = 0.0, teachers: Sequence[nn.Module] = (), share: float = 0.5
    ):
        self.own, self.consistency, self.teachers, self.share = own, consistency, list(teachers), share
        self.name, self.unit, self.dynamic, self.fixed_shapes = own.name, own.unit, own.dynamic, own.fixed_shapes
        for teacher in self.teachers:
            teacher.eval().requires_grad_(False)

    def count(self, batch: Any) -> int:
        return self.own.count(batch)

    def tokens(self, batch: Any) -> int:
        return self.own.tokens(batch)

    def loss_sum(self, model: Any, batch: Any) -> Tensor:
        taught = None
        if self.teachers:
            with torch.no_grad():
                taught = self.taught(*self.own.inputs(batch))
        passes = batch.twice() if self.consistency else batch
        return self.device_loss(model, taught, self.own.targets(passes), *self.own.inputs(passes))

    def taught(self, *inputs: Any) -> Tensor:
        """The mean of the teachers' probabilities, M V."""
        mean: Any = sum(self.own.scored(teacher, *inputs).float().softmax(-1) for teacher in self.teachers)
        return mean / len(self.teachers)

    def device_loss(self, model: Any, taught: Tensor | None, targets: Tensor, *inputs: Any) -> Tensor:
        logits = self.own.scored(model, *inputs).float()
        loss, passes = self.own.cross_entropy(logits, targets), 2 if self.consistency else 1
        log_p = logits.log_softmax(-1)
        counts = (targets >= 0 if targets.ndim == 1 else targets[:, 0] >= 0).float()  # B L: shares of mixed images
        if taught is not None:
            apart = -(taught.repeat(passes, 1) * log_p).sum(-1)
            loss = (1 - self.share) * loss + self.share * (apart * counts).sum()
        if self.consistency:
            p, q = log_p.chunk(2)
            apart = ((p.exp() - q.exp()) * (p - q)).sum(-1)  # KL(p‖q) + KL(q‖p)
            loss = loss + self.consistency / 2 * (apart * counts[: len(p)]).sum()
        return loss / passes

    def held_out(self, model: Any, batches: Iterable[Any]) -> dict[str, float]:
        """As without either."""
        scores = self.own.held_out(model, batches)
        self.warning = self.own.warning
        return scores
