"""Regress: a number for each text, row of a table, image or series."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import DataError
from regard.tasks.base import Card, Fit, Task
from regard.tasks.classes import Classes
from regard.tasks.classify import Classify
from regard.tasks.image import Image
from regard.tasks.series import Series
from regard.tasks.served import NUMBER, record
from regard.tasks.table import Table, learned
from regard.tasks.use import Options, TestSet, Verdict
from regard.ticks import Console
from regard.training.baseline import Baseline
from regard.words import count

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from regard.data.contents import Contents
    from regard.metrics.compare import Sums
    from regard.training.run import Run

NAMES = ("target", "y", "price", "score", "rating", "value")  # usual for a column to predict
UNKNOWN_TARGET = ("target",)  # until the data is read


@dataclasses.dataclass(frozen=True)
class Number:
    """A predicted number."""

    value: float


class NumberOutput:
    """The output of a model trained on standardised targets, in their own unit."""

    labels = UNKNOWN_TARGET

    def __init__(self, mean: float, std: float):
        self.mean, self.std = mean, std

    def values(self, scores: "Tensor") -> "Tensor":
        return scores * self.std + self.mean

    def answer(self, values: "np.ndarray") -> Number:
        return Number(float(values[0]))


class Regression(Classes):
    """What regression tasks share; mixed into the task that classifies the same medium."""

    target_kind = "numbers"
    answer_schema = record(value=NUMBER)
    views: tuple[str, ...] = ()  # a number is not a class
    evaluate_takes = ("data", "strict")
    draws_attention = False

    def fits(self, contents: "Contents") -> Fit | None:
        from regard.data.series import TIMES

        texts, numbers = contents.holding("texts"), sorted(contents.numbers(), key=lambda c: c.name.lower() in NAMES)
        if self.reads == "text" and len(texts) == 1 and numbers:
            reason = f"texts in {texts[0].name!r}, a number in {numbers[-1].name!r}"
            return self.fit_for(contents, reason, "minilm", text=texts[0].name, label=numbers[-1].name)
        rest = contents.holding("numbers", "classes")
        if self.reads != "tables" or len(rest) < 2 or not numbers or contents.named(TIMES):
            return None
        if contents.holding("texts", "files", "sets", "dates"):
            return None
        return self.fit_for(
            contents, f"numbers and categories, a number in {numbers[-1].name!r}", label=numbers[-1].name
        )

    def model_settings(self, data: Any, arch: str, device: str, settings: dict[str, Any]) -> dict[str, Any]:
        return super().model_settings(data, arch, device, settings) | {"labels": UNKNOWN_TARGET}

    def finetune_run(self, start: Path, data: Any, device: str, lora: int) -> "Run":
        run = super().finetune_run(start, data, device, lora)
        return run.with_model(labels=UNKNOWN_TARGET)

    def fit(self, run: "Run", data: Any) -> "Run":
        run = super().fit(run, data)
        return run.with_model(labels=UNKNOWN_TARGET)

    def objective(self, run: "Run", data: Any = None) -> Any:
        import numpy as np

        from regard.objectives.regress import RegressLoss as Objective

        examples: Any = super().objective(run)
        if data is None:
            return Objective(examples, np.zeros(1))
        return Objective(examples, np.array(data.labels, float), *self.spread(data))

    def spread(self, data: Any) -> tuple[float, float]:
        """Mean and standard deviation of the training targets."""
        import numpy as np

        values = np.array(data.labels, float)[self.codes(data)]
        return float(values.mean()), float(values.std())

    def codes(self, data: Any) -> "np.ndarray":
        """The codes of the training targets."""
        return data.train.labels

    def remarks(self, run: "Run", data: Any, loader: Any) -> Iterable[str]:
        mean, std = self.spread(data)
        yield f"an epoch is {count(loader.batches_per_epoch, 'batch')}"
        yield f"the targets have mean {mean:.6g} and standard deviation {std:.6g}"

    def baselines(self, run: "Run", data: Any) -> Sequence[Baseline]:
        return [Baseline("the mean", "r2", 0.0)]

    def calibration(self, run: "Run", model: Any, data: Any) -> dict[str, Any]:
        mean, std = self.spread(data)
        return {"mean": mean, "std": std}

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str) -> Any:
        predictor: Any = super().predictor(model, folder, about, device)
        predictor.output, predictor.family = NumberOutput(**about["calibration"]), self.family
        return predictor

    def text(self, answer: Any) -> str:
        return f"{answer.value:.6g}"

    def brief(self, answer: Any) -> tuple[str, ...]:
        return (self.text(answer),)

    def row(self, predictor: Any, answer: Any) -> dict[str, Any]:
        column = getattr(predictor, "label", "value")
        return {column: "" if answer is None else round(answer.value, 6)}

    def targets(self, predictor: Any, cells: Sequence[str], places: Sequence[str]) -> "np.ndarray":
        import numpy as np

        from regard.data.targets import to_number

        return np.array([to_number(cell, place) for cell, place in zip(cells, places, strict=True)])

    def evaluate(self, predictor: Any, folder: Path, options: Options, console: Console) -> Verdict:
        """R² and errors, compared with predicting the mean of the training targets."""
        from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

        test = self.test_set(predictor, folder, options, console)
        if len(test.targets) < 2:
            raise DataError(f"{test.on}: {len(test.targets)} example; expected at least 2")
        predicted = self.probabilities(predictor, test, console)[:, 0]
        mean = [predictor.output.mean] * len(test.targets)
        names = {"r2": r2_score, "mae": mean_absolute_error, "rmse": root_mean_squared_error}
        values = {name: float(score(test.targets, predicted)) for name, score in names.items()}
        constant = {f"mean_{name}": float(score(test.targets, mean)) for name, score in names.items()}
        lines = [
            f"R²           {values['r2']:.4f}   (the training mean: {constant['mean_r2']:.4f})",
            f"MAE          {values['mae']:.6g}   (the training mean: {constant['mean_mae']:.6g})",
            f"RMSE         {values['rmse']:.6g}   (the training mean: {constant['mean_rmse']:.6g})",
        ]
        detail, text = f"{len(test.targets):,} {self.unit}", "\n".join(lines)
        return Verdict(on=test.on, detail=detail, values=values | constant, text=text, contents=test.contents)

    def outcomes(self, predictor: Any, test: TestSet, options: Options, console: Console) -> "Sums":
        import numpy as np

        from regard.metrics.compare import Sums

        errors = np.abs(self.probabilities(predictor, test, console)[:, 0] - test.targets)
        return Sums(metric="MAE", above=errors, below=np.ones(len(errors)), scale=1.0, lower_is_better=True)


class RegressTable(Regression, Table):
    name = "regress-table"
    summary = "a number for each row of numbers and categories"
    examples = ("regard train regress-table --data houses.csv --label price",)
    card = Card(pipeline="tabular-regression", title="A regression on rows", use='classify {} "column=value, …"')
    purpose = "predict a number from rows"

    def baselines(self, run: "Run", data: Any) -> Sequence[Baseline]:
        import numpy as np

        values = np.array(data.labels, float)
        parts = ((part.features, values[part.labels]) for part in (data.train, data.valid))
        return [*super().baselines(run, data), *learned("r2", *parts)]


class RegressImage(Regression, Image):
    name = "regress-image"
    summary = "a number for each image"
    examples = ("regard train regress-image --data ages.csv --label age    # a table of files and numbers",)
    card = Card(pipeline="image-feature-extraction", title="A regression on images", use="classify {} picture.png")
    purpose = "predict a number from images"


class RegressSeries(Regression, Series):
    name = "regress-series"
    summary = "a number for each series"
    examples = ("regard train regress-series --data curves.csv --label period",)
    card = Card(pipeline="time-series", title="A regression on series", use="classify {} curve.csv")
    purpose = "predict a number from series"
    archs = {"series": Series.archs["transformer"]}
    evaluate_takes = ("data", "labels", "strict")

    def codes(self, data: Any) -> "np.ndarray":
        import numpy as np

        codes = {label: code for code, label in enumerate(data.labels)}
        return np.array([codes[label] for label in data.train.labels])


class Regress(Regression, Classify):
    name = "regress"
    family = ""
    summary = "a number for each text, row, image or series"
    examples = (
        "regard train regress --data reviews.csv --text review --label stars",
        "regard train regress --data houses.csv --label price --arch mlp    # rows; vit: images; series: series",
    )
    card = Card(pipeline="text-classification", title="A regression on texts", use='classify {} "…"')
    purpose = "predict a number from texts"

    def for_arch(self, arch: str) -> Task:
        """`--arch` determines the input: mlp rows, vit and conv images, series series, others texts."""
        others = (RegressTable(), RegressImage(), RegressSeries())
        return next((task for task in others if arch in task.archs), self)

    def codes(self, data: Any) -> "np.ndarray":
        import numpy as np

        return np.asarray(data.train["labels"])
