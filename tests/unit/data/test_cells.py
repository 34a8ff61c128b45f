"""One cell of a table: every word for missing, every form of a date."""

import math
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from regard.data.cells import (
    DATES,
    decimal_mark,
    is_date,
    is_missing,
    is_number,
    notation,
    to_days,
    to_number,
    usable,
)
from regard.data.tables import parse_table

DAY = (datetime(2021, 3, 14, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days
WRITTEN = {  # the 14th of March 2021, a quarter past six in the morning where a time is given
    "%m/%d/%Y": "03/14/2021",
    "%m/%d/%y": "3/14/21",
    "%d.%m.%Y": "14.03.2021",
    "%Y%m%d": "20210314",
    "%m/%d/%Y %H:%M": "03/14/2021 06:15",
    "%d.%m.%Y %H:%M": "14.3.2021 06:15",
    "ISO": "2021-03-14",
    "ISO with slashes": "2021/03/14",
    "ISO with time": "2021-03-14T06:15:00",
    "ISO with a space": "2021-03-14 06:15",
    "ISO of a zone": "2021-03-14T08:15:00+02:00",
    "ISO of Greenwich": "2021-03-14T06:15:00Z",
}


@pytest.mark.parametrize("form", WRITTEN)
def test_every_form_of_a_date_is_the_same_day(form):
    expected = DAY + (0.2604166666666667 if ":" in WRITTEN[form] else 0)
    assert to_days(f" {WRITTEN[form]} ") == pytest.approx(expected, abs=1e-9)
    if form != "%Y%m%d":  # a column of these may as well be numbers
        assert is_date(WRITTEN[form])
        table = parse_table(Path("x.csv"), f"when,n\n{WRITTEN[form]},1\n{WRITTEN[form]},2\n".encode())
        assert table.moments("when") == pytest.approx([expected] * 2, abs=1e-9)


def test_no_form_of_a_date_is_untested():
    assert set(DATES) <= set(WRITTEN)


@pytest.mark.parametrize("cell", ["", "soon", "13/14/2021", "2021-02-30", "99999999", "1.5.2", "NaN", "14"])
def test_what_is_no_date_is_none(cell):
    assert to_days(cell) is None and not is_date(cell)


@pytest.mark.parametrize("word", ["", "na", "n/a", "nan", "null", "none", "-", "?"])
def test_every_word_for_missing_is_a_gap(word):
    for cell in (word, word.upper(), f"  {word.title()} "):
        assert is_missing(cell) and math.isnan(to_number(cell))
    table = parse_table(Path("x.csv"), f"n,m\n1,a\n{word.upper()},b\n3,c\n".encode(), asked=("n",))
    assert np.isnan(table.numbers("n")).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("cell", "number"),
    [("0", 0.0), ("-0.5", -0.5), ("1e3", 1000.0), (" 7 ", 7.0), ("+2", 2.0), (".5", 0.5), ("inf", math.inf)],
)
def test_numbers_are_read_as_they_are_written(cell, number):
    assert is_number(cell) and not is_missing(cell) and to_number(cell) == number


def test_a_number_is_of_use_where_its_square_is_finite():
    actual = usable(np.array([0.0, -1e18, 1e18, 1.1e18, np.inf, -np.inf, np.nan]))
    assert actual.tolist() == [True, True, True, False, False, False, False]
    assert np.isfinite(np.float32(1e18) ** 2)


@pytest.mark.parametrize(("cells", "numbers", "words"), [
    (["12 %", "12,5%", "3"], [12, 12.5, 3], "percentages, decimal commas"),
    (["€1,200", "€ 950.50"], [1200, 950.5], "amounts in €, thousands separators"),
    (["€ 210.000", "€ 95.500"], [210_000, 95_500], "amounts in €, thousands separators"),
    (["$3.459", "$3.519"], [3.459, 3.519], "amounts in $"),
    (["0.125 €", "0.250 €"], [0.125, 0.25], "amounts in €"),
    (["1.125 %", "2.250 %"], [1.125, 2.25], "percentages"),
    (["1.200,50", "900"], [1200.5, 900], "thousands separators, decimal commas"),
    (["1,234", "5,678"], [1234, 5678], "thousands separators"),
    (["12,5", "1,234"], [12.5, 1.234], "decimal commas"),
    (["-$5.00", "$1,000.25"], [-5, 1000.25], "amounts in $, thousands separators"),
    (["1 234 567", "1'000", "−12"], [1234567, 1000, -12], "thousands separators"),
    (["7 USD", "8 USD"], [7, 8], "amounts in USD"),
    (["1e5", "1.234", "inf"], [1e5, 1.234, float("inf")], ""),
])  # fmt: skip
def test_numbers_as_people_write_them(cells, numbers, words):
    mark = decimal_mark(cells)
    assert [to_number(cell, mark) for cell in cells] == numbers and notation(cells, mark) == words


@pytest.mark.parametrize(
    "cells", [["$5", "€5"], ["ABC 1"], ["12:30"], ["2020-01-01"], ["1,2,3"], ["1.5", "2,5"], ["%"]]
)
def test_other_things_are_not_numbers(cells):
    assert decimal_mark(cells) is None


def test_a_few_words_do_not_hide_the_mark_of_a_column():
    cells = ["1,5", "2,5", "3,5", "closed"]
    assert decimal_mark(cells, words=0.3) == "," and decimal_mark(cells, words=0.2) is None
