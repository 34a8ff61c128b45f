"""Rows of tables on the command line: one classified, many scored, a file labelled."""

from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.classes import judge_classes, write_rows
from regard.cli.common import show
from regard.cli.info import note
from regard.errors import ConfigError, DataError
from regard.ticks import Console

if TYPE_CHECKING:
    from regard.predictors import RowClassifier
    from regard.predictors.labeller import Answer


def classify_row(model: "RowClassifier", text: str) -> "Answer":
    """`hours=12, school=north`: the columns that are known, the others are missing."""
    row = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            names = ", ".join(f"{c.name}=…" for c in model.columns[:3])
            raise ConfigError(f"wanted columns as name=value, by commas, got {part.strip()!r}; for example: {names}")
        row[name.strip()] = value.strip()
    (answer,) = model.classify([row])
    return answer


def evaluate_rows(model: "RowClassifier", run: str, data: str, picture: str, json: bool, flags: Console) -> None:
    """Accuracy, F1, confusion and calibration: on a file of yours, else on the rows held out."""
    import numpy as np

    from regard.data.features import TableConfig, load_table, named_rows
    from regard.data.tables import read_table
    from regard.tasks.plan import read_run

    if picture:
        from regard.explain.picture import check_picture

        check_picture(picture)
    if data:
        table = read_table(Path(data), (model.label,))
        names = table.labels(table.find(model.label, (), "label"))
        at = {label: i for i, label in enumerate(model.labels)}
        if odd := [name for name in names if name not in at]:
            raise DataError(f"{data}: the label {odd[0]!r} is not among those trained on: {', '.join(model.labels)}")
        what, true = data, np.array([at[name] for name in names])
        likely = model.probabilities(named_rows(table))
    else:
        if not (Path(run) / "run.json").is_file():
            raise ConfigError(f"{run} has no rows of its own; type: regard evaluate {run} --data FILE")
        config = read_run(run).data
        assert isinstance(config, TableConfig)
        held = load_table(config).valid
        what, true = "its own held-out rows", held.labels
        likely = model.of_features(held.features)
    common = float(np.bincount(true).max() / len(true))
    beside = [f"commonest    {common:.2%} by always naming the commonest class"]
    found, text = judge_classes(likely, true, model.labels, beside, [], "rows", picture, flags)
    noted = {"on": what, "majority": common, **found}
    note(Path(run), {k: v for k, v in noted.items() if isinstance(v, int | float | str)})
    if json:
        show({"run": run, "task": "table", **noted})
    else:
        print(f"{run} on {what}, {len(true):,} rows\n{text}")


def predict_rows(model: "RowClassifier", file: Path, out: Path | None, json: bool, flags: Console) -> None:
    """Every row of a table with its label and probabilities after the other columns."""
    from regard.data.features import named_rows
    from regard.data.tables import read_table

    table = read_table(file, [c.name for c in model.columns])
    rows = named_rows(table)
    name = f"predicted_{model.label}" if model.label in table.columns else model.label
    answers = (
        {**row, name: model.labels[int(p.argmax())]}
        | {f"probability_{label}": round(float(x), 6) for label, x in zip(model.labels, p, strict=True)}
        for row, p in zip(rows, model.probabilities(rows), strict=True)
    )
    write_rows(answers, out, json, flags)
