"""A table over time, for forecasting: columns of numbers at equal steps, and every window of it."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from regard.data import split
from regard.data.batch import Samples
from regard.data.cells import is_missing, is_number, usable
from regard.data.fetch import get_files
from regard.data.folders import Say, to_stderr, user_path
from regard.data.loader import Source
from regard.data.series import TIMES
from regard.data.settings import HistoryConfig
from regard.data.skipped import number_fault
from regard.data.tables import DataTable, read_table
from regard.errors import ConfigError, DataError

NOTES = {
    "filled": "{:,} numbers missing, not finite or too large; replaced by the one before",
    "double": "{:,} rows dropped: the same time came before",
    "unsorted": "{:,} rows were out of order; sorted by time",
    "undated": "{:,} rows dropped: no time",
    "uneven": "{:,} steps are not of the usual length; rows are taken as equally spaced",
}
MOST_WORDS = 0.1  # of the cells of a column of numbers; those rows are skipped


@dataclass(frozen=True, eq=False)
class History:
    """T rows of C columns; `times` are None where the rows have none."""

    columns: tuple[str, ...]
    values: np.ndarray  # T C
    times: np.ndarray | None
    dated: bool = False  # whether times are days since 1970
    report: Counter = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self.values)

    def notes(self) -> list[str]:
        return [NOTES[what].format(count) for what, count in sorted(self.report.items()) if count]

    def after(self, steps: int) -> np.ndarray:
        """The times of the next `steps` rows; without times, how many rows after the last."""
        ahead = np.arange(1, steps + 1)
        if self.times is None:
            return ahead.astype(float)
        step = float(np.median(np.diff(self.times)))
        days = np.floor(self.times).astype(np.int64)
        if self.dated and step == 1 and len(days) > 10 and np.is_busday(days.astype("datetime64[D]")).all():
            later = np.busday_offset(days[-1].astype("datetime64[D]"), ahead)  # a table without weekends goes on so
            return later.astype(np.int64) + self.times[-1] % 1
        return self.times[-1] + ahead * step


def read_history(path: Path, config: HistoryConfig, say: Say = to_stderr) -> History:
    table = read_table(path, spaces=True, say=say, strict=config.strict)
    clock = table.find(config.time, TIMES, "time", needed=False)
    report: Counter = Counter()
    names = list(config.target) or [name for name in table.columns if name != clock and _numeric(table, name)]
    names = [table.find(name, (), "target") for name in names]
    if not names:
        raise DataError(f"{path} has no column of numbers; there are: {table.listed()}")
    checks = dict.fromkeys(names, number_fault) | ({clock: table.time_check(clock)} if clock else {})
    table = table.usable(checks, config.strict, say)
    values = np.stack([table.numbers(name) for name in names], 1)
    times = table.moments(clock) if clock else None
    if times is not None:
        dated = np.isfinite(times)
        report["undated"] = int((~dated).sum())
        values, times = values[dated], times[dated]
        report["unsorted"] = int((np.diff(times) < 0).sum())
        order = np.argsort(times, kind="stable")
        values, times = values[order], times[order]
        again = np.concatenate(([False], np.diff(times) == 0))
        report["double"] = int(again.sum())
        values, times = values[~again], times[~again]
        steps = np.diff(times)
        report["uneven"] = int((np.abs(steps - np.median(steps)) > 0.01 * np.median(steps)).sum()) if len(steps) else 0
    values, report["filled"] = _filled(values, path)
    return History(tuple(names), values, times, bool(clock) and table.is_dated(clock), report)


def _numeric(table: DataTable, name: str) -> bool:
    """Whether there are numbers in a column, and next to nothing else."""
    cells = [cell for cell in table.text(name) if not is_missing(cell)]
    words = 0 if table.is_numeric(name) else sum(not is_number(cell) for cell in cells)
    return bool(cells) and words <= MOST_WORDS * len(cells)


def _filled(values: np.ndarray, path: Path) -> tuple[np.ndarray, int]:
    """What is missing takes the number before it; at the very beginning, the first there is."""
    gone = ~usable(values)
    if gone.all(0).any():
        raise DataError(f"{path}: a column to forecast holds no number at all")
    last = np.maximum.accumulate(np.where(gone, -1, np.arange(len(values))[:, None]), 0)
    first = np.argmin(gone, 0)
    return np.take_along_axis(values, np.where(last < 0, first, last), 0), int(gone.sum())


class Windows(Source):
    """Every window whose future lies in rows `start` to `stop`: the rows before it, and the future."""

    def __init__(self, values: np.ndarray, start: int, stop: int, lookback: int, horizon: int):
        self.values, self.lookback, self.horizon = values.astype(np.float32), lookback, horizon
        self.first = max(start, lookback)  # the first row forecast
        self.count = max(0, stop - horizon - self.first + 1)

    def __len__(self) -> int:
        return self.count

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> Samples:
        at = (self.first - self.lookback + rows)[:, None] + np.arange(self.lookback + self.horizon)
        both = torch.from_numpy(self.values[at])  # B L+H C
        return Samples((both[:, : self.lookback],), both[:, self.lookback :], rows)


@dataclass(frozen=True)
class HistoryParts:
    history: History
    train: Windows
    valid: Windows
    test: Windows
    rows: int  # of the training part

    @property
    def spread(self) -> np.ndarray:
        """Of each column over the training part; 1 where it never moves."""
        rows = self.history.values[: self.rows]
        return np.where(np.ptp(rows, 0) > 0, rows.std(0), 1.0)  # the spread of 0.1 alone is not quite 0


def _shorter(config: HistoryConfig, borders: list[tuple[int, int]]) -> str:
    """What to type so that every part has a few windows; "" where there are too few rows for that."""
    train, *others = (stop - start for start, stop in borders)
    horizon = min(config.horizon, min(others) // 2)
    lookback = min(config.lookback, (train - horizon) // 2)
    return f", or type --horizon {horizon} --set data.lookback={lookback}" if horizon > 0 and lookback > 1 else ""


def read_parts(config: HistoryConfig, say: Say = to_stderr) -> HistoryParts:
    """The table cut in time: the past to train on, then rows to validate and to test on, which may look back over the
    border but are never trained on."""
    if bool(config.name) == bool(config.path):
        raise ConfigError("train on what? give --data FILE, a table or an NPZ file of rows in time, or a name")
    path = get_files(config.name, "history", say=say).train if config.name else user_path(config.path)
    history = read_history(path, config, say)
    for line in history.notes():
        say(line)
    total = len(history)
    borders = split.in_time(total, config.parts)
    if borders[2][1] > total:
        raise DataError(f"{path} has {total:,} rows; data.parts need {borders[2][1]:,}")
    parts = [Windows(history.values, *border, config.lookback, config.horizon) for border in borders]
    for what, (start, stop), windows in zip(("train", "validate", "test"), borders, parts, strict=True):
        if not len(windows):
            need = config.horizon + (config.lookback if what == "train" else 0)
            raise DataError(
                f"{path}: {stop - start:,} rows to {what} on, but one window takes {need:,} (horizon {config.horizon}, "
                f"look-back {config.lookback}); give more rows{_shorter(config, borders)}"
            )
    say(
        f"{total:,} rows of {len(history.columns)} columns; windows of {config.lookback} rows, "
        f"{config.horizon} to forecast: "
        + ", ".join(f"{len(p):,} to {w}" for p, w in zip(parts, ("train", "validate", "test"), strict=True))
    )
    return HistoryParts(history, *parts, rows=borders[0][1])
