"""Pictures of a series with a classifier's attention, and of a forecast with its intervals."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.cells import DAY
from regard.data.history import History
from regard.data.series import Curves
from regard.explain import picture

MOST = 6  # panels of a forecast


def draw_attention(curves: Curves, row: int, weights: np.ndarray, title: str, path: str | Path) -> Path:
    """Draw the points of a series, each band in its colour, larger and darker with more attention."""
    fig = picture.figure(7.5, 4.2)
    axes, below = fig.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    start, count = int(curves.offsets[row]), len(weights)
    at = slice(start, start + count)
    times, values = curves.times[at], curves.values[at]
    bands = np.zeros(count, int) if curves.bands is None else curves.bands[at]
    strength, width = weights / weights.max(), (float(np.ptp(times)) or 1.0) / 300
    for b, name in enumerate(curves.band_names):
        mine, colour = bands == b, picture.COLOURS[b % len(picture.COLOURS)]
        if not mine.any():
            continue
        if curves.errors is not None:
            how = dict(fmt="none", ecolor=colour, alpha=0.25, linewidth=0.8)
            axes.errorbar(times[mine], values[mine], curves.errors[at][mine], **how)
        how = dict(color=colour, alpha=0.2 + 0.7 * strength[mine], linewidths=0, label=name)
        axes.scatter(times[mine], values[mine], 6 + 60 * strength[mine], **how)
        below.bar(times[mine], weights[mine] * 100, width, color=colour)
    if len(curves.band_names) > 1:
        axes.legend(fontsize=8, ncols=3, markerscale=0.8, frameon=False)
    axes.set_title(title, fontsize=10)
    axes.set_ylabel("value")
    below.set_ylabel("attention, %", fontsize=8)
    below.set_xlabel("time")
    return picture.save(fig, path)


def draw_forecast(histories: Sequence[History], outlooks: Sequence[Any], path: str | Path) -> Path:
    """Draw the end of the past, the predicted mean and the quantiles; a panel for each series and column, up to
    `MOST`."""
    panels = [(h, o, c) for h, o in zip(histories, outlooks, strict=True) for c in range(len(o.columns))][:MOST]
    fig = picture.figure(7.5, 1.2 + 1.7 * len(panels))
    rows = np.atleast_1d(fig.subplots(len(panels), 1, sharex=True))
    for (history, outlook, c), axes in zip(panels, rows, strict=True):
        past = min(len(history), 2 * len(outlook.times) + 24)
        before = np.arange(1.0 - past, 1.0) if history.times is None else history.times[-past:]
        before, after = (as_dates(t) if history.dated else t for t in (before, outlook.times))
        values = history.values[-past:, c]
        if history.gaps is not None:
            values = np.where(history.gaps[-past:, c], np.nan, values)
        axes.plot(before, values, color=picture.COLOURS[6], linewidth=1, label="past")
        axes.plot(after, outlook.mean[:, c], color=picture.COLOURS[1], linewidth=1.4, label="predicted mean")
        for i in range(len(outlook.levels) // 2):
            low, high = outlook.quantiles[:, c, i], outlook.quantiles[:, c, -1 - i]
            share = f"{outlook.levels[i]:.0%} to {outlook.levels[-1 - i]:.0%}"
            axes.fill_between(after, low, high, color=picture.COLOURS[0], alpha=0.25, linewidth=0, label=share)
        axes.set_ylabel(f"{outlook.name} {outlook.columns[c]}".strip(), fontsize=8)
    rows[0].legend(fontsize=8, ncols=3, frameon=False, loc="upper left")
    rows[-1].set_xlabel("rows after the last" if histories[0].times is None else "time")
    rows[-1].tick_params(axis="x", labelrotation=20)
    return picture.save(fig, path)


def as_dates(days: np.ndarray) -> np.ndarray:
    return (np.asarray(days) * DAY).round().astype("datetime64[s]")
