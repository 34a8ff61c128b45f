"""Tagging: one label per word, predicted at its first token."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from regard.data.batch import Labelled
from regard.data.iob import BestTags
from regard.data.labelled import NONE
from regard.objectives.classify import ClassifyLoss, Scores
from regard.objectives.losses import picked


class TagLoss(ClassifyLoss):
    """Cross-entropy of the tags, over the first tokens of words; the head is not applied to others. Validation scores
    the best tags of each sentence."""

    name = "tag"
    unit = "words"

    def __init__(
        self,
        smoothing: float = 0.0,
        weights: Sequence[float] = (),
        scores: Scores | None = None,
        labels: Sequence[str] = (),
    ):
        super().__init__(smoothing, weights, scores)
        self.best_tags = BestTags(labels)

    def scored(self, model: Any, *inputs: Any) -> Tensor:
        """B T ids -> M labels, of the first tokens."""
        ids, lengths, sentences, chosen = inputs
        return model.scores(picked(model(ids, lengths, sentences), chosen))

    def targets(self, batch: Labelled) -> Tensor:
        return picked(batch.labels, batch.chosen)

    def places(self, batch: Labelled) -> np.ndarray:
        return np.repeat(batch.rows, (batch.host_labels != NONE).sum(1))

    def guess(self, logits: Tensor, places: np.ndarray) -> np.ndarray:
        ends = np.flatnonzero(np.diff(places)) + 1
        log_p = logits.log_softmax(-1).cpu().numpy()
        return np.concatenate([self.best_tags(words) for words in np.split(log_p, ends)])
