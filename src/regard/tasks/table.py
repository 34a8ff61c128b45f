"""Table: a class for each row of numbers and categories, by an MLP."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.settings import TableConfig
from regard.tasks import presets
from regard.tasks.base import Arch, Card, Say
from regard.tasks.classes import ClassesOfSamples, class_indices, class_row

if TYPE_CHECKING:
    from regard.tasks.use import Options, Predictions
    from regard.ticks import Console
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

    things = "rows"

    def test_set(self, predictor: Any, folder: Path, data: str, console: "Console") -> tuple[str, Any, Any]:
        from regard.data.features import load_table, named_rows
        from regard.data.tables import read_table

        if not data:
            valid = load_table(self.own_data(folder, "--data FILE"), predictor.columns).valid
            return "its own validation rows", valid.features, valid.labels
        table = read_table(Path(data), (predictor.label,))
        names, rows = table.labels(table.find(predictor.label, (), "label")), named_rows(table)
        for line in predictor.unlike_training(rows):
            console.say(line)
        return data, rows, class_indices(names, predictor.labels, [data] * len(names))

    def predictions(
        self, predictor: Any, folder: Path, file: Path, options: "Options", console: "Console"
    ) -> "Predictions":
        """Every row of a table with its label and probabilities after the other columns."""
        from regard.data.features import named_rows
        from regard.data.tables import read_table
        from regard.tasks.use import Predictions

        table = read_table(file, [c.name for c in predictor.columns])
        rows = named_rows(table)
        for line in predictor.unlike_training(rows):
            console.say(line)
        name = f"predicted_{predictor.label}" if predictor.label in table.columns else predictor.label
        answers = predictor.probabilities(rows)
        cells = ({**row, **class_row(predictor.labels, p, name)} for row, p in zip(rows, answers, strict=True))
        return Predictions(rows=cells)
