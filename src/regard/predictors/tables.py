"""Predict the class of table rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.config import unknown
from regard.data.features import encode, read_columns, unlike_training
from regard.data.skipped import Check
from regard.data.tables import DataTable
from regard.predictors.base import Classification, ClassPredictor, Output


class TableClassifier(ClassPredictor):
    """Rows of a table to labels; an input is a row by column name."""

    family, chunk = "table", 4096

    def __init__(self, model: Any, folder: Path, device: str = "cpu"):
        self.model, self.device = model.to(device).eval(), torch.device(device)
        self.output = Output(model.config.labels)
        self.label, self.columns = read_columns(folder)

    def checks(self, table: DataTable) -> dict[str, Check]:
        """Checks of the model's columns in the table: numbers must be numbers, or missing."""
        numbers = [c for c in self.columns if c.name in table.columns and not c.values]
        return {c.name: c.fault for c in numbers if not table.is_numeric(c.name)}

    def unlike_training(self, rows: Sequence[Mapping[str, str]]) -> list[str]:
        """Notes on how these rows differ from the training data."""
        return unlike_training(self.columns, rows)

    @torch.inference_mode()
    def probabilities(self, inputs: Any) -> np.ndarray:
        """N L, in the order of `labels`, for rows by column name or N F numbers. Absent columns count as missing;
        unknown ones are ignored."""
        encoded = isinstance(inputs, np.ndarray) or (len(inputs) > 0 and isinstance(inputs[0], np.ndarray))
        x = torch.from_numpy(np.asarray(inputs) if encoded else encode(self.columns, inputs)).to(self.device)
        return self.values(self.model.scores(self.model(x)))

    def classify(self, rows: Sequence[Mapping[str, str]]) -> list[Classification]:
        """The label of each row; an unknown column is an error."""
        self.check_columns(rows)
        return list(self.predict(rows))

    def check_columns(self, rows: Sequence[Mapping[str, str]]) -> None:
        names = [c.name for c in self.columns]
        for name in {name for row in rows for name in row if name not in names}:
            raise unknown("column", name, names)
