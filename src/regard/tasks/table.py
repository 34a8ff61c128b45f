"""Table: a class for each row of numbers and categories, by an MLP."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.folders import silent
from regard.data.settings import TableConfig
from regard.errors import ConfigError
from regard.tasks.base import Arch, Card, Fit, Say
from regard.tasks.classes import ClassesOfSamples, class_row
from regard.tasks.presets import presets_of
from regard.tasks.served import short
from regard.tasks.use import Inputs, Options, TestSet
from regard.ticks import Console
from regard.training.baseline import Baseline
from regard.words import some

if TYPE_CHECKING:
    import numpy as np

    from regard.data.contents import Contents
    from regard.training.run import Run

INPUTS = 32  # until the table is read


class Table(ClassesOfSamples):
    name = "table"
    summary = "a class for each row of numbers and categories"
    settings = TableConfig
    options = ("valid", "label")
    data_help = "A table, its header in the first row."
    examples = ("regard train table --data students.csv --label passed",)
    archs = {"mlp": Arch("mlp")}
    presets = presets_of("table")
    card = Card(pipeline="tabular-classification", title="A classifier of rows", use='classify {} "column=value, …"')
    valid_batch = 1024

    def fits(self, contents: "Contents") -> Fit | None:
        from regard.data.series import TIMES

        label = next(iter(contents.labels()), None)
        rest = [column for column in contents.holding("numbers", "classes") if column is not label]
        if label is None or not rest or contents.holding("texts", "files", "sets", "dates") or contents.named(TIMES):
            return None
        names = ", ".join(repr(column.name) for column in rest[:3]) + (", …" if len(rest) > 3 else "")
        return self.fit_for(contents, f"numbers and categories ({names}), a class in {label}", label=label.name)

    def model_settings(self, data: Any, arch: str, device: str, settings: dict[str, Any]) -> dict[str, Any]:
        return {"shape": (INPUTS,)}

    def read(self, run: "Run", say: Say) -> Any:
        from regard.data.features import load_table

        data = load_table(run.data, say=say)
        say(data.report())
        return data

    def fit(self, run: "Run", data: Any) -> "Run":
        mean, std = data.spread()
        shape = (data.train.features.shape[1],)
        return run.with_model(shape=shape, labels=data.labels, mean=mean, std=std)

    def source(self, run: "Run", data: Any, part: str, device: str) -> Any:
        from regard.data.features import TableSource

        return TableSource(getattr(data, part))

    def show_input(self, data: Any, batch: Any, row: int) -> str:
        cells, at = [], 0
        for column in data.columns:
            values = batch.inputs[0][row, at : at + column.width].tolist()
            at += column.width
            chosen = column.values[values.index(1.0)] if 1.0 in values else "(none)"
            cells.append(f"{column.name}={chosen if column.values else format(values[0], '.6g')}")
        return some(cells, 12, ", ")

    def example(self, run: "Run") -> Any:
        import numpy as np
        import torch

        from regard.data.batch import Samples

        features = torch.zeros(run.batch, *run.model.shape)
        return Samples((features,), torch.zeros(run.batch).long(), np.arange(run.batch))

    def baselines(self, run: "Run", data: Any) -> Sequence[Baseline]:
        parts = ((part.features, part.labels) for part in (data.train, data.valid))
        return [*super().baselines(run, data), *learned("accuracy", *parts)]

    def about(self, run: "Run", data: Any) -> dict[str, Any]:
        return {"label": data.label}

    def write_files(self, folder: Path, run: "Run", data: Any) -> None:
        from regard.data.features import write_columns

        write_columns(folder, data.label, data.columns)

    def serves(self, config: Any) -> bool:
        return super().serves(config) and len(config.shape) == 1

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str) -> Any:
        from regard.predictors import TableClassifier

        return TableClassifier(model, folder, device)

    reads = "tables"
    family, views = "table", ("classes",)
    purpose = "classify rows"
    unit = "rows"

    def test_set(self, predictor: Any, folder: Path, options: Options, console: Console) -> TestSet:
        from regard.data.features import encode, load_table, named_rows
        from regard.data.tables import read_table
        from regard.data.targets import TARGETS

        data = options.data
        if not data:
            own, on = load_table(self.own_data(folder), predictor.columns), "its own validation set"
            cells = [own.labels[code] for code in own.valid.labels]
            targets = self.targets(predictor, cells, [on] * len(cells))
            return TestSet(on=on, inputs=own.valid.features, targets=targets)
        table = read_table(Path(data), (predictor.label,), say=console.say, strict=options.strict)
        column = table.find(predictor.label, (), "label")
        table = table.with_plain(column) if TARGETS[self.target_kind].numbers else table
        checks = {column: TARGETS[self.target_kind].fault, **predictor.checks(table)}
        table = table.usable(checks, options.strict, console.say)
        rows = named_rows(table)
        for line in predictor.unlike_training(rows):
            console.say(line)
        cells = table.labels(column)
        places = [table.where(row) for row in range(len(cells))]
        inputs, targets = encode(predictor.columns, rows), self.targets(predictor, cells, places)
        return TestSet(on=data, inputs=inputs, targets=targets, contents=row_contents(inputs, cells))

    def training_contents(self, predictor: Any, data: TableConfig) -> "Iterable[bytes]":
        from regard.data.features import load_table

        own = load_table(data, predictor.columns, silent)
        return row_contents(own.train.features, [own.labels[code] for code in own.train.labels])

    def parse_inputs(self, predictor: Any, words: Sequence[str], console: Console) -> Any:
        """A row from `hours=12, school=north`; columns left out are missing."""
        rows = []
        for text in words:
            cells = [part.partition("=") for part in re.split(r",(?=[^,=]*=)", text)]  # 12,5 is a number
            for name, equals, _ in cells:
                if not equals:
                    names = ", ".join(f"{c.name}=…" for c in predictor.columns[:3])
                    got = name.strip()
                    raise ConfigError(f"expected name=value, separated by commas, got {got!r}; for example: {names}")
            rows.append({name.strip(): value.strip() for name, _, value in cells})
        predictor.check_columns(rows)
        for line in predictor.unlike_training(rows):
            console.say(line)
        return rows

    def input_schema(self, predictor: Any) -> dict[str, Any]:
        cell = {"type": ["string", "number", "boolean", "null"]}
        return {
            "type": "object",
            "properties": {column.name: cell for column in predictor.columns},
            "additionalProperties": False,
            "examples": [{c.name: c.values[0] if c.values else round(c.usual, 4) for c in predictor.columns}],
        }

    def request_input(
        self, predictor: Any, value: Any, folder: Path, console: Console, most: Mapping[str, float]
    ) -> Any:
        """A row by column name; a column that is left out, or null, is missing."""
        if not isinstance(value, dict) or any(isinstance(cell, list | dict) for cell in value.values()):
            raise ConfigError(f"expected an object of columns and values, got {short(value)}")
        row = {name: str(cell) for name, cell in value.items() if cell is not None}
        predictor.check_columns([row])
        return [row]

    def as_inputs(self, predictor: Any, values: Sequence[Any]) -> Any:
        """Rows by column name; cells are read as those of a file."""
        rows = super().as_inputs(predictor, values)
        return [{name: "" if cell is None else str(cell) for name, cell in row.items()} for row in rows]

    def read_inputs(self, predictor: Any, folder: Path, file: Path, options: Options, console: Console) -> Inputs:
        """Every row of a table, its columns before the answer. Malformed rows get no answer."""
        from regard.data.tables import read_table

        table = read_table(file, [c.name for c in predictor.columns], say=console.say, strict=False)
        rows = list(table.with_gaps(predictor.checks(table), console.say))
        for line in predictor.unlike_training([cells for cells, usable in rows if usable]):
            console.say(line)
        return Inputs(examples=((cells, cells if usable else None) for cells, usable in rows), total=len(rows))

    def row(self, predictor: Any, answer: Any) -> dict[str, Any]:
        return class_row(predictor.labels, answer, predictor.label)


def row_contents(features: "np.ndarray", labels: Sequence[str]) -> list[bytes]:
    """The identity of each row: its features and label."""
    return [row.tobytes() + label.encode() for row, label in zip(features, labels, strict=True)]


def learned(metric: str, train: Any, valid: Any) -> list[Baseline]:
    """Baselines by accuracy or R² on the validation set: a linear model and gradient-boosted trees."""
    from regard.metrics.tables import learned_baselines

    scores = learned_baselines(train, valid, numbers=metric == "r2")
    return [Baseline(name, metric, score) for name, score in scores.items()]
