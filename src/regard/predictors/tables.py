"""A trained classifier of rows at work."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.config import unknown
from regard.data.features import encode, read_columns, unlike_training
from regard.predictors.labeller import Answer


class RowClassifier:
    """Rows of a table, by column name, to labels."""

    def __init__(self, model: Any, folder: Path, device: str = "cpu"):
        self.model, self.device = model.to(device).eval(), torch.device(device)
        self.labels: tuple[str, ...] = model.config.labels
        self.label, self.columns = read_columns(folder)

    def unlike_training(self, rows: Sequence[Mapping[str, str]]) -> list[str]:
        """What of these rows it cannot use as it learned to, in words."""
        return unlike_training(self.columns, rows)

    @torch.inference_mode()
    def probabilities(self, rows: Sequence[Mapping[str, str]] | np.ndarray) -> np.ndarray:
        """N L, in the order of `labels`. A column that a row does not have is missing; others than ours are unused.
        Rows may be numbers already, N F."""
        features = rows if isinstance(rows, np.ndarray) else encode(self.columns, rows)
        x = torch.from_numpy(features).to(self.device)
        return self.model.scores(self.model(x)).double().softmax(-1).cpu().numpy()

    def classify(self, rows: Sequence[Mapping[str, str]]) -> list[Answer]:
        """The label of each row."""
        names = [c.name for c in self.columns]
        for row in rows:
            for name in row:
                if name not in names:
                    raise unknown("column", name, names)
        return [
            Answer(self.labels[int(p.argmax())], dict(zip(self.labels, p.tolist(), strict=True)))
            for p in self.probabilities(rows)
        ]
