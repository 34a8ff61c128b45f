"""Multi-label classification: any number of labels for each example."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.objectives.base import Objective, evaluating
from regard.objectives.classify import ByCode, ClassifyLoss


class MultiLabelLoss(Objective):
    """Binary cross-entropy, averaged over the labels. A batch holds a code for each set of labels; `sets` has a 0/1 row
    for each code, and `examples` reads this type of batch."""

    name = "multilabel"
    dynamic = True

    def __init__(self, examples: ClassifyLoss, sets: np.ndarray):
        self.examples, self.unit = examples, examples.unit
        self.sets = ByCode(sets)

    def count(self, batch: Any) -> int:
        return self.examples.count(batch)

    def targets(self, batch: Any) -> Tensor:
        """B L, 1 where the example has the label."""
        return self.sets(self.examples.targets(batch))

    def loss_sum(self, model: Any, batch: Any) -> Tensor:
        return self.device_loss(model, self.targets(batch), *self.examples.inputs(batch))

    def device_loss(self, model: Any, targets: Tensor, *inputs: Any) -> Tensor:
        logits = self.examples.scored(model, *inputs).float()
        return F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(-1).sum()

    def outputs(self, model: Any, batches: Iterable[Any]) -> tuple[Tensor, Tensor]:
        """N L targets and N L logits."""
        with evaluating(model):
            pairs = [(self.targets(b), self.examples.logits(model, b).float()) for b in batches]
        targets, logits = (torch.cat(x).cpu() for x in zip(*pairs, strict=True))
        return targets, logits

    def held_out(self, model: Any, batches: Iterable[Any]) -> dict[str, float]:
        """The loss, and F1 at a probability of 0.5."""
        targets, logits = self.outputs(model, batches)
        loss = float(F.binary_cross_entropy_with_logits(logits, targets))
        return {"loss": loss, **f1_scores(targets.numpy() > 0, logits.numpy() > 0)}


def f1_scores(true: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """F1 over all decisions (micro), and its mean over the labels (macro), of N L booleans."""
    from sklearn.metrics import f1_score

    kinds = ("micro", "macro")
    return {f"{kind}_f1": float(f1_score(true, predicted, average=kind, zero_division=0)) for kind in kinds}


def best_thresholds(true: np.ndarray, probabilities: np.ndarray) -> list[float]:
    """For each of L labels, the threshold with the best F1; 0.5 if the label never occurs.

    A threshold lies midway between two probabilities, so that rounding does not matter.
    """
    thresholds = []
    for has, p in zip(true.T > 0, probabilities.T, strict=True):
        order = np.argsort(-p, kind="stable")
        ranked, hits = p[order], np.cumsum(has[order])
        f1 = 2 * hits / (np.arange(1, len(p) + 1) + max(1, has.sum()))
        f1[:-1][ranked[:-1] == ranked[1:]] = -1  # a threshold cannot separate equal ones
        best = int(f1.argmax())
        below = ranked[best + 1] if best + 1 < len(ranked) else 0.0
        thresholds.append(float(ranked[best] + below) / 2 if has.any() else 0.5)
    return thresholds
