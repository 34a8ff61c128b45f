"""A trained classifier of series, or a forecaster, at work."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.history import History, HistoryConfig, read_history
from regard.data.loader import FixedSize, in_order
from regard.data.series import Curves, SeriesConfig, read_series, with_bands
from regard.data.series_batch import SeriesSource
from regard.errors import ConfigError, DataError
from regard.nn.attention import Look
from regard.nn.taps import watch
from regard.predictors.labeller import Answer
from regard.ticks import tick

BATCH = 64


class SeriesClassifier:
    """Series to labels. `known` is what its folder says of the data it was trained on: columns, the longest series."""

    def __init__(self, model: Any, device: str, known: dict[str, Any]):
        self.model, self.device = model.to(device).eval(), device
        self.labels: tuple[str, ...] = model.config.labels
        self.max_length = int(known.get("max_length", SeriesConfig.max_length))
        columns: Any = {k: str(known[k]) for k in ("id", "time", "value", "error", "band", "label") if known.get(k)}
        self.config = SeriesConfig(max_length=self.max_length, known=model.config.known, **columns)

    def read(self, path: str | Path, labels: str = "", labelled: bool = False) -> Curves:
        """The series of a file or folder, as `regard train series` reads them; `labels` is a table beside them."""
        beside = Path(labels) if labels else None
        if self.config.known and beside is None:
            names = ", ".join(self.config.known)
            raise ConfigError(f"this model also wants to know {names} of each object; give the table: --labels FILE")
        hint = "give a table of them: --labels FILE"
        return self.fitted(read_series(Path(path), self.config, beside, labelled, hint))

    def fitted(self, curves: Curves) -> Curves:
        return with_bands(curves, self.model.config.bands)

    @torch.inference_mode()
    def probabilities(self, curves: Curves) -> np.ndarray:
        """N L, in the order of `labels`; points after `max_length` are not read."""
        if not len(curves):
            return np.zeros((0, len(self.labels)))
        source = SeriesSource(curves, self.labels, self.max_length)
        found = []
        for batch in in_order(source, FixedSize(BATCH)):
            found.append(self.model.scores(self.model(*batch.to(self.device).inputs)))
            tick(len(batch))
        return torch.cat(found).double().softmax(-1).cpu().numpy()

    def classify(self, curves: Curves) -> list[Answer]:
        return [
            Answer(self.labels[int(row.argmax())], dict(zip(self.labels, row.tolist(), strict=True)))
            for row in self.probabilities(curves)
        ]

    @torch.inference_mode()
    def attention(self, curves: Curves, row: int = 0) -> np.ndarray:
        """How much the last layer looks at each point of a series, summing to 1: the mean over heads and queries, the
        first token's own share left out. A token shares its part among its points."""
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
    """What will come: the next H times, the mean of each column, H C, and its quantiles, H C Q, rising."""

    columns: tuple[str, ...]
    times: np.ndarray
    mean: np.ndarray
    quantiles: np.ndarray
    levels: tuple[float, ...]


class ForecastPredictor:
    """A table over time to its next rows."""

    def __init__(self, model: Any, device: str, known: dict[str, Any]):
        self.model, self.device = model.to(device).eval(), device
        self.config, self.time = model.config, str(known.get("time", ""))

    def read(self, path: str | Path) -> History:
        """The columns this model was trained on."""
        return read_history(Path(path), HistoryConfig(path=str(path), time=self.time, target=self.config.columns))

    @torch.inference_mode()
    def forecast(self, history: History) -> Outlook:
        """The `horizon` rows after the last of the table, from its last `lookback`."""
        c = self.config
        if len(history) < c.lookback:
            raise DataError(f"the table has {len(history):,} rows, but this model looks {c.lookback:,} back; give more")
        past = torch.from_numpy(history.values[-c.lookback :]).float()[None]
        told = self.model(past.to(self.device))[0].double().cpu().numpy()  # H C 1+Q
        quantiles = np.sort(told[..., 1:], -1)  # they are learned apart and may cross
        return Outlook(c.columns, history.after(c.horizon), told[..., 0], quantiles, c.quantiles)
