"""Classify series, and forecast them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.config import check_types
from regard.data.folders import Say, to_stderr
from regard.data.history import History, read_histories, spread
from regard.data.loader import FixedSize, in_order
from regard.data.series import Curves, SeriesConfig, read_series, with_bands
from regard.data.series_batch import SeriesSource
from regard.data.settings import BEFORE, READING, HistoryConfig
from regard.errors import ConfigError, DataError
from regard.explain.series import as_dates
from regard.nn.attention import Look
from regard.nn.taps import watch
from regard.predictors.base import Classification, ClassPredictor, Output, Predictor
from regard.ticks import tick

BATCH = 64


class SeriesClassifier(ClassPredictor):
    """Series to labels; the inputs are `Curves`. `known` is the folder's description of its training data."""

    family = "series"

    def __init__(self, model: Any, device: str, known: dict[str, Any]):
        self.model, self.device = model.to(device).eval(), device
        self.output = Output(model.config.labels)
        self.max_length = int(known.get("max_length", SeriesConfig.max_length))
        columns: Any = {k: str(known[k]) for k in ("id", "time", "value", "error", "band", "label") if known.get(k)}
        self.config = SeriesConfig(max_length=self.max_length, known=model.config.known, **columns)

    def read(self, path: str | Path, labels: str = "", labelled: bool = False, **settings: Any) -> Curves:
        """The series of a file or folder, as `regard train series` reads them; `labels` is a table of their labels.
        `settings` are those of `SeriesConfig`."""
        table = Path(labels) if labels else None
        if self.config.known and table is None:
            names = ", ".join(self.config.known)
            raise ConfigError(f"this model also needs {names} of each object; give the table: --labels FILE")
        hint = "give a table of them: --labels FILE"
        return self.fitted(read_series(Path(path), replace(self.config, **settings), table, labelled, hint))

    def fitted(self, curves: Curves) -> Curves:
        return with_bands(curves, self.model.config.bands)

    @torch.inference_mode()
    def probabilities(self, inputs: Curves) -> np.ndarray:
        """N L, in the order of `labels`; points after `max_length` are not read."""
        if not len(inputs):
            return np.zeros((0, len(self.labels)))
        source = SeriesSource(inputs, self.labels, self.max_length)
        scores = []
        for batch in in_order(source, FixedSize(BATCH)):
            scores.append(self.model.scores(self.model(*batch.to(self.device).inputs)))
            tick(len(batch))
        return self.values(torch.cat(scores))

    def predict(self, inputs: Any) -> Iterator[Any]:
        yield from map(self.output.answer, self.probabilities(inputs))

    def classify(self, curves: Curves) -> list[Classification]:
        return list(self.predict(curves))

    @torch.inference_mode()
    def attention(self, curves: Curves, row: int = 0) -> np.ndarray:
        """The last layer's attention to each point of a series, summing to 1: the mean over heads and queries, without
        the first token. A token's weight is divided among its points."""
        c = self.model.config
        if not hasattr(c, "heads"):
            raise ConfigError("a recurrent model has no attention to show; train one with --arch transformer")
        batch = SeriesSource(curves, self.labels, self.max_length).batch(np.array([row]))
        with watch(self.model, f"layers.{c.layers - 1}.attention.look") as seen:
            self.model(*batch.to(self.device).inputs)
        (look,) = next(iter(seen.values()))
        assert isinstance(look, Look)
        tokens = look.weights()[0].mean((0, 1))[1:].cpu().numpy()  # N
        points = np.zeros(min(int(curves.lengths[row]), self.max_length))
        for i, weight in enumerate(tokens):
            points[i * c.stride : i * c.stride + c.patch] += weight / c.patch
        return points / points.sum()


@dataclass(frozen=True, eq=False)
class Outlook:
    """A forecast: the next H times, the mean of each column, H C, and its increasing quantiles, H C Q."""

    columns: tuple[str, ...]
    times: np.ndarray
    mean: np.ndarray
    quantiles: np.ndarray
    levels: tuple[float, ...]
    dated: bool = False
    series: str = ""  # in a table of several series, the column of their names
    name: str = ""  # of this series

    def named_times(self) -> list[Any]:
        """Times as text: dates, if the table has them."""
        if not self.dated:
            return self.times.tolist()
        dates = [str(t).replace("T", " ") for t in as_dates(self.times)]
        return [t[:10] for t in dates] if all(t.endswith(" 00:00:00") for t in dates) else dates

    def outside(self) -> int:
        """How many means lie outside their quantiles."""
        band = self.quantiles if self.levels else self.mean[..., None]
        return int(((self.mean < band[..., 0]) | (self.mean > band[..., -1])).sum())


class ForecastPredictor(Predictor):
    """Forecasts the next rows; an input is a `History`. `trained` is the folder's description of its data."""

    family = "forecast"

    def __init__(self, model: Any, device: str, trained: dict[str, Any]):
        self.model, self.device, self.config = model.to(device).eval(), device, model.config
        c, trained = self.config, BEFORE | trained
        reading: Any = {name: trained[name] for name in READING if name in trained}
        self.settings = HistoryConfig(
            target=c.columns, covariates=c.covariates, lookback=c.lookback, horizon=c.horizon, **reading
        )
        check_types(self.settings)

    def read(self, path: str | Path) -> History:
        """The model's columns of a table; of several series, the first."""
        return self.read_all(path)[0]

    def read_all(self, path: str | Path, say: Say = to_stderr) -> list[History]:
        """All series of a table."""
        return read_histories(Path(path), self.settings, say)

    def predict(self, inputs: Iterable[History]) -> Iterator["Outlook"]:
        yield from map(self.forecast, inputs)

    @torch.inference_mode()
    def forecast(self, history: History) -> Outlook:
        """The `horizon` rows after the last of the table, from its last `lookback`."""
        c, name = self.config, f" of {history.name}" if history.name else ""
        if len(history) < c.lookback:
            raise DataError(
                f"the table{name} has {len(history):,} rows, but this model needs {c.lookback:,}; give more"
            )
        # Each column is normed by its window; the model's unit matters only for a constant one.
        unit = spread(history.values) if self.settings.series else 1.0
        past = torch.from_numpy(history.values[-c.lookback :] / unit).float()[None].to(self.device)
        inputs, steps = [past], c.horizon
        if c.covariates:
            covariates, steps = self.covariates(history, name)
            inputs.append(covariates.to(self.device))
        rows = self.model(*inputs)[0, :steps].double().cpu().numpy()  # H C 1+Q
        rows = rows * (unit if isinstance(unit, float) else unit[:, None])
        quantiles = np.sort(rows[..., 1:], -1)  # they are learned separately and may cross
        return Outlook(c.columns, history.after(steps), rows[..., 0], quantiles, c.quantiles, history.dated,
                       self.settings.series, history.name)  # fmt: skip

    def covariates(self, history: History, name: str) -> tuple[torch.Tensor, int]:
        """The covariates of the look-back and of the rows to forecast, 1 L+H K, and how many of those there are."""
        c = self.config
        assert history.covariates is not None
        rows = history.covariates[len(history) - c.lookback : len(history) + c.horizon]
        if not (ahead := len(rows) - c.lookback):
            names = ", ".join(dict.fromkeys(name.partition("=")[0] for name in c.covariates))
            raise DataError(
                f"this model also needs {names} of the rows to forecast; add up to {c.horizon} rows after the last"
                f"{name}, with {names} filled in and {', '.join(c.columns)} empty"
            )
        rows = np.concatenate([rows, np.full((c.horizon - ahead, len(c.covariates)), np.nan)])
        return torch.from_numpy(rows).float()[None], ahead
