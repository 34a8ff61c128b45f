"""Forecast: the next rows of a table over time."""

import dataclasses
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.catalog import is_known
from regard.data.folders import silent
from regard.data.settings import READING, HistoryConfig
from regard.errors import ConfigError
from regard.jsonfile import group
from regard.tasks.base import Arch, Card, Fit, Say, Task
from regard.tasks.presets import presets_of
from regard.tasks.served import array
from regard.tasks.use import Options, Predictions, ShownExample, TestSet, Verdict
from regard.ticks import Console
from regard.training.baseline import Baseline
from regard.words import some, table

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from regard.data.contents import Contents
    from regard.data.history import History, HistoryParts, Windows
    from regard.metrics.compare import Sums
    from regard.metrics.forecast import Errors, LinearForecast
    from regard.predictors.series import Outlook
    from regard.training.run import Run

SHOWN = 12  # rows of a forecast that are printed
NUMBERS = 10_000_000  # of training, whose errors set the first quantiles
NEW_YEAR = 19_723.0  # 2024-01-01, a Monday, in days since 1970


class Forecast(Task):
    name, trains_on = "forecast", "history"
    summary = "the next rows of a table over time"
    settings = HistoryConfig
    options = ("target", "horizon", "series", "covariates", "every")
    data_help = "A table whose rows are in time, or a name."
    examples = (
        "regard train forecast --data prices.csv --target close --horizon 96",
        "regard train forecast --data sales.csv --target sold --series store --covariates holiday,price --every 1d",
    )
    archs = {"transformer": Arch("forecaster")}
    presets = presets_of("forecast")
    card = Card(pipeline="time-series-forecasting", title="A forecaster", use="forecast {} --plot next.png")
    reads = "series"
    family, views = "forecast", ()
    purpose = "forecast"
    verbs = ("forecast",)
    evaluate_takes = ("data", "strict")
    compare_takes = ("data",)
    unit = "windows"

    def fits(self, contents: "Contents") -> Fit | None:
        from regard.data.series import IDS, TIMES

        time, numbers = next(iter(contents.holding("dates")), contents.named(TIMES)), contents.holding("numbers")
        numbers = [column for column in numbers if column is not time]
        if time is None or not numbers or contents.named(IDS) or contents.holding("texts"):
            return None
        series = next(iter(contents.holding("classes", "words")), None) if len(time.values) < contents.rows else None
        several = f"numbers over time ({time.name!r})" + (f" of each {series.name!r}" if series else "")
        horizon = len(time.values) // 20  # half of the validation set; of a long table, the default fits
        options = {"series": series.name if series else "", "horizon": str(horizon) if 0 < horizon < 48 else ""}
        return self.fit_for(contents, several, target=numbers[-1].name, **options)

    def model_settings(self, data: Any, arch: str, device: str, settings: dict[str, Any]) -> dict[str, Any]:
        return dict(lookback=data.lookback, horizon=data.horizon, patch=min(16, data.lookback))

    def settings_from_data(self, run: "Run") -> dict[str, Any]:
        data, patch = run.data, min(run.model.patch, run.data.lookback)
        return dict(lookback=data.lookback, horizon=data.horizon, columns=data.target or ("value",), patch=patch)

    def read(self, run: "Run", say: Say) -> "HistoryParts":
        from regard.data.history import read_parts

        return read_parts(run.data, say, shrink=True)

    def fit(self, run: "Run", data: "HistoryParts") -> "Run":
        first = data.histories[0]
        settings = dataclasses.replace(run.data, lookback=data.train.lookback)
        model = self.settings_from_data(dataclasses.replace(run, data=settings))
        model |= dict(columns=first.columns, covariates=first.inputs)
        return dataclasses.replace(run, data=settings).with_model(**model)

    def build(self, run: "Run", data: "HistoryParts", say: Say) -> "nn.Module":
        import torch

        model: Any = super().build(run, data, say)
        model.spread.copy_(torch.from_numpy(data.spread))
        if run.model.covariates:
            mean, std = data.covariate_spread
            model.covariate_mean.copy_(torch.from_numpy(mean))
            model.covariate_std.copy_(torch.from_numpy(std))
        train = data.train
        some = train.spread_evenly(max(1, NUMBERS // ((train.lookback + train.horizon) * len(data.spread))))
        examples = train.batch(some)
        model.start_from_(linear(data, data.spread).map, examples.inputs[0], examples.targets)
        return model

    def objective(self, run: "Run", data: Any = None) -> Any:
        from regard.objectives.forecast import ForecastLoss as Objective

        return Objective()

    def source(self, run: "Run", data: "HistoryParts", part: str, device: str) -> Any:
        return getattr(data, part)

    def show(self, run: "Run", data: "HistoryParts", batch: Any, row: int) -> str:
        sides = []
        for c, name in enumerate(run.model.columns[:4]):
            past, future = (x[row, :, c].tolist() for x in (batch.inputs[0], batch.targets))
            last = f"… {some((f'{x:.5g}' for x in past[-6:]), 6, ', ')}"
            ahead = ("gap" if math.isnan(x) else f"{x:.5g}" for x in future)
            sides.append(f"{name} {last} → {some(ahead, 6, ', ')}")
        return "; ".join(sides)

    def plan(self, run: "Run", data: "HistoryParts", part: str, source: Any) -> Any:
        from regard.data.loader import FixedSize

        return FixedSize(run.batch if part == "train" else 256)

    def fingerprint(self, data: "HistoryParts") -> dict[str, int]:
        import numpy as np

        return {"content": zlib.crc32(np.ascontiguousarray(np.concatenate(data.training)).tobytes())}

    def baselines(self, run: "Run", data: "HistoryParts") -> Sequence[Baseline]:
        """Squared errors, like the validation loss."""
        errors = baselines(data, data.valid, run.data, data.spread)
        return [Baseline(row.name, "held_out_loss", row.mse, lower_is_better=True) for row in errors]

    def example(self, run: "Run") -> Any:
        import numpy as np
        import torch

        from regard.data.batch import Samples

        c = run.model
        shape = (run.batch, c.lookback, len(c.columns))
        covariates = (torch.zeros(run.batch, c.lookback + c.horizon, len(c.covariates)),) if c.covariates else ()
        future = torch.zeros(run.batch, c.horizon, len(c.columns))
        return Samples((torch.zeros(shape), *covariates), future, np.arange(run.batch))

    def about(self, run: "Run", data: Any) -> dict[str, Any]:
        return {"name": run.data.name} | {name: getattr(run.data, name) for name in READING}

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str) -> Any:
        from regard.predictors import ForecastPredictor

        return ForecastPredictor(model, device, group(about, "data"))

    def find_table(self, folder: Path, data: str) -> Path:
        """The given file or data set, or the table the run was trained on."""
        from regard.data.fetch import get_files

        if data and not is_known(data):
            return Path(data)
        name = data
        if not data:
            if not (folder / "run.json").is_file():
                raise ConfigError(f"forecast what? type: regard forecast {folder} --data FILE")
            config = self.own_data(folder)
            if config.path:
                return Path(config.path)
            name = config.name
        return get_files(name, "history").train

    def example_of(self, predictor: Any, number: int) -> ShownExample:
        """One series of the training table, to forecast beyond its last row."""
        from regard.data.history import read_parts

        if predictor.test is None:
            config = dataclasses.replace(
                self.own_data(predictor.folder), target=predictor.config.columns, covariates=predictor.config.covariates
            )
            predictor.test = read_parts(config, silent).histories
        count = len(predictor.test)
        return ShownExample("its own table", number % count, count, [predictor.test[number % count]])

    def parse_inputs(self, predictor: Any, words: Sequence[str], console: Console) -> "list[History]":
        return [history for file in words for history in predictor.read_all(file, console.say)]

    def example_input(self, predictor: Any) -> Any:
        """As many rows as the model reads, and one to forecast if it has covariates."""
        import numpy as np

        from regard.data.calendar import resampled
        from regard.explain.series import as_dates

        c, settings = predictor.config, predictor.settings
        covariates = [name.partition("=") for name in c.covariates]
        cells = {name: value or 0 for name, _, value in covariates} | (
            {settings.series: "a"} if settings.series else {}
        )
        calendar = resampled(settings.every or "1d", NEW_YEAR)
        dates = as_dates(calendar.times(np.arange(c.lookback + bool(covariates))))
        rows = [{settings.time or "date": str(date), **cells} for date in dates]
        for i, row in enumerate(rows[: c.lookback]):
            row.update(dict.fromkeys(c.columns, i % 7))
        return {"rows": rows}

    def text(self, answer: Any) -> str:
        """A forecast as a table: its first rows and the last."""
        rows = self.rows([answer])
        cells = [list(rows[0]), *([str(cell) for cell in row.values()] for row in rows)]
        shown = cells if len(cells) <= SHOWN + 1 else [*cells[:SHOWN], ["…"] * len(cells[0]), cells[-1]]
        return table(shown, right=range(1, len(cells[0])))

    answer_schema = array({"type": "object", "required": ["time"]})

    def to_json(self, answer: Any) -> Any:
        return self.rows([answer])

    def rows(self, outlooks: "Iterable[Outlook]") -> list[dict[str, Any]]:
        """A row for each series and time, with the mean and quantiles of each column."""
        rows: list[dict[str, Any]] = []
        for outlook in outlooks:
            groups = [(column, *(f"{column} {q:.0%}" for q in outlook.levels)) for column in outlook.columns]
            names = [name for group in groups for name in group]
            series = {outlook.series: outlook.name} if outlook.series else {}
            for h, time in enumerate(outlook.named_times()):
                numbers = [float(f"{x:.6g}") for c in range(len(outlook.columns))
                           for x in (outlook.mean[h, c], *outlook.quantiles[h, c])]  # fmt: skip
                rows.append({**series, "time": time, **dict(zip(names, numbers, strict=True))})
        return rows

    def check_answers(self, outlooks: "Sequence[Outlook]", say: Say) -> None:
        """Report means that lie outside their quantiles."""
        outside, total = sum(o.outside() for o in outlooks), sum(o.mean.size for o in outlooks)
        if outside:
            what = f"{outside:,} of {total:,} means lie outside their quantiles"
            say(f"{what}: the model was trained on too little data, or for too short a time")

    def predictions(self, predictor: Any, folder: Path, file: Path, options: Options, console: Console) -> Predictions:
        """The forecast rows of a table."""
        outlooks = list(predictor.predict(self.parse_inputs(predictor, [str(file)], console)))
        self.check_answers(outlooks, console.say)
        return Predictions(rows=self.rows(outlooks))

    def test_set(self, predictor: Any, folder: Path, options: Options, console: Console) -> TestSet:
        from regard.data.history import read_parts

        c, data = predictor.config, options.data
        config = predictor.settings if data and not (folder / "run.json").is_file() else self.own_data(folder)
        config = dataclasses.replace(config, target=c.columns, covariates=c.covariates)
        if data:
            config = dataclasses.replace(config, name="", path=data)
        parts = read_parts(dataclasses.replace(config, strict=options.strict), console.say)
        on, contents = f"{data or 'its own table'} (test)", parts.contents(parts.tested) if data else []
        return TestSet(on=on, inputs=parts.test, targets=parts.test, extra=(parts, config), contents=contents)

    def training_contents(self, predictor: Any, data: HistoryConfig) -> Iterable[Any]:
        from regard.data.history import read_parts

        own = dataclasses.replace(data, target=predictor.config.columns, covariates=predictor.config.covariates)
        parts = read_parts(own, silent)
        return parts.contents(0, parts.rows)

    def batches(self, predictor: Any, test: TestSet) -> Iterator[Any]:
        from regard.data.loader import FixedSize, in_order

        return (batch.to(predictor.device) for batch in in_order(test.inputs, FixedSize(256)))

    def evaluate(self, predictor: Any, folder: Path, options: Options, console: Console) -> Verdict:
        """Errors over every window of the test set, compared with a seasonal naive forecast and a linear model."""
        import torch

        from regard.objectives.forecast import ForecastLoss as Objective

        test = self.test_set(predictor, folder, options, console)
        parts, config = test.extra
        with torch.inference_mode():
            scores = Objective().held_out(predictor.model, self.batches(predictor, test))
        others = baselines(parts, parts.test, config, predictor.model.spread.double().cpu().numpy())
        values: dict[str, Any] = {"mse": scores["loss"], "mae": scores["mae"]}
        rows = [("", "SQUARED", "ABSOLUTE"), ("this model", f"{scores['loss']:.4f}", f"{scores['mae']:.4f}")]
        text = table([*rows, *((row.name, f"{row.mse:.4f}", f"{row.mae:.4f}") for row in others)], right=[1, 2])
        if "inside" in scores:
            values["inside"] = scores["inside"]
            low, *_, high = predictor.config.quantiles
            share = f"{scores['inside']:.1%} lie between its {low:.0%} and {high:.0%} quantiles"
            text += f"\n{share}, expected {high - low:.0%}"
        values |= {"windows": len(test.inputs), "lookback": config.lookback, "horizon": config.horizon}
        values |= {"beside": [dataclasses.asdict(row) for row in others]}
        values |= {f"mse of {row.name}": row.mse for row in others}
        size = f"{len(test.inputs):,} windows, look-back {config.lookback}, horizon {config.horizon}"
        each = "series'" if parts.scaled else "column's"
        detail = f"{size}; errors in units of each {each} standard deviation in training"
        return Verdict(on=test.on, detail=detail, values=values, text=text, contents=test.contents, unit="rows")

    def outcomes(self, predictor: Any, test: TestSet, options: Options, console: Console) -> "Sums":
        import torch

        from regard.metrics.compare import Sums

        with torch.inference_mode():
            errors = [
                ((predictor.model(*b.inputs)[..., 0] - b.targets) / predictor.model.spread)
                .square().flatten(1).nanmean(1).cpu()
                for b in self.batches(predictor, test)
            ]  # fmt: skip
        each = torch.cat(errors).numpy()
        return Sums(metric="squared error", above=each, below=[1.0] * len(each), scale=1.0, lower_is_better=True)


def linear(parts: "HistoryParts", spread: "np.ndarray") -> "LinearForecast":
    """The linear map of the past that training starts from, and that a model is compared with."""
    from regard.metrics.forecast import LinearForecast

    return LinearForecast(parts.train, parts.valid, spread)


def baselines(parts: "HistoryParts", windows: "Windows", data: HistoryConfig, spread: "np.ndarray") -> "list[Errors]":
    """The errors of simple forecasts on the same windows, in units of `spread`."""
    from regard.metrics.forecast import season_of, to_beat

    season = data.season or season_of(max(parts.training, key=len), data.lookback)
    return to_beat(linear(parts, spread), windows, spread, season)
