"""Batches of series: padded, with some points hidden for masked pre-training."""

import numpy as np
import torch
from torch import Tensor

from regard.data.batch import Samples
from regard.data.loader import Source
from regard.data.series import Curves

HIDDEN = 0.3  # of the points, in masked pre-training


class SeriesSource(Source):
    """The series of a part by index. In training a random span of `window` points is read, otherwise the first
    `max_length`; with `thin`, random points are dropped instead; values get noise of `jitter` times their errors, and
    the share `hide` of them is hidden. Targets are the indices of the labels."""

    def __init__(
        self,
        curves: Curves,
        labels: tuple[str, ...],
        max_length: int,
        window: int = 0,
        jitter: float = 0.0,
        hide: float = 0.0,
        thin: float = 0.0,
    ):
        self.curves, self.max_length, self.window = curves, max_length, window
        self.jitter, self.hide, self.thin = jitter, hide, thin
        at = {label: i for i, label in enumerate(labels)}
        self.targets = np.array([at.get(label, -1) for label in curves.labels or [""] * len(curves)])
        self.known = None if curves.known is None else curves.known.astype(np.float32)

    def __len__(self) -> int:
        return len(self.curves)

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> Samples:
        known = None if self.known is None else torch.from_numpy(self.known[rows])
        inputs = (*self.points(rows, rng), known)
        if rng is not None and self.hide:
            inputs = (*inputs, hidden(inputs, rng, self.hide))
        return Samples(inputs, torch.from_numpy(self.targets[rows]), rows)

    def points(self, rows: np.ndarray, rng: np.random.Generator | None) -> tuple[Tensor | None, ...]:
        """Times, values, errors, bands, B T each, and lengths, B; times count from the first point of each series.

        Errors and bands are None if there are none, lengths if all are equal.
        """
        c, starts = self.curves, self.curves.offsets[rows]
        lengths = np.minimum(c.lengths[rows], self.max_length)
        if rng is not None and self.window and not self.thin:
            whole, lengths = c.lengths[rows], np.minimum(lengths, self.window)
            starts = starts + (rng.random(len(rows)) * (whole - lengths + 1)).astype(int)
        places = np.arange(lengths.max())
        real = places < lengths[:, None]
        if rng is not None and self.thin:
            places, lengths = thinned(real, lengths, self.thin, self.window, rng)
            real = np.arange(lengths.max()) < lengths[:, None]
        at = np.where(real, starts[:, None] + places, starts[:, None])  # B T

        def padded(x: np.ndarray | None, dtype: type) -> Tensor | None:
            return None if x is None else torch.from_numpy(np.where(real, x[at], 0).astype(dtype))

        times = c.times[at] - c.times[at[:, :1]]
        clock = torch.from_numpy(np.where(real, times, 0.0).astype(np.float32))
        sizes = None if real.all() else torch.from_numpy(lengths)
        values, errors = (padded(x, np.float32) for x in (c.values, c.errors))
        if rng is not None and self.jitter and values is not None and errors is not None:
            values += self.jitter * errors * torch.from_numpy(rng.normal(size=real.shape).astype(np.float32))
        return clock, values, errors, padded(c.bands, np.int64), sizes


def thinned(
    real: np.ndarray, lengths: np.ndarray, thin: float, window: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The indices of the points that stay, B T in order, and how many: up to the share `thin` of a series is dropped,
    and at least what exceeds the `window`."""
    few = np.minimum(lengths, window or lengths.max())
    few = np.maximum(1, np.rint(few * (1 - thin * rng.random(len(few))))).astype(int)
    order = np.argsort(np.where(real, rng.random(real.shape), 2.0), 1)[:, : few.max()]  # real ones first, shuffled
    stays = np.arange(few.max()) < few[:, None]
    return np.sort(np.where(stays, order, real.shape[1]), 1), few


class HiddenSource(SeriesSource):
    """For masked pre-training: validation series hide points too, always the same ones. Targets are the numbers of
    hidden points."""

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> Samples:
        batch = super().batch(rows, rng)
        rng = np.random.default_rng(int(rows[0])) if rng is None else rng
        which = hidden(batch.inputs, rng, self.hide or HIDDEN)
        return Samples((*batch.inputs[:6], which), which.sum(1), rows)


def hidden(inputs: tuple[Tensor | None, ...], rng: np.random.Generator, part: float) -> Tensor:
    """B T: which points hide their value; padding never does."""
    values, lengths = inputs[1], inputs[4]
    assert values is not None
    real = np.arange(values.size(1)) < (np.inf if lengths is None else lengths.numpy()[:, None])
    return torch.from_numpy((rng.random(values.shape) < part) & real)
