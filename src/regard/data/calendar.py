"""The calendar of a table over time: equal steps, business days or months; and the position of each row on it."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from regard.data.settings import EVERY, HistoryConfig
from regard.errors import ConfigError

DAYS = {"s": 1 / 86_400, "min": 1 / 1440, "h": 1 / 24, "d": 1.0, "w": 7.0}
MONTHS = {"mo": 1, "q": 3, "y": 12}
EVEN = 0.01  # of a step: the tolerance of multiples of a step
MONDAY = 4.0  # the first after 1970-01-01
MOST = 2**52  # positions of a calendar
FEWEST = 11  # days needed to conclude that a table has no weekends


@dataclass(frozen=True)
class Calendar:
    """Position i is the time `start` + i steps, each of `step` units of time, business days or months."""

    start: float  # days since 1970, unless the steps are plain numbers
    step: float
    unit: str = ""  # "", "business days" or "months"
    month_ends: bool = False

    def times(self, places: np.ndarray) -> np.ndarray:
        places = np.asarray(places)
        if self.unit == "business days":
            days = np.busday_offset(_days([self.start])[0], places.astype(np.int64) * int(self.step))
            return days.astype(np.int64) + self.start % 1
        if self.unit == "months":
            shift = 1 if self.month_ends else 0
            within = self.start + shift - _month_start(_month([self.start + shift]))[0]
            months = _month([self.start + shift])[0] + places.astype(np.int64) * int(self.step)
            return _month_start(months) + within - shift
        return self.start + places * self.step

    def places(self, times: np.ndarray) -> np.ndarray:
        """The step each time lies in."""
        if self.unit == "months":
            return (_month(times) - _month([self.start])[0]) // int(self.step)
        return np.floor((times - self.start) / self.step + 1e-6).astype(np.int64)


def _days(times: np.ndarray | list[float]) -> np.ndarray:
    return np.floor(np.asarray(times)).astype(np.int64).astype("datetime64[D]")


def _month(times: np.ndarray | list[float]) -> np.ndarray:
    """Months since January 1970."""
    return _days(times).astype("datetime64[M]").astype(np.int64)


def _month_start(months: np.ndarray) -> np.ndarray:
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.float64)


def resampled(every: str, first: float) -> Calendar:
    """The calendar of `data.every`, from the step that `first` lies in: weeks start on Monday, months on the 1st."""
    match = re.fullmatch(EVERY, every)
    assert match, "checked by the settings"
    number, unit = int(match[1] or 1), match[2]
    if unit in MONTHS:
        step = number * MONTHS[unit]
        return Calendar(float(_month_start(_month([first]) // step * step)[0]), step, "months")
    step, origin = number * DAYS[unit], MONDAY if unit == "w" else 0.0
    return Calendar(origin + np.floor((first - origin) / step + 1e-6) * step, step)


def infer_calendar(times: np.ndarray, dated: bool) -> tuple[Calendar, np.ndarray] | None:
    """The calendar of increasing times, and their positions on it; None if they are not multiples of their usual step
    apart."""
    if len(times) < 2:
        return Calendar(float(times[0]), 1.0), np.zeros(len(times), np.int64)
    steps = np.diff(times)
    if dated and (months := _in_months(times, steps)):
        calendar, places = months
        return calendar, places
    middle = float(np.median(steps))
    sizes, counts = np.unique(np.round(steps / middle, 3), return_counts=True)
    usual = float(np.median(steps[np.round(steps / middle, 3) == sizes[counts.argmax()]]))
    if dated and usual == 1 and len(times) >= FEWEST and np.is_busday(days := _days(times)).all():
        return Calendar(float(times[0]), 1, "business days"), np.busday_count(days[0], days)
    whole = np.round(steps / usual)
    if (np.abs(steps / usual - whole) > EVEN).any() or (whole < 1).any() or whole.sum() > MOST:
        return None
    return Calendar(float(times[0]), usual), np.concatenate(([0], np.cumsum(whole))).astype(np.int64)


def _in_months(times: np.ndarray, steps: np.ndarray) -> tuple[Calendar, np.ndarray] | None:
    """The same day of every month, or its last."""
    if steps.min() < 28:
        return None
    for month_ends in (False, True):
        shifted = times + month_ends
        months = _month(shifted)
        if np.ptp(shifted - _month_start(months)) == 0 and np.diff(months).all():
            step = int(np.gcd.reduce(np.diff(months)))
            return Calendar(float(times[0]), step, "months", month_ends), (months - months[0]) // step
    return None


class TimedRows(NamedTuple):
    """Rows of a table in the order of series and time."""

    series: np.ndarray  # the series of each row
    values: np.ndarray  # C columns to forecast, then K covariates
    times: Any  # None if there are none
    places: np.ndarray  # on the calendar, or consecutive

    def take(self, rows: np.ndarray) -> "TimedRows":
        times = None if self.times is None else self.times[rows]
        return TimedRows(self.series[rows], self.values[rows], times, self.places[rows])


def in_order(rows: TimedRows, report: Counter) -> TimedRows:
    """Sort by series and time; rows without a time, and duplicate times, are dropped."""
    if rows.times is None:
        rows = rows.take(np.argsort(rows.series, kind="stable"))
        return rows._replace(places=np.arange(len(rows.series)) - np.searchsorted(rows.series, rows.series))
    dated = np.isfinite(rows.times)
    report["undated"] = int((~dated).sum())
    rows = rows.take(np.flatnonzero(dated))
    rows = rows.take(np.argsort(rows.series, kind="stable"))
    together = np.diff(rows.series) == 0
    report["unsorted"] = int((together & (np.diff(rows.times) < 0)).sum())
    rows = rows.take(np.lexsort((rows.times, rows.series)))
    again = np.concatenate(([False], (np.diff(rows.series) == 0) & (np.diff(rows.times) == 0)))[: len(rows.times)]
    report["double"] = int(again.sum())
    rows = rows.take(np.flatnonzero(~again))
    return rows._replace(places=np.arange(len(rows.series)) - np.searchsorted(rows.series, rows.series))


def on_calendar(rows: TimedRows, dated: bool, report: Counter) -> tuple[TimedRows, Calendar | None]:
    """Rows at their positions on the calendar if one fits all times; otherwise positions are consecutive."""
    if not len(rows.times):
        return rows, None
    every = np.unique(rows.times)
    inferred = infer_calendar(every, dated)
    if inferred is None:
        steps = np.diff(rows.times)[np.diff(rows.series) == 0]
        report["uneven"] = int((np.abs(steps - np.median(steps)) > 0.01 * np.median(steps)).sum()) if len(steps) else 0
        return rows, None
    calendar, places = inferred
    return rows._replace(places=places[np.searchsorted(every, rows.times)]), calendar


def resample(rows: TimedRows, columns: int, config: HistoryConfig, report: Counter) -> tuple[TimedRows, Calendar]:
    """A row for each step of `config.every`: the mean, sum or last number of the columns to forecast, the mean of
    covariates. A first or last step that is only partly covered is dropped."""
    times = rows.times
    calendar = resampled(config.every, float(times.min()))
    places, distinct = calendar.places(times), np.unique(times)
    usual = float(np.median(np.diff(distinct))) if len(distinct) > 1 else 0.0
    ends = calendar.times(np.array([0, int(places.max()), int(places.max()) + 1]))
    if usual > 1.5 * (ends[2] - ends[1]):
        raise ConfigError(f"--every {config.every} is shorter than the table's own steps of {usual:.6g} days; use a "
                          "longer one, or leave it out")  # fmt: skip
    partial = np.zeros(len(times), bool)
    if usual < ends[2] - ends[1]:
        partial |= (places == 0) & bool(times.min() - ends[0] > 0.5 * usual)
        partial |= (places == places.max()) & bool(ends[2] - times.max() > 1.5 * usual)
    report["partial"] = len(np.unique(places[partial]))
    rows, places = rows.take(np.flatnonzero(~partial)), places[~partial]
    keys, group = np.unique(np.stack([rows.series, places], 1), axis=0, return_inverse=True)
    group, seen = group.reshape(-1), np.isfinite(rows.values)
    counts = _by_group(seen, group, len(keys))
    sums = _by_group(np.where(seen, rows.values, 0.0), group, len(keys))
    with np.errstate(invalid="ignore"):
        values = sums / counts
    if config.aggregate == "sum":
        values[:, :columns] = np.where(counts > 0, sums, np.nan)[:, :columns]
    if config.aggregate == "last":
        for c in range(columns):
            values[group[seen[:, c]], c] = rows.values[seen[:, c], c]  # rows are in time order: the last one stays
    return TimedRows(keys[:, 0], values, calendar.times(keys[:, 1]), keys[:, 1]), calendar


def _by_group(x: np.ndarray, group: np.ndarray, groups: int) -> np.ndarray:
    return np.stack([np.bincount(group, x[:, c], groups) for c in range(x.shape[1])], 1)
