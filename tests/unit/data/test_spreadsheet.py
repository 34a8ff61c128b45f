"""Excel files: what openpyxl writes is read as the same table in CSV is."""

import io
import sys
from datetime import date, datetime
from pathlib import Path

import pytest
from openpyxl import Workbook

from regard.data.tables import parse_table
from regard.errors import DataError, LimitError, MissingExtra


def book(*rows, **sheets) -> bytes:
    """A workbook whose first sheet has these rows, and others theirs."""
    workbook, data = Workbook(), io.BytesIO()
    for row in rows:
        workbook.active.append(row)
    for title, others in sheets.items():
        workbook.create_sheet(title).append(others)
    workbook.save(data)
    return data.getvalue()


def read(data: bytes, messages=None, **how):
    return parse_table(Path("x.xlsx"), data, say=(messages if messages is not None else []).append, **how)


def test_cells_are_text_as_in_a_csv_file():
    cells = ["007", 3, 2.0, 2.5, True, None, date(2024, 2, 3), datetime(2024, 2, 3, 4, 5), "=1+1"]
    table = read(book([f"c{i}" for i in range(9)], cells, [], ["a", 1]))
    assert [table.text(name)[0] for name in table.columns] == [
        "007", "3", "2", "2.5", "true", "", "2024-02-03", "2024-02-03 04:05:00", ""
    ]  # fmt: skip
    assert len(table) == 2 and table.where(1) == "x.xlsx row 4", "a blank row is none"


def test_a_sheet_without_a_header_has_numbered_columns():
    assert read(book([1, 2.5], [3, 4.5])).columns == ["1", "2"]


def test_the_first_sheet_is_read_and_others_are_named():
    messages = []
    table = read(book(["text", "label"], ["a", "x"], Prices=["p"], More=["q"]), messages)
    assert table.columns == ["text", "label"] and "the first sheet, 'Sheet'; to use 'Prices'" in messages[0]


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"no", "cannot be read as Excel"), (book(), "its first sheet, 'Sheet', is empty"), (book(["a"])[:-40], "Excel")],
)
def test_what_is_not_a_sheet_is_refused(data, reason):
    with pytest.raises(DataError, match=reason):
        read(data)


def test_a_sheet_may_not_outgrow_the_memory(monkeypatch):
    data = book(*(["a" * 30] * 9 for _ in range(2000)))
    monkeypatch.setenv("REGARD_MEMORY", "1M")
    with pytest.raises(LimitError, match=r"reading x\.xlsx"):
        read(data)


def test_the_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingExtra, match=r"regard\[tables\]"):
        read(book(["a"]))
