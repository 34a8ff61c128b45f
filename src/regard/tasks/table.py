"""Table: a class for each row of numbers and categories, by an MLP."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.settings import TableConfig
from regard.tasks import presets
from regard.tasks.base import Arch, Card, Say
from regard.tasks.classes import ClassesOfSamples

if TYPE_CHECKING:
    from regard.train.run import Run

INPUTS = 32  # until the table is read


class Table(ClassesOfSamples):
    name = "table"
    summary = "a class for each row of numbers and categories"
    settings = TableConfig
    options = ("valid", "label")
    data_help = "A table, its header in the first row."
    examples = ("regard train table --data students.csv --label passed",)
    archs = {"mlp": Arch("mlp")}
    presets = presets.ROWS
    card = Card(pipeline="tabular-classification", title="A classifier of rows", use='classify {} "column=value, …"')
    valid_batch = 1024

    def model_settings(self, data: Any, arch: str, device: str, settings: dict[str, Any]) -> dict[str, Any]:
        return {"shape": (INPUTS,)}

    def read(self, run: "Run", say: Say) -> Any:
        from regard.data.features import load_table

        data = load_table(run.data)
        say(data.report())
        return data

    def fit(self, run: "Run", data: Any) -> "Run":
        mean, std = data.spread()
        shape = (data.train.features.shape[1],)
        model = dataclasses.replace(run.model, shape=shape, labels=data.labels, mean=mean, std=std)
        return dataclasses.replace(run, model=model)

    def source(self, run: "Run", data: Any, part: str, device: str) -> Any:
        from regard.data.features import RowSource

        return RowSource(getattr(data, part))

    def example(self, run: "Run") -> Any:
        import numpy as np
        import torch

        from regard.data.batch import Samples

        features = torch.zeros(run.batch, *run.model.shape)
        return Samples((features,), torch.zeros(run.batch).long(), np.arange(run.batch))

    def about(self, run: "Run", data: Any) -> dict[str, Any]:
        return {"label": data.label}

    def write_files(self, folder: Path, run: "Run", data: Any) -> None:
        from regard.data.features import write_columns

        write_columns(folder, data.label, data.columns)

    def serves(self, config: Any) -> bool:
        return super().serves(config) and len(config.shape) == 1

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str, int8: bool) -> Any:
        from regard.predictors import RowClassifier

        return RowClassifier(model, folder, device)
