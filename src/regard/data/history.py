"""Tables over time, for forecasting: series on a calendar, and every window of them."""

import dataclasses
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from regard import limits
from regard.data import split
from regard.data.batch import Samples
from regard.data.calendar import Calendar, TimedRows, in_order, infer_calendar, on_calendar, resample
from regard.data.cells import decimal_mark, is_missing, usable
from regard.data.fetch import get_files
from regard.data.folders import Say, to_stderr, user_path
from regard.data.loader import Source
from regard.data.series import TIMES
from regard.data.settings import HistoryConfig
from regard.data.tables import DataTable, read_table
from regard.errors import ConfigError, DataError
from regard.words import count

CATEGORIES = 100  # values of a covariate that is not a number
NOTES = {
    "undated": ("row", "dropped: no time"),
    "unsorted": ("row", "out of order: sorted by time"),
    "double": ("row", "dropped: duplicate time"),
    "partial": ("step", "dropped at the beginning or the end: incomplete"),
    "gaps": ("time", "missing: left as gaps on the calendar, not trained on or scored"),
    "uneven": ("step", "not of the usual length: rows are treated as equally spaced (--every 1d resamples them)"),
    "filled": ("number", "missing, not finite or too large: the model reads the previous one instead"),
    "ahead": ("row", "at the end without a number: left to forecast"),
    "empty": ("series", "skipped: a column holds no number"),
    "short": ("series", "too short for one window: not trained on"),
}
MOST_WORDS = 0.1  # in the cells of a column of numbers; those rows are skipped


@dataclass(frozen=True, eq=False)
class History:
    """T rows of C columns of one series; `times` are None if there are none."""

    columns: tuple[str, ...]
    values: np.ndarray  # T C; missing values are replaced by the previous one
    times: np.ndarray | None
    dated: bool = False  # whether times are days since 1970
    name: str = ""  # of the series
    gaps: np.ndarray | None = None  # T C: which values are missing
    covariates: np.ndarray | None = None  # T+A K, including rows to forecast; NaN: missing
    inputs: tuple[str, ...] = ()  # the names of the K covariates
    calendar: Calendar | None = None  # None: the rows are treated as equally spaced
    first: int = 0  # position of the first row on the calendar

    def __len__(self) -> int:
        return len(self.values)

    def after(self, steps: int) -> np.ndarray:
        """The times of the next `steps` rows; without times, their distance from the last row."""
        ahead = np.arange(1, steps + 1)
        if self.times is None:
            return ahead.astype(float)
        calendar, last = self.calendar, self.first + len(self) - 1
        if calendar is None and (inferred := infer_calendar(self.times, self.dated)):
            calendar, last = inferred[0], int(inferred[1][-1])
        if calendar is None:
            return self.times[-1] + ahead * float(np.median(np.diff(self.times)))
        return self.times[-1] + (calendar.times(last + ahead) - calendar.times(np.array([last])))


def read_histories(path: Path, config: HistoryConfig, say: Say = to_stderr) -> list[History]:
    """The series of a table on their common calendar; changes are reported."""
    table, report = read_table(path, spaces=True, say=say, strict=config.strict), Counter()
    clock = table.find(config.time, TIMES, "time", needed=False)
    key = table.find(config.series, (), "series") if config.series else ""
    covariate_names = {part.lower() for name in config.covariates for part in (name, name.partition("=")[0])}
    free = (name for name in table.columns if name not in (clock, key) and name.lower() not in covariate_names)
    names = list(config.target) or [name for name in free if _numeric(table, name)]
    names = [table.find(name, (), "target") for name in names]
    if not names:
        raise DataError(f"{path} has no column of numbers; there are: {table.listed()}")
    if both := [name for name in names if name.lower() in covariate_names]:
        raise ConfigError(f"{both[0]!r} is forecast, so it cannot be known in advance; leave it out of --covariates")
    for name in names:
        if how := table.notation(name):
            say(f"{name!r}: {how}, read as numbers")
    checks = {name: table.number_check(name) for name in names} | ({clock: table.time_check(clock)} if clock else {})
    table = table.usable(checks, config.strict, say)
    inputs, covariates = covariate_inputs(table, config.covariates)
    values = np.stack([table.numbers(name) for name in names], 1)
    values[~usable(values)] = np.nan
    labels, series = np.unique(np.array(table.names(key)) if key else np.zeros(len(table), int), return_inverse=True)
    times, dated = table.moments(clock) if clock else None, bool(clock) and table.is_dated(clock)
    rows, calendar = in_order(TimedRows(series, np.hstack([values, covariates]), times, series), report), None
    if config.every and not dated:
        raise ConfigError("--every resamples by date; name the column of the dates: --set data.time=NAME")
    if config.every:
        rows, calendar = resample(rows, len(names), config, report)
    elif rows.times is not None and config.calendar:
        rows, calendar = on_calendar(rows, dated, report)
    histories, borders = [], np.searchsorted(rows.series, np.arange(len(labels) + 1))
    for name, start, stop in zip(labels, borders[:-1], borders[1:], strict=True):
        some = rows.take(np.arange(start, stop))
        own = History(tuple(names), some.values, None, dated, str(name) * bool(key), inputs=inputs, calendar=calendar)
        histories += _laid_out(own, some, config, path, report)
    _say_notes(report, say)
    if not key and report["double"] > len(table) / 10:
        say("if the table holds several series, name their column: --series COLUMN")
    if not histories:
        raise DataError(f"{path}: a column to forecast holds no number at all")
    if calendar is not None and (gap := _long_gap(rows, dated)):
        say(gap)
    return histories


