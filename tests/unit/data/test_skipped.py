"""Rows that cannot be used are skipped and reported; many of them are an error, and one is if reading is strict."""

import json
from pathlib import Path

import pytest

from regard.data.examples import read_examples
from regard.data.features import load_table
from regard.data.labelled import prepare_labels
from regard.data.settings import LabelledConfig, TableConfig
from regard.data.tables import parse_table
from regard.errors import DataError

ROWS = [f"film {i},{'pos' if i % 2 else 'neg'}" for i in range(30)]
BAD = ["no label,", ",pos", "one, too many,neg", "short"]


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("\n".join(["text,label", *BAD[:2], *ROWS, *BAD[2:]]) + "\n")
    return path


def test_bad_rows_are_skipped_counted_and_listed_with_their_lines(reviews):
    messages = []
    rows = read_examples(reviews, say=messages.append)
    assert [f"{row.text},{row.label}" for row in rows] == ROWS and rows[0].line == 4
    (message,) = messages
    for part in ("skipped 4 of 34 rows", "line 2: no label", "line 3: no text", "line 34: 3 columns", "line 35: 1 col"):
        assert part in message


def test_only_the_first_five_are_listed(tmp_path):
    messages, path = [], tmp_path / "r.csv"
    path.write_text("\n".join(["text,label", *(f"film {i}," for i in range(8)), *ROWS]))
    assert len(read_examples(path, say=messages.append)) == 30
    assert "line 6: no label" in messages[0] and "line 7" not in messages[0] and "and 3 more" in messages[0]


def test_strict_reading_stops_at_one_bad_row(reviews):
    with pytest.raises(DataError, match=r"r.csv line 34: 3 columns, expected 2"):
        read_examples(reviews, strict=True)
    reviews.write_text("\n".join(["text,label", BAD[0], *ROWS]))
    with pytest.raises(DataError, match=r"r.csv line 2: no label .*data.strict is set"):
        read_examples(reviews, strict=True)


def test_more_than_a_third_is_an_error(tmp_path):
    path, good = tmp_path / "r.csv", ["text,label", *ROWS[:4]]
    path.write_text("\n".join([*good, "a,", "b,"]))
    assert len(read_examples(path, say=lambda line: None)) == 4, "2 of 6 are a third"
    path.write_text("\n".join([*good, "a,", "b,", "c,"]))
    with pytest.raises(
        DataError, match=r"line 6: no label.*line 8: no label.*3 of 7 rows cannot be used, more than a third"
    ):
        read_examples(path)


def test_a_quote_that_swallows_lines_counts_as_all_of_them():
    rows = "".join(f"a{i},1\n" for i in range(10))
    with pytest.raises(DataError, match=r"line 12: .*1 of 11 rows cannot be used"):
        parse_table(Path("x.csv"), f'text,label\n{rows}"open,1\n{rows}end",1,2\n'.encode(), strict=False).usable({})


def test_lines_of_jsonl_that_are_not_objects_are_skipped():
    lines = [json.dumps({"text": f"film {i}", "label": i % 2}) for i in range(6)]
    messages = []
    table = parse_table(Path("x.jsonl"), "\n".join(["[1]", '{"text"', *lines]).encode(), strict=False)
    assert len(table.usable({}, say=messages.append)) == 6
    assert "line 1: expected an object" in messages[0] and "line 2: not JSON" in messages[0]


def test_every_run_is_told_also_when_the_data_is_prepared(reviews, monkeypatch, tmp_path):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    config = LabelledConfig(path=str(reviews), vocab=60)
    for _ in range(2):
        messages = []
        prepare_labels(config, "classify", messages.append)
        assert "skipped 4 of 34 rows" in messages[-1]
    with pytest.raises(DataError, match="line 34"):
        prepare_labels(LabelledConfig(path=str(reviews), vocab=60, strict=True), "classify")


def test_rows_of_a_table_without_the_label_are_skipped(tmp_path, capsys):
    path = tmp_path / "t.csv"
    path.write_text(
        "hours,passed\n" + "".join(f"{i},{'yes' if i > 15 else 'no'}\n" for i in range(30)) + "7,\n9,no,1\n"
    )
    data = load_table(TableConfig(path=str(path), label="passed"))
    assert len(data.train) + len(data.valid) == 30 and "skipped 2 of 32 rows" in capsys.readouterr().err
    with pytest.raises(DataError, match="line 33: 3 columns"):
        load_table(TableConfig(path=str(path), label="passed", strict=True))
