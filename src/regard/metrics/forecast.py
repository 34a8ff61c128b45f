"""Baseline forecasts on the windows a model is scored on: seasonal naive, and a linear map."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from regard.data.batch import Samples
from regard.data.history import Windows
from regard.data.loader import FixedSize, in_order

MOST = 20_000  # windows the linear map is fitted on, spread evenly over all
STRENGTHS = 10.0 ** np.arange(-5, 3.5, 0.5)  # of the ridge, in units of the mean square of an input


@dataclass(frozen=True)
class Errors:
    """Mean squared and absolute error over all windows, steps and columns, in units of each column's spread."""

    name: str
    mse: float
    mae: float


def season_of(values: np.ndarray, most: int) -> int:
    """The lag, at most `most` rows, with the highest peak of the autocorrelation of T C; 1 if there is no peak."""
    x = values - values.mean(0)
    x = x / np.maximum(x.std(0), 1e-12)
    size = 2 ** int(np.ceil(np.log2(2 * len(x))))
    power = np.abs(np.fft.rfft(x, size, axis=0)) ** 2
    likeness = np.fft.irfft(power, axis=0)[: most + 1].mean(1) / len(x)
    peaks = [k for k in range(2, most) if likeness[k] > likeness[k - 1] and likeness[k] >= likeness[k + 1]]
    return max(peaks, key=lambda k: likeness[k]) if peaks else 1


def naive(past: torch.Tensor, horizon: int, season: int) -> torch.Tensor:
    """Repeat the last season: B L C -> B H C."""
    last = past[:, -season:]
    return last[:, torch.arange(horizon) % season]


class LinearForecast:
    """A linear map of the past to the future, shared by all columns, by ridge regression: NLinear of Zeng et al. 2023
    (the last value is subtracted, and added back). The strength of the ridge, which draws forecasts to the last value,
    is the best one for the windows `held_out`."""

    def __init__(self, train: Windows, held_out: Windows, spread: np.ndarray):
        gram, cross = moments(train, spread)
        other_gram, other_cross = moments(held_out, spread)
        values, axes = np.linalg.eigh(gram)  # so that each strength is one product
        values, turned = np.maximum(values, 0), axes.T @ cross
        unit = np.trace(gram) / len(gram) or 1.0  # a constant series keeps its value

        def fitted(strength: float) -> np.ndarray:
            return axes @ (turned / (values + strength * unit)[:, None])

        def error(strength: float) -> float:
            """The squared error on `held_out`, up to a constant."""
            line = fitted(strength)
            return float((line * (other_gram @ line - 2 * other_cross)).sum())

        self.strength = float(min(STRENGTHS, key=error))
        self.map = torch.from_numpy(fitted(self.strength)).float()  # L H

    def __call__(self, past: torch.Tensor) -> torch.Tensor:
        last = past[:, -1:]
        return torch.einsum("blc,lh->bhc", past - last, self.map) + last


def moments(windows: Windows, spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the differences to the last value: the products past by past, L L, and past by future, L H."""
    size = windows.lookback
    gram, cross = np.zeros((size, size)), np.zeros((size, windows.horizon))
    rows = windows.spread_evenly(MOST)
    for start in range(0, len(rows), 512):
        before, after = (x.double().numpy() / spread for x in windows.cut(rows[start : start + 512])[:2])
        x, y = ((part - before[:, -1:]).transpose(0, 2, 1).reshape(-1, part.shape[1]) for part in (before, after))
        gram, cross = gram + x.T @ x, cross + x.T @ y
    return gram, cross


def errors_of(name: str, forecast, batches: Iterable[Samples], spread: np.ndarray) -> Errors:
    """The errors of `forecast`, which maps B L C to B H C."""
    square, absolute, count, unit = 0.0, 0.0, 0, torch.from_numpy(spread).float()
    for batch in batches:
        miss = ((batch.targets - forecast(batch.inputs[0])) / unit)[~batch.targets.isnan()]
        square, absolute = square + miss.square().sum().item(), absolute + miss.abs().sum().item()
        count += miss.numel()
    return Errors(name, square / count, absolute / count)


def to_beat(linear: LinearForecast, windows: Windows, spread: np.ndarray, season: int) -> list[Errors]:
    """The errors of seasonal naive and linear forecasts, on all `windows`."""
    season = min(season, windows.lookback)
    rows = (
        (
            f"the last {season} rows again" if season > 1 else "the last row again",
            lambda past: naive(past, windows.horizon, season),
        ),
        ("a linear map of the past", linear),
    )
    return [errors_of(name, forecast, in_order(windows, FixedSize(256)), spread) for name, forecast in rows]
