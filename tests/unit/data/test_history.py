"""Tables over time and their windows."""

import re

import numpy as np
import pytest

from regard.data.history import HistoryConfig, Windows, read_histories, read_parts
from regard.data.loader import FixedSize, in_order
from regard.errors import ConfigError, DataError
from regard.objectives.forecast import ForecastLoss


def write(path, text):
    path.write_text(text)
    return path


def test_a_table_is_sorted_and_mended(tmp_path):
    text = "date,close,word,open\n2020-01-03,3,x,\n2020-01-01,1,x,inf\n2020-01-01,9,x,9\n,8,x,8\n2020-01-04,1e25,x,7\n"
    notes = []
    history = read_histories(write(tmp_path / "x.csv", text), HistoryConfig(), notes.append)[0]
    assert history.columns == ("close", "open") and history.dated, "words are not numbers"
    assert history.values.tolist() == [[1, 7], [1, 7], [3, 7], [3, 7]], "January 2 is missing"
    assert history.gaps.tolist() == [[False, True], [True, True], [False, True], [True, False]]
    assert [note.split(":")[0] for note in notes[:5]] == [
        "1 row dropped", "1 row out of order", "1 row dropped", "1 time missing",
        "3 numbers missing, not finite or too large",
    ]  # fmt: skip
    assert "--series COLUMN" in notes[5]
    assert np.allclose(history.after(2) - history.times[-1], [1.0, 2.0])


def test_every_window_comes_once_and_tells_what_followed():
    values = np.arange(40.0)[:, None] * [1, 100]
    for start, stop, first, count in ((0, 20, 4, 14), (20, 33, 20, 11)):
        windows = Windows(values, start, stop, lookback=4, horizon=3)
        batches = list(in_order(windows, FixedSize(5)))
        past = np.concatenate([b.inputs[0] for b in batches])
        future = np.concatenate([b.targets for b in batches])
        assert len(windows) == len(past) == count and future[0, 0, 0] == first and future[-1, -1, 0] == stop - 1
        for p, f in zip(past, future, strict=True):
            t = int(f[0, 0])
            assert p[:, 0].tolist() == [t - 4, t - 3, t - 2, t - 1] and f[:, 1].tolist() == [
                100 * t,
                100 * t + 100,
                100 * t + 200,
            ]


def test_parts_follow_each_other_in_time(tmp_path):
    path = write(tmp_path / "x.csv", "y\n" + "\n".join(str(i) for i in range(100)))
    parts = read_parts(HistoryConfig(path=str(path), lookback=8, horizon=4), lambda _: None)
    assert [len(p) for p in (parts.train, parts.valid, parts.test)] == [70 - 8 - 4 + 1, 10 - 4 + 1, 20 - 4 + 1]
    assert parts.test.batch(np.array([0])).targets[0, 0, 0] == 80 and parts.rows == 70
    assert np.allclose(parts.spread, np.arange(70).std())
    counted = HistoryConfig(path=str(path), lookback=8, horizon=4, parts=(40, 20, 20))
    assert len(read_parts(counted, lambda _: None).test) == 17


def test_horizon_longer_than_the_data_is_an_error(tmp_path):
    path = write(tmp_path / "x.csv", "y\n" + "\n".join(str(i) for i in range(100)))
    with pytest.raises(DataError, match=r"10 rows to validate on, but one window takes 12 \(horizon 12.*--horizon"):
        read_parts(HistoryConfig(path=str(path), lookback=8, horizon=12), lambda _: None)
    with pytest.raises(DataError, match="70 rows to train on, but one window takes 72"):
        read_parts(HistoryConfig(path=str(path), lookback=68, horizon=4), lambda _: None)
    with pytest.raises(DataError, match=r"has 100 rows; data\.parts need 130"):
        read_parts(HistoryConfig(path=str(path), lookback=8, horizon=4, parts=(100, 20, 10)), lambda _: None)


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="three shares"):
        HistoryConfig(parts=(0.5, 0.5))
    path = write(tmp_path / "x.csv", "a,b\nx,y\nz,w\n")
    with pytest.raises(DataError, match="no column of numbers"):
        read_histories(path, HistoryConfig())
    with pytest.raises(DataError, match="has no column 'close'; there are: a, b"):
        read_histories(path, HistoryConfig(target=("close",)))


