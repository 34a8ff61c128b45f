"""Classification: one label for a text or a pair of texts (a batch is `Labelled`), or for anything else (`Samples`)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batch import moved
from regard.data.labelled import NONE
from regard.objectives.base import Objective, evaluating

Scores = Callable[[np.ndarray, np.ndarray], dict[str, float]]  # true and predicted labels, each M


class ClassifyLoss(Objective):
    """Cross-entropy of the classes. `weights`, one per class, make rare ones count more; validation is unweighted."""

    name = "classify"
    unit = "texts"
    dynamic = True
    fixed_shapes = True

    def __init__(self, smoothing: float = 0.0, weights: Sequence[float] = (), scores: Scores | None = None):
        self.smoothing, self.weights, self.scores = smoothing, tuple(weights), scores
        self.brought: dict[torch.device, Tensor] = {}

    def count(self, batch: Any) -> int:
        return batch.count

    def logits(self, model: Any, batch: Any) -> Tensor:
        """The class logits of the targets that count: M labels."""
        return self.scored(model, *self.inputs(batch))

    def inputs(self, batch: Any) -> tuple[Any, ...]:
        return batch.ids, batch.lengths, batch.sentences, batch.chosen

    def scored(self, model: Any, *inputs: Any) -> Tensor:
        """B T ids -> M labels; here M = B: every text counts."""
        ids, lengths, sentences, _ = inputs
        return model.scores(model.summary(model(ids, lengths, sentences), lengths))

    def targets(self, batch: Any) -> Tensor:
        """The labels that count, M, in the order of `logits`."""
        return batch.labels

    def loss_sum(self, model: Any, batch: Any) -> Tensor:
        targets = self.targets(batch)
        return self.device_loss(model, targets, self.weight_on(targets.device), *self.inputs(batch))

    def weight_on(self, device: torch.device) -> Tensor | None:
        """The class weights on a device, copied once and without synchronising."""
        if self.weights and device not in self.brought:
            self.brought[device] = moved(torch.tensor(self.weights), device)
        return self.brought.get(device)

    def device_loss(self, model: Any, targets: Tensor, weight: Tensor | None, *inputs: Any) -> Tensor:
        return self.weighed(self.scored(model, *inputs).float(), targets, weight)

    def cross_entropy(self, logits: Tensor, targets: Tensor) -> Tensor:
        return self.weighed(logits, targets, self.weight_on(targets.device))

    def weighed(self, logits: Tensor, targets: Tensor, weight: Tensor | None) -> Tensor:
        how: Any = dict(reduction="sum", label_smoothing=self.smoothing, ignore_index=NONE)
        return F.cross_entropy(logits, targets, weight, **how)

    def held_out(self, model: Any, batches: Iterable[Any]) -> dict[str, float]:
        """Cross-entropy per label, accuracy, and `scores` of all labels in the order of the file."""
        total, true, guessed, rows = 0.0, [], [], []
        with evaluating(model):
            for batch in batches:
                logits, targets = self.logits(model, batch).float(), self.targets(batch)
                total += F.cross_entropy(logits, targets, reduction="sum", ignore_index=NONE).item()
                real = targets != NONE
                true.append(targets[real].cpu().numpy())
                rows.append(self.places(batch))
                guessed.append(self.guess(logits[real], rows[-1]))
        order = np.argsort(np.concatenate(rows), kind="stable")
        true, guessed = np.concatenate(true)[order], np.concatenate(guessed)[order]
        metrics = {"loss": total / max(1, len(true)), "accuracy": float((true == guessed).mean())}
        metrics |= self.scores(true, guessed) if self.scores else {}
        self.warning = getattr(self.scores, "warning", "")
        return metrics

    def places(self, batch: Any) -> np.ndarray:
        """Which text each label that counts belongs to, M."""
        return batch.rows

    def guess(self, logits: Tensor, places: np.ndarray) -> np.ndarray:
        """The predicted labels, M: M L logits of the texts `places`."""
        return logits.argmax(-1).cpu().numpy()


class ClassifySamples(ClassifyLoss):
    """One label for an image, a clip, a series or a row of a table."""

    unit = "samples"
    fixed_shapes = False

    def count(self, batch: Any) -> int:
        return len(batch)

    def inputs(self, batch: Any) -> tuple[Any, ...]:
        return batch.inputs

    def scored(self, model: Any, *inputs: Any) -> Tensor:
        """B labels."""
        return model.scores(model(*inputs))

    def targets(self, batch: Any) -> Tensor:
        return batch.targets


class ClassifyImages(ClassifySamples):
    """The label of an image or, if images are mixed, the shares of all labels, B L. Images have one size."""

    unit = "images"
    dynamic = False
    fixed_shapes = True


class ByCode:
    """A row of numbers for each code, kept on each device after its first use there."""

    def __init__(self, rows: np.ndarray):
        self.rows = rows.astype(np.float32)
        self.on: dict[torch.device, Tensor] = {}

    def __call__(self, codes: Tensor) -> Tensor:
        if codes.device not in self.on:
            self.on[codes.device] = moved(torch.tensor(self.rows), codes.device)
        return self.on[codes.device][codes]


def balanced_weights(counts: Sequence[int]) -> list[float]:
    """One weight per class, so that all classes count equally and the mean over the examples is 1."""
    return [sum(counts) / (len(counts) * n) for n in counts]
