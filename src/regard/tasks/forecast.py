"""Forecast: the next rows of a table over time."""

import dataclasses
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.settings import HistoryConfig
from regard.jsonfile import group
from regard.tasks import presets
from regard.tasks.base import Arch, Card, Say, Task
from regard.words import count

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from regard.data.history import HistoryParts, Windows
    from regard.evaluate.forecast import Errors
    from regard.train.run import Run


class Forecast(Task):
    name = "forecast"
    summary = "the next rows of a table over time"
    settings = HistoryConfig
    options = ("target", "horizon")
    data_help = "A table whose rows are in time, or a name."
    examples = ("regard train forecast --data prices.csv --target close --horizon 96",)
    archs = {"transformer": Arch("forecaster")}
    presets = presets.FORECAST
    card = Card(pipeline="time-series-forecasting", title="A forecaster", use="forecast {} --plot next.png")

    def model_settings(self, data: Any, arch: str, device: str, settings: dict[str, Any]) -> dict[str, Any]:
        return dict(lookback=data.lookback, horizon=data.horizon, patch=min(16, data.lookback))

    def settings_from_data(self, run: "Run") -> dict[str, Any]:
        data, patch = run.data, min(run.model.patch, run.data.lookback)
        return dict(lookback=data.lookback, horizon=data.horizon, columns=data.target or ("value",), patch=patch)

    def read(self, run: "Run", say: Say) -> "HistoryParts":
        from regard.data.history import read_parts

        return read_parts(run.data, say)

    def fit(self, run: "Run", data: "HistoryParts") -> "Run":
        known = dict(columns=data.history.columns, lookback=run.data.lookback, horizon=run.data.horizon)
        return dataclasses.replace(run, model=dataclasses.replace(run.model, **known))

    def build(self, run: "Run", data: "HistoryParts", say: Say) -> "nn.Module":
        import torch

        model: Any = super().build(run, data, say)
        model.spread.copy_(torch.from_numpy(data.spread))
        return model

    def objective(self, run: "Run", data: Any = None) -> Any:
        from regard.objectives.forecast import Forecast as Objective

        return Objective()

    def source(self, run: "Run", data: "HistoryParts", part: str, device: str) -> Any:
        return getattr(data, part)

    def plan(self, run: "Run", data: "HistoryParts", part: str, source: Any) -> Any:
        from regard.data.loader import FixedSize

        return FixedSize(run.batch if part == "train" else 256)

    def fingerprint(self, data: "HistoryParts") -> dict[str, int]:
        import numpy as np

        return {"content": zlib.crc32(np.ascontiguousarray(data.history.values[: data.rows]).tobytes())}

    def remarks(self, run: "Run", data: "HistoryParts", loader: Any) -> Iterable[str]:
        yield f"an epoch is {count(loader.batches_per_epoch, 'batch')}"
        for row in baselines(data, data.valid, run.data, data.spread):
            yield f"baseline: {row.name}, squared error {row.mse:.4f}, absolute {row.mae:.4f} on the validation windows"

    def example(self, run: "Run") -> Any:
        import numpy as np
        import torch

        from regard.data.batch import Samples

        c = run.model
        shape = (run.batch, c.lookback, len(c.columns))
        return Samples((torch.zeros(shape),), torch.zeros(run.batch, c.horizon, len(c.columns)), np.arange(run.batch))

    def about(self, run: "Run", data: Any) -> dict[str, Any]:
        return {"name": run.data.name, "time": run.data.time}

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str, int8: bool) -> Any:
        from regard.predictors import ForecastPredictor

        return ForecastPredictor(model, device, group(about, "data"))


def baselines(parts: "HistoryParts", windows: "Windows", data: HistoryConfig, spread: "np.ndarray") -> "list[Errors]":
    """The errors of simple forecasts on the same windows, in units of `spread`."""
    from regard.evaluate.forecast import season_of, to_beat

    season = data.season or season_of(parts.history.values[: parts.rows], data.lookback)
    return to_beat(parts.train, windows, spread, season)