@pytest.mark.parametrize("rows", [30, 60, 150, 400])
def test_what_is_told_to_type_works(tmp_path, rows):
    path = tmp_path / "short.csv"
    path.write_text("close\n" + "".join(f"{i % 7}\n" for i in range(rows)))
    with pytest.raises(DataError, match="give more rows") as told:
        read_parts(HistoryConfig(path=str(path)))
    horizon, lookback = map(int, re.search(r"--horizon (\d+) --set data.lookback=(\d+)", str(told.value)).groups())
    parts = read_parts(HistoryConfig(path=str(path), horizon=horizon, lookback=lookback))
    assert min(len(parts.train), len(parts.valid), len(parts.test)) > 1


def test_training_shortens_a_look_back_that_does_not_fit(tmp_path):
    path, notes = tmp_path / "year.csv", []
    path.write_text("close\n" + "".join(f"{i % 7}\n" for i in range(400)))
    parts = read_parts(HistoryConfig(path=str(path), horizon=14), notes.append, shrink=True)
    assert parts.train.lookback == 133 and len(parts.train) == 280 - 133 - 14 + 1
    assert notes[0] == "look-back shortened from 336 to 133 rows: there are 280 to train on"


def test_a_handful_of_rows_is_too_few(tmp_path):
    (tmp_path / "tiny.csv").write_text("close\n1\n2\n3\n4\n5\n")
    with pytest.raises(DataError, match=r"give more rows$"):
        read_parts(HistoryConfig(path=str(tmp_path / "tiny.csv")))


def test_a_table_of_weekdays_goes_on_with_weekdays(tmp_path):
    days = [d for d in np.arange("2024-03-01", "2024-05-01", dtype="datetime64[D]") if np.is_busday(d)]
    path = write(tmp_path / "week.csv", "date,close\n" + "\n".join(f"{d},1" for d in days))
    for calendar in (True, False):
        week = read_histories(path, HistoryConfig(calendar=calendar))[0].after(4)
        expected = ["2024-05-01", "2024-05-02", "2024-05-03", "2024-05-06"]
        assert [str(d) for d in week.astype("datetime64[D]")] == expected
    every = write(tmp_path / "all.csv", "date,close\n" + "\n".join(f"2024-04-{d:02d},1" for d in range(1, 27)))
    assert np.diff(read_histories(every, HistoryConfig(path=str(every)))[0].after(4)).tolist() == [1, 1, 1]


def dates(first, last, step="D"):
    return np.arange(first, last, dtype=f"datetime64[{step}]")


def table_of(path, header, *columns):
    return write(path, header + "\n" + "\n".join(",".join(map(str, row)) for row in zip(*columns, strict=True)))


def test_missing_days_become_gaps_at_their_weekday(tmp_path):
    days = dates("2024-01-01", "2024-12-30")  # a Monday to a Sunday
    kept = np.sort(np.random.default_rng(0).permutation(len(days))[39:])
    weekday = np.arange(len(days)) % 7
    path = table_of(tmp_path / "x.csv", "date,sold", days[kept], weekday[kept])
    notes = []
    history = read_histories(path, HistoryConfig(), notes.append)[0]
    assert "39 times missing: left as gaps on the calendar, not trained on or scored" in notes
    assert len(history) == len(days) and history.gaps.sum() == 39
    seen = ~history.gaps[:, 0]
    assert (history.values[seen, 0] == weekday[seen]).all()
    counted = read_histories(path, HistoryConfig(calendar=False), notes.append)[0]
    assert len(counted) == len(kept), "as older runs read it"


