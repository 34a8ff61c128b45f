"""Tagging: one label per word, predicted at its first token."""

from typing import Any

import numpy as np
from torch import Tensor

from regard.data.batch import Labelled
from regard.data.labelled import NONE
from regard.objectives.classify import ClassifyLoss
from regard.objectives.losses import picked


class TagLoss(ClassifyLoss):
    """Cross-entropy of the tags, over the first tokens of words; the head is not applied to others."""

    name = "tag"
    unit = "words"

    def scored(self, model: Any, *inputs: Any) -> Tensor:
        """B T ids -> M labels, of the first tokens."""
        ids, lengths, sentences, chosen = inputs
        return model.scores(picked(model(ids, lengths, sentences), chosen))

    def targets(self, batch: Labelled) -> Tensor:
        return picked(batch.labels, batch.chosen)

    def places(self, batch: Labelled) -> np.ndarray:
        return np.repeat(batch.rows, (batch.host_labels != NONE).sum(1))
