"""Tables in memory and as files: what pandas, polars and pyarrow hold comes back from the one reader of tables."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from regard.data import memory
from regard.data.tables import read_table
from regard.errors import DataError

COLUMNS = {"text": ["good", "bad, very", None], "stars": [5, 1, 3], "price": [1.5, 2.0, float("nan")]}
ROWS = [dict(zip(COLUMNS, cells, strict=True)) for cells in zip(*COLUMNS.values(), strict=True)]
TABLES = {
    "pandas": pd.DataFrame(COLUMNS),
    "categories": pd.DataFrame(COLUMNS).astype({"text": "category"}),
    "polars": pl.DataFrame(COLUMNS),
    "pyarrow": pa.table(COLUMNS),
    "columns": COLUMNS,
    "arrays": {name: np.array(column, dtype=object if name == "text" else None) for name, column in COLUMNS.items()},
    "rows": ROWS,
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_read_back_from_their_file(name, tmp_path):
    assert memory.is_table(TABLES[name])
    table = read_table(memory.write(TABLES[name], tmp_path))
    assert table.columns == list(COLUMNS)
    assert table.text("text") == ["good", "bad, very", ""]
    assert table.text("stars") == ["5", "1", "3"]
    np.testing.assert_array_equal(table.numbers("price"), [1.5, 2.0, np.nan])


def test_equal_tables_are_one_file(tmp_path):
    paths = {memory.write(COLUMNS, tmp_path) for _ in range(2)} | {memory.write(ROWS, tmp_path)}
    assert len(paths) == 1 and [*tmp_path.iterdir()] == [*paths]
    assert memory.write({**COLUMNS, "stars": [5, 1, 2]}, tmp_path) not in paths


def test_named_pandas_index_is_a_column(tmp_path):
    days = pd.date_range("2026-01-01", periods=3, name="day")
    table = read_table(memory.write(pd.DataFrame({"close": [1.0, 2.0, 3.0]}, index=days), tmp_path))
    assert table.is_dated("day") and np.diff(table.moments("day")).tolist() == [1, 1]
    assert datetime.date.fromtimestamp(table.moments("day")[0] * 86_400).year in (2025, 2026)


@pytest.mark.parametrize("column", [pd.Series(["a", "b"]), pl.Series(["a", "b"]), np.array(["a", "b"]), ("a", "b")])
def test_columns_are_lists_of_texts(column, tmp_path):
    assert memory.write(column, tmp_path, memory.LINES).read_text() == "a\nb\n"


def test_records_keep_their_nesting(tmp_path):
    rows = [{"messages": [{"role": "user", "content": "Hi"}]}, {"text": "plain"}]
    lines = memory.write(rows, tmp_path, memory.JSONL).read_text().splitlines()
    assert lines == ['{"messages": [{"role": "user", "content": "Hi"}]}', '{"text": "plain"}']


@pytest.mark.parametrize("name", ["pandas", "polars", "pyarrow", "columns"])
def test_answers_come_back_in_the_callers_library(name):
    rows = [{**row, "label": label, "p": p} for row, label, p in zip(ROWS, "xyz", [0.5, "", 1.0], strict=True)]
    answered = memory.with_answers(TABLES[name], rows)
    assert type(answered) is type(TABLES[name])
    table = memory.to_arrow(answered)
    assert table.column_names == [*COLUMNS, "label", "p"]
    assert table.column("stars").to_pylist() == [5, 1, 3]  # as they were, not as text
    assert table.column("label").to_pylist() == ["x", "y", "z"]
    empty = table.column("p").to_pylist()[1]
    assert empty is None or np.isnan(empty)


def test_pandas_keeps_its_index_next_to_answers():
    frame = TABLES["pandas"].set_index(pd.Index([7, 8, 9]))
    answered = memory.with_answers(frame, [{**row, "label": "x"} for row in ROWS])
    pd.testing.assert_frame_equal(answered[list(COLUMNS)], frame)


def test_rows_of_another_number_replace_the_table():
    answered = memory.with_answers(TABLES["pandas"], [{"step": 1, "mean": 0.5}])
    pd.testing.assert_frame_equal(answered, pd.DataFrame({"step": [1], "mean": [0.5]}))


@pytest.mark.parametrize("wrong", [{"a": [1, 2], "b": [1]}, {"a": [1, "x"]}, [{"a": 1}, {"a": "x"}]])
def test_columns_of_two_types_or_lengths_are_an_error(wrong, tmp_path):
    with pytest.raises(DataError, match="not a table"):
        memory.write(wrong, tmp_path)


def test_names_of_files_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.png").touch()
    path = memory.write({"file": ["a.png", "b.png"], "label": ["x", "y"]}, tmp_path / "tables", files=True)
    assert read_table(path).text("file") == [str(tmp_path / "a.png"), str(tmp_path / "b.png")]