def test_gaps_are_not_targets(tmp_path):
    days = dates("2024-01-01", "2024-04-10")
    kept = [i for i in range(100) if i not in (50, 51, 52, 53)]
    path = table_of(tmp_path / "x.csv", "date,y", days[kept], kept)
    parts = read_parts(HistoryConfig(path=str(path), lookback=8, horizon=4, parts=(60, 20, 20)), lambda _: None)
    targets = np.concatenate([parts.train.batch(np.array([i])).targets.numpy() for i in range(len(parts.train))])
    assert len(targets) == 60 - 8 - 4 + 1 - 1, "one window has nothing but gaps to forecast"
    assert not {50, 51, 52, 53} & set(targets[np.isfinite(targets)].astype(int).tolist())
    batch = parts.train.batch(np.array([40]))  # rows 48 to 51: two gaps
    assert ForecastLoss().count(batch) == 2 and np.isnan(batch.targets.numpy()).sum() == 2


@pytest.mark.parametrize(("first", "last", "step", "expected"), [
    ("2019-11", "2024-03", "M", ["2024-03-01", "2024-04-01", "2024-05-01"]),
    ("1990", "2024", "Y", ["2024-01-01", "2025-01-01", "2026-01-01"]),
    ("2024-01-01T00", "2024-01-04T00", "h", ["2024-01-04", "2024-01-04", "2024-01-04"]),
])  # fmt: skip
def test_a_calendar_goes_on_in_its_own_steps(tmp_path, first, last, step, expected):
    every = dates(first, last, step)
    kept = np.delete(np.arange(len(every)), [5, 6, 11])
    text = every.astype("datetime64[s]") if step == "h" else every.astype("datetime64[D]")
    (history,) = read_histories(
        table_of(tmp_path / "x.csv", "date,y", text[kept], kept), HistoryConfig(), lambda _: None
    )
    assert len(history) == len(every) and np.flatnonzero(history.gaps[:, 0]).tolist() == [5, 6, 11]
    assert [str(d) for d in np.floor(history.after(3)).astype("int64").astype("datetime64[D]")] == expected


def test_month_ends_are_a_calendar(tmp_path):
    ends = dates("2020-01", "2022-01", "M").astype("datetime64[D]") - 1  # 2019-12-31 to 2021-11-30
    (history,) = read_histories(
        table_of(tmp_path / "x.csv", "date,y", ends, range(24)), HistoryConfig(), lambda _: None
    )
    assert len(history) == 24 and not history.gaps.any()
    assert [str(d) for d in history.after(3).astype("int64").astype("datetime64[D]")] == [
        "2021-12-31", "2022-01-31", "2022-02-28",
    ]  # fmt: skip


@pytest.mark.parametrize(("every", "aggregate", "rule"), [
    ("1d", "mean", "1D"), ("1w", "sum", "W-MON"), ("1mo", "last", "MS"), ("6h", "mean", "6h"),
])  # fmt: skip
def test_resampling_agrees_with_pandas(tmp_path, every, aggregate, rule):
    import pandas as pd

    rng = np.random.default_rng(1)
    hours = pd.date_range("2024-01-01", "2024-03-31 23:00", freq="h").delete(range(100, 160))
    frame = pd.DataFrame({"y": rng.normal(size=len(hours))}, index=hours)
    frame.rename_axis("date").to_csv(tmp_path / "x.csv")
    options = dict(closed="left", label="left") if rule.startswith("W") else {}
    expected = getattr(frame.resample(rule, **options), aggregate)()
    if aggregate == "sum":
        expected[frame.resample(rule, **options).count() == 0] = np.nan
    history = read_histories(tmp_path / "x.csv", HistoryConfig(every=every, aggregate=aggregate), lambda _: None)[0]
    ours = np.where(history.gaps, np.nan, history.values)
    assert np.allclose(ours, expected.to_numpy(), equal_nan=True)
    assert (history.times == (expected.index - pd.Timestamp(0)) / pd.Timedelta(days=1)).all()


def test_an_incomplete_week_is_dropped(tmp_path):
    days = dates("2024-01-03", "2024-03-01")  # a Wednesday to a Thursday
    notes = []
    path = table_of(tmp_path / "x.csv", "date,y", days, np.ones(len(days)))
    history = read_histories(path, HistoryConfig(every="1w", aggregate="sum"), notes.append)[0]
    assert (history.values == 7).all() and notes[0].startswith("2 steps dropped at the beginning or the end")