def _long_gap(rows: TimedRows, dated: bool) -> str:
    """A note on a gap that is longer than all rows together: one of its dates may be wrong."""
    steps = np.where(np.diff(rows.series) == 0, np.diff(rows.places), 0)
    if not len(steps) or steps.max() <= len(rows.places):
        return ""
    ends = rows.times[[steps.argmax(), steps.argmax() + 1]]
    first, last = (str(np.datetime64(int(t), "D")) if dated else f"{t:g}" for t in ends)
    return f"the longest gap, from {first} to {last}, is longer than all rows together; check these dates"


def _say_notes(report: Counter, say: Say) -> None:
    for key, (what, note) in NOTES.items():
        if report[key]:
            say(f"{count(report[key], what, 'series' if what == 'series' else '')} {note}")


def _numeric(table: DataTable, name: str) -> bool:
    """Whether a column holds numbers, and hardly anything else."""
    cells = [cell for cell in table.text(name) if not is_missing(cell)]
    return bool(cells) and (table.is_numeric(name) or decimal_mark(cells, MOST_WORDS) is not None)


def covariate_inputs(table: DataTable, names: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """Columns known in advance as inputs, R K: one per number, one `name=value` per value of a category."""
    inputs: dict[str, np.ndarray] = {}
    for name in names:
        column, _, value = (name, "", "") if name.lower() in table.lower else name.partition("=")
        column = table.find(column, (), "covariates")
        if not value and _numeric(table, column):
            inputs[column] = table.numbers(column)
            continue
        cells = [cell.strip() for cell in table.text(column)]
        values = [value] if value else sorted({cell for cell in cells if not is_missing(cell)})
        if len(values) > CATEGORIES:
            what = f"{table.path}: the covariate {column!r} has {len(values):,} values"
            raise DataError(f"{what}; expected numbers, or at most {CATEGORIES} categories")
        inputs |= {f"{column}={v}": np.array([cell == v for cell in cells], float) for v in values}
    arrays = list(inputs.values())
    return tuple(inputs), np.stack(arrays, 1) if arrays else np.zeros((len(table), 0))


def _laid_out(own: History, rows: TimedRows, config: HistoryConfig, path: Path, report: Counter) -> list[History]:
    """The rows of one series at equal steps, gaps filled by the previous value; empty if there is nothing to forecast.
    Last rows that hold only covariates are rows to forecast."""
    if not len(rows.places):
        return []
    columns, first, steps = len(own.columns), int(rows.places[0]), int(np.ptp(rows.places)) + 1
    what, hint = f"{path}: {steps:,} steps in time", "resample to longer steps (--every 1d)"
    limits.require(8 * steps * rows.values.shape[1], what, hint)
    values, at = np.full((steps, rows.values.shape[1]), np.nan), rows.places - first
    values[at] = rows.values
    gone = np.isnan(values[:, :columns])
    if gone.all(0).any():
        report["empty"] += bool(own.name)
        return []
    total = int(np.flatnonzero(np.any(~gone, axis=1))[-1]) + 1 if config.calendar else steps
    present, gone, times = at[at < total], gone[:total], rows.times
    report["gaps"] += total - len(present)
    report["ahead"] += len(at) - len(present)
    report["filled"] += int(gone[present].sum())
    if times is not None:
        exact, times = times, times if own.calendar is None else own.calendar.times(np.arange(first, first + steps))
        times[at] = exact
    return [
        replace(own, values=_filled(values[:total, :columns], gone), gaps=gone, first=first,
                times=None if times is None else times[:total],
                covariates=values[:, columns:] if own.inputs else None)
    ]  # fmt: skip


def _filled(values: np.ndarray, gone: np.ndarray) -> np.ndarray:
    """Forward-fill missing values; at the beginning, use the first value."""
    last = np.maximum.accumulate(np.where(gone, -1, np.arange(len(values))[:, None]), 0)
    return np.take_along_axis(values, np.where(last < 0, np.argmin(gone, 0), last), 0)


# Windows


class Windows(Source):
    """Every window whose future lies in rows `start` to `stop`: its past, and its future, NaN in gaps.

    `values` may hold several series, one after the other: `origins` are their first rows, and `start` and `stop` have
    a number for each."""

    def __init__(
        self,
        values: np.ndarray,
        start: int | np.ndarray,
        stop: int | np.ndarray,
        lookback: int,
        horizon: int,
        origins: np.ndarray | int = 0,
        gaps: np.ndarray | None = None,
        covariates: np.ndarray | None = None,
    ):
        self.values, self.lookback, self.horizon = values.astype(np.float32), lookback, horizon
        self.gaps = gaps if gaps is not None and gaps.any() else None
        self.covariates = None if covariates is None else covariates.astype(np.float32)
        first, stop, origins = np.broadcast_arrays(*map(np.atleast_1d, (start, stop, origins)))
        first = np.maximum(first, origins + lookback)  # the first row to forecast
        spans = [np.arange(a, b - horizon + 1) for a, b in zip(first, stop, strict=True)]
        self.first = np.concatenate(spans).astype(np.int64)
        if self.gaps is not None:  # drop windows whose future is all gaps
            seen = np.concatenate(([0], np.cumsum((~self.gaps).any(1))))
            self.first = self.first[seen[self.first + horizon] > seen[self.first]]

    def __len__(self) -> int:
        return len(self.first)

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> Samples:
        past, future, at = self.cut(rows)
        if self.gaps is not None:
            future = future.masked_fill(torch.from_numpy(self.gaps[at[:, self.lookback :]]), torch.nan)
        covariates = () if self.covariates is None else (torch.from_numpy(self.covariates[at]),)  # B L+H K
        return Samples((past, *covariates), future, rows)

    def spread_evenly(self, most: int) -> np.ndarray:
        """At most this many of the windows."""
        return np.unique(np.linspace(0, len(self) - 1, min(most, len(self))).astype(int))

    def cut(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
        """Past B L C and future B H C, gaps filled, and their rows, B L+H."""
        at = (self.first[rows] - self.lookback)[:, None] + np.arange(self.lookback + self.horizon)
        both = torch.from_numpy(self.values[at])
        return both[:, : self.lookback], both[:, self.lookback :], at


@dataclass(frozen=True)
class HistoryParts:
    histories: list[History]
    train: Windows
    valid: Windows
    test: Windows
    rows: int  # of the training set, on the common calendar
    tested: int = 0  # start of the test set
    scaled: bool = False  # whether windows are in units of their series' spread, as for several series

    @property
    def training(self) -> list[np.ndarray]:
        """The training rows of each series."""
        return [h.values[:stop] for h, stop in zip(self.histories, rows_before(self.histories, self.rows), strict=True)]

    @property
    def spread(self) -> np.ndarray:
        """The spread of each column in training; 1 if windows are already in these units."""
        return np.ones(len(self.histories[0].columns)) if self.scaled else spread(self.training[0])

    def contents(self, first: int, last: int | None = None) -> list[bytes]:
        """The identity of each row between two positions: its series, time and values."""
        ends = [rows_before(self.histories, place).tolist() for place in (first, sys.maxsize if last is None else last)]
        return [
            f"{h.name} {h.times[i]}".encode() + h.values[i].tobytes()
            for h, start, stop in zip(self.histories, *ends, strict=True)
            if h.times is not None
            for i in range(start, stop)
        ]

    @property
    def covariate_spread(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of each covariate in training."""
        ends = rows_before(self.histories, self.rows)
        rows = np.concatenate([h.covariates[:stop] for h, stop in zip(self.histories, ends, strict=True)])  # pyrefly: ignore
        rows = np.where(np.isnan(rows).all(0), 0.0, rows)
        mean = np.nanmean(rows, 0)
        return mean, spread(np.where(np.isnan(rows), mean, rows))


def spread(rows: np.ndarray) -> np.ndarray:
    """The standard deviation of each column; 1 if it is constant."""
    if not len(rows):
        return np.ones(rows.shape[1])
    return np.where(np.ptp(rows, 0) > 0, rows.std(0), 1.0)  # the standard deviation of a constant 0.1 is not exactly 0


def rows_before(histories: Sequence[History], place: int) -> np.ndarray:
    """How many rows of each series precede a position of the common calendar."""
    first = np.array([h.first for h in histories])
    return np.clip(place - (first - first.min()), 0, [len(h) for h in histories])


def _windows(histories: Sequence[History], borders: Sequence[tuple[int, int]], config: HistoryConfig) -> list[Windows]:
    """The windows of each part; several series are scaled by their spread in training, so that they count equally."""
    trained = rows_before(histories, borders[0][1])
    units = [spread(h.values[:stop]) if config.series else 1.0 for h, stop in zip(histories, trained, strict=True)]
    values = [h.values / unit for h, unit in zip(histories, units, strict=True)]
    covariates = [h.covariates[: len(h)] for h in histories if h.covariates is not None]
    origins = np.cumsum([0, *map(len, histories[:-1])])
    gaps = [np.zeros(h.values.shape, bool) if h.gaps is None else h.gaps for h in histories]

    def windows(first: int, last: int) -> Windows:
        start, stop = (origins + rows_before(histories, place) for place in (first, last))
        return Windows(np.concatenate(values), start, stop, config.lookback, config.horizon, origins,
                       np.concatenate(gaps), np.concatenate(covariates) if covariates else None)  # fmt: skip

    return [windows(*border) for border in borders]


def _shorter(config: HistoryConfig, borders: list[tuple[int, int]]) -> str:
    """What to type so that every part has a few windows; "" if there are too few rows."""
    train, *others = (stop - start for start, stop in borders)
    horizon = min(config.horizon, min(others) // 2)
    lookback = min(config.lookback, (train - horizon) // 2)
    return f", or type --horizon {horizon} --set data.lookback={lookback}" if horizon > 0 and lookback > 1 else ""


def shrink_lookback(config: HistoryConfig, rows: int, say: Say) -> HistoryConfig:
    """The settings with a look-back that half of the `rows` to train on contain, if one window is longer than all."""
    lookback = (rows - config.horizon) // 2
    if config.lookback + config.horizon <= rows or lookback < 2:
        return config
    say(f"look-back shortened from {config.lookback} to {lookback} rows: there are {rows:,} to train on")
    return dataclasses.replace(config, lookback=lookback)


def read_parts(config: HistoryConfig, say: Say = to_stderr, shrink: bool = False) -> HistoryParts:
    """The table split in time into training, validation and test set, whose windows may look back over the border but
    are never trained on. With `shrink`, for a new model, a look-back longer than the training set is shortened."""
    if bool(config.name) == bool(config.path):
        raise ConfigError("train on what? give --data FILE, a table or an NPZ file of rows in time, or a name")
    path = get_files(config.name, "history", say=say).train if config.name else user_path(config.path)
    histories = read_histories(path, config, say)
    total = max(h.first + len(h) for h in histories) - min(h.first for h in histories)
    borders = split.in_time(total, config.parts)
    if borders[2][1] > total:
        raise DataError(f"{path} has {total:,} rows; data.parts need {borders[2][1]:,}")
    config = shrink_lookback(config, borders[0][1] - borders[0][0], say) if shrink else config
    parts = _windows(histories, borders, config)
    for what, (start, stop), windows in zip(("train", "validate", "test"), borders, parts, strict=True):
        if not len(windows) and windows.gaps is not None and windows.gaps.mean() > 0.5:
            raise DataError(f"{path}: no window to {what} on, because most of the calendar is missing")
        if not len(windows):
            need = config.horizon + (config.lookback if what == "train" else 0)
            raise DataError(
                f"{path}: {stop - start:,} rows to {what} on, but one window takes {need:,} (horizon {config.horizon}, "
                f"look-back {config.lookback}); give more rows{_shorter(config, borders)}"
            )
    several = f"{len(histories):,} series, " if len(histories) > 1 else ""
    _say_notes(Counter(short=sum(len(h) < config.lookback + config.horizon for h in histories)), say)
    say(
        f"{several}{total:,} rows of {count(len(histories[0].columns), 'column')}; windows of {config.lookback} rows, "
        f"{config.horizon} to forecast: "
        + ", ".join(f"{len(p):,} to {w}" for p, w in zip(parts, ("train", "validate", "test"), strict=True))
    )
    return HistoryParts(histories, *parts, rows=borders[0][1], tested=borders[2][0], scaled=bool(config.series))
