"""Tables over time and their windows."""

import re

import numpy as np
import pytest

from regard.data.history import HistoryConfig, Windows, read_history, read_parts
from regard.data.loader import FixedSize, in_order
from regard.errors import ConfigError, DataError


def write(path, text):
    path.write_text(text)
    return path


def test_a_table_is_sorted_and_mended(tmp_path):
    text = "date,close,word,open\n2020-01-03,3,x,\n2020-01-01,1,x,inf\n2020-01-01,9,x,9\n,8,x,8\n2020-01-04,1e25,x,7\n"
    history = read_history(write(tmp_path / "x.csv", text), HistoryConfig())
    assert history.columns == ("close", "open") and history.dated, "words are no numbers"
    assert history.values.tolist() == [[1, 7], [3, 7], [3, 7]]
    expected = {"undated": 1, "unsorted": 1, "double": 1, "filled": 3, "uneven": 0}
    assert dict(history.report) == expected | {"uneven": history.report["uneven"]}
    assert np.allclose(history.after(2) - history.times[-1], [1.5, 3.0]), "the median of one and two days"


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
        read_history(path, HistoryConfig())
    with pytest.raises(DataError, match="has no column 'close'; there are: a, b"):
        read_history(path, HistoryConfig(target=("close",)))


@pytest.mark.parametrize("rows", [30, 60, 150, 400])
def test_what_is_told_to_type_works(tmp_path, rows):
    path = tmp_path / "short.csv"
    path.write_text("close\n" + "".join(f"{i % 7}\n" for i in range(rows)))
    with pytest.raises(DataError, match="give more rows") as told:
        read_parts(HistoryConfig(path=str(path)))
    horizon, lookback = map(int, re.search(r"--horizon (\d+) --set data.lookback=(\d+)", str(told.value)).groups())
    parts = read_parts(HistoryConfig(path=str(path), horizon=horizon, lookback=lookback))
    assert min(len(parts.train), len(parts.valid), len(parts.test)) > 1


def test_a_handful_of_rows_is_too_few(tmp_path):
    (tmp_path / "tiny.csv").write_text("close\n1\n2\n3\n4\n5\n")
    with pytest.raises(DataError, match=r"give more rows$"):
        read_parts(HistoryConfig(path=str(tmp_path / "tiny.csv")))


def test_a_table_of_weekdays_goes_on_with_weekdays(tmp_path):
    days = [d for d in np.arange("2024-03-01", "2024-05-01", dtype="datetime64[D]") if np.is_busday(d)]
    path = write(tmp_path / "week.csv", "date,close\n" + "\n".join(f"{d},1" for d in days))
    week = read_history(path, HistoryConfig(path=str(path))).after(4)
    assert [str(d) for d in week.astype("datetime64[D]")] == ["2024-05-01", "2024-05-02", "2024-05-03", "2024-05-06"]
    every = write(tmp_path / "all.csv", "date,close\n" + "\n".join(f"2024-04-{d:02d},1" for d in range(1, 27)))
    assert np.diff(read_history(every, HistoryConfig(path=str(every))).after(4)).tolist() == [1, 1, 1]