def test_uneven_times_are_counted_and_every_is_suggested(tmp_path):
    notes = []
    path = table_of(tmp_path / "x.csv", "date,y", dates("2024-01-01", "2024-01-05"), range(4))
    path.write_text(path.read_text() + "\n2024-01-05 07:31:00,5\n")
    history = read_histories(path, HistoryConfig(), notes.append)[0]
    assert len(history) == 5 and "equally spaced (--every 1d resamples them)" in notes[-1]
    with pytest.raises(ConfigError, match="resamples by date"):
        read_histories(write(tmp_path / "n.csv", "y\n1\n2\n"), HistoryConfig(every="1d"))
    with pytest.raises(ConfigError, match="expected a step such as 15min"):
        HistoryConfig(every="1m")


def test_series_share_a_calendar_and_count_alike(tmp_path):
    """A store that opened later, and one a thousand times as large: each in its own units, all cut at one date."""
    days = dates("2024-01-01", "2024-04-10")
    rows = [(d, "north", i % 7) for i, d in enumerate(days)]
    rows += [(d, "south", 1000 * (i % 7)) for i, d in enumerate(days) if i >= 30]
    path = table_of(tmp_path / "x.csv", "date,store,sold", *zip(*rows, strict=True))
    config = HistoryConfig(path=str(path), series="store", lookback=14, horizon=7)
    parts = read_parts(config, lambda _: None)
    assert [(h.name, len(h), h.first) for h in parts.histories] == [("north", 100, 0), ("south", 70, 30)]
    assert len(parts.train) == (70 - 14 - 7 + 1) + (40 - 14 - 7 + 1)
    assert len(parts.valid) == 2 * (10 - 7 + 1) and parts.spread.tolist() == [1.0]
    last = parts.train.batch(np.array([len(parts.train) - 1]))
    whole = np.concatenate([last.inputs[0][0, :, 0], last.targets[0, :, 0]])
    south = 1000 * (np.arange(49, 70) % 7)
    assert np.allclose(whole * (1000 * (np.arange(30, 70) % 7)).std(), south, rtol=1e-5), "never a mix of two stores"


def test_covariates_are_numbers_and_categories_of_rows_ahead_too(tmp_path):
    text = "date,y,price,holiday\n2024-01-01,1,9.5,New Year\n2024-01-02,2,,\n2024-01-04,3,8,Epiphany\n2024-01-05,,7,\n"
    config = HistoryConfig(covariates=("price", "holiday"))
    history = read_histories(write(tmp_path / "x.csv", text), config, lambda _: None)[0]
    assert history.columns == ("y",) and history.values[:, 0].tolist() == [1, 2, 2, 3]
    assert history.inputs == ("price", "holiday=Epiphany", "holiday=New Year")
    nan = np.nan
    expected = [[9.5, 0, 1], [nan, 0, 0], [nan, nan, nan], [8, 1, 0], [7, 0, 0]]
    assert np.array_equal(history.covariates, expected, equal_nan=True), "January 5 is to be forecast"
    again = read_histories(tmp_path / "x.csv", HistoryConfig(covariates=history.inputs), lambda _: None)[0]
    assert again.inputs == history.inputs, "by the names that a model keeps"


def test_a_wrong_date_and_a_step_too_short_are_pointed_out(tmp_path):
    days = [np.datetime64("1924-01-01"), *dates("2024-01-02", "2024-02-10")]
    path, notes = table_of(tmp_path / "x.csv", "date,y", days, range(40)), []
    read_histories(path, HistoryConfig(), notes.append)
    assert notes[-1].startswith("the longest gap, from 1924-01-01 to 2024-01-02, is longer than all rows together")
    with pytest.raises(DataError, match="no window to train on, because most of the calendar is missing"):
        read_parts(HistoryConfig(path=str(path), lookback=4, horizon=2), notes.append)
    with pytest.raises(ConfigError, match=r"--every 1h is shorter than the table's own steps of 1 days"):
        read_histories(path, HistoryConfig(every="1h"))


def test_what_is_forecast_is_not_known_in_advance(tmp_path):
    path = table_of(tmp_path / "x.csv", "date,y", dates("2024-01-01", "2024-02-10"), range(40))
    with pytest.raises(ConfigError, match="'y' is forecast"):
        read_histories(path, HistoryConfig(target=("y",), covariates=("Y",)))
