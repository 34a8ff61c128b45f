"""Rows that cannot be used are skipped and reported; many of them are an error, and one is if reading is strict."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from regard.data.examples import read_examples, read_tagged
from regard.data.features import load_table
from regard.data.history import read_histories
from regard.data.labelled import prepare_labels
from regard.data.series import read_series
from regard.data.settings import HistoryConfig, LabelledConfig, SeriesConfig, TableConfig
from regard.data.skipped import has
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
    with pytest.raises(DataError, match=r"r.csv line 2: no label .*without --strict such rows are skipped"):
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


@pytest.mark.parametrize("target", ["", "NA", "-", "many", "inf"])
def test_rows_without_a_number_to_learn_are_skipped(tmp_path, capsys, target):
    path = tmp_path / "t.csv"
    path.write_text("hours,score\n" + "".join(f"{i},{2 * i}\n" for i in range(30)) + f"7,{target}\n")
    data = load_table(TableConfig(path=str(path), label="score", targets="numbers"))
    assert len(data.train) + len(data.valid) == 30 and "skipped 1 of 31 rows: line 32:" in capsys.readouterr().err


def test_objects_of_an_array_that_are_not_rows_are_skipped():
    rows = [json.dumps({"text": f"film {i}", "label": i % 2}) for i in range(6)]
    messages = []
    array = "[" + ",\n".join([*rows, "[1]", '{"text": ["a"], "label": 1}']) + "]"
    table = parse_table(Path("x.json"), array.encode(), strict=False)
    assert len(table.usable({}, say=messages.append)) == 6
    assert "line 7: expected an object" in messages[0] and "line 8: 'text' holds a list" in messages[0]


def test_every_row_has_its_place_where_rows_are_answered():
    messages = []
    data = b"text,n\nlong,1,2\na,1\n,2\nshort\nb,3\nlast\nc,4\nd,5\ne,6\n"
    rows = list(parse_table(Path("x.csv"), data, strict=False).with_gaps({"text": has("text")}, messages.append))
    assert [(cells["text"], cells["n"]) for cells, _ in rows] == [
        ("", ""), ("a", "1"), ("", "2"), ("", ""), ("b", "3"), ("", ""), ("c", "4"), ("d", "5"), ("e", "6")
    ]  # fmt: skip
    assert [usable for _, usable in rows] == [False, True, False, False, True, False, True, True, True]
    assert "no answer for 3 of 9 rows: line 2: 3 columns" in messages[0]
    assert "no answer for 1 of 6 rows: line 4: no text" in messages[1]


CONLL = "Ada\tPER\nmet\tO\n\n" * 4
TAGGED = json.dumps({"tokens": ["Ada"], "tags": ["PER"]}) + "\n"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (
            "x.conll",
            f"{CONLL}Bo\tPER\nleft\n\n{CONLL}",
            "line 14: malformed CoNLL line, expected 2 columns, got 'left'",
        ),
        ("x.jsonl", TAGGED * 4 + '{"tokens": ["a"], "tags": []}\n' + TAGGED * 4, "line 5: 1 words but 0 tags"),
        ("x.jsonl", TAGGED * 4 + '{"tokens"\n' + TAGGED * 4, "line 5: not JSON"),
    ],
)
def test_a_broken_sentence_is_skipped_or_has_its_place(tmp_path, name, text, reason):
    messages, path = [], tmp_path / name
    path.write_text(text)
    assert [row.words[0] for row in read_tagged(path, say=messages.append)] == ["Ada"] * 8
    assert f"skipped 1 of 9 sentences: {reason}" in messages[0]
    assert [bool(row.words) for row in read_tagged(path, gaps=True)] == [True] * 4 + [False] + [True] * 4
    with pytest.raises(DataError, match="line"):
        read_tagged(path, strict=True)


def test_sentences_in_parquet_are_those_of_jsonl(tmp_path):
    rows = [{"tokens": ["Ada", "met"], "ner_tags": [1, 0]}, {"tokens": ["Bo"], "ner_tags": [1]}] * 3
    bad = {"tokens": ["a"], "ner_tags": [1, 0]}
    parquet.write_table(pa.Table.from_pylist([*rows, bad]), tmp_path / "x.parquet")
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    messages = []
    assert read_tagged(tmp_path / "x.parquet", say=messages.append) == read_tagged(tmp_path / "x.jsonl")
    assert "skipped 1 of 7 sentences: row 7: 1 words but 2 tags" in messages[0]


def test_broken_points_of_series_are_skipped(tmp_path):
    messages, path = [], tmp_path / "x.csv"
    rows = [f"s{i},{t},{i + t},{'ab'[i % 2]}" for i in range(4) for t in range(4)]
    path.write_text("\n".join(["id,time,value,label", *rows, "s1,9,high,b", "s1,later,3,b", "s1,3"]))
    curves = read_series(path, SeriesConfig(), say=messages.append)
    assert curves.lengths.tolist() == [4] * 4
    for part in ("skipped 3 of 19 rows: line 18: 'high' is not a number (column 'value')", "line 20: 2 columns"):
        assert part in messages[0]
    with pytest.raises(DataError, match="line 20: 2 columns"):
        read_series(path, SeriesConfig(strict=True))


def test_a_series_in_a_broken_row_keeps_its_number(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,1,2,3\nb,1,2\nb,3,4,x\na,1,2,4\nb,5,6,7\na,1,2,5\nb,5,6,8\n")
    curves = read_series(path, SeriesConfig(), labelled=False)
    assert curves.ids == ["1", "4", "5", "6", "7"] and curves.listed == [str(i) for i in range(1, 8)]


def test_a_broken_file_of_a_folder_is_skipped_by_name(tmp_path):
    messages = []
    for i in range(6):
        (tmp_path / f"s{i}.csv").write_text(f"time,value\n1,{i}\n2,{i + 1}\n")
    (tmp_path / "s6.csv").write_bytes(b"\0\1\2")
    curves = read_series(tmp_path, SeriesConfig(), labelled=False, say=messages.append)
    assert (
        len(curves) == 6
        and curves.listed[-1] == "s6"
        and "skipped 1 of 7 files: file s6.csv: is not text" in messages[0]
    )


def test_broken_rows_over_time_are_skipped(tmp_path):
    messages, path = [], tmp_path / "x.csv"
    rows = [f"2024-01-{day:02d},{day},b{day}" for day in range(1, 29)]
    path.write_text(
        "\n".join(["date,load,note", *rows, "2024-01-29,closed,c", "2024-01-30", "soon,3,c", "2024-01-31,,d"])
    )
    history = read_histories(path, HistoryConfig(), messages.append)[0]
    assert history.columns == ("load",) and history.values[:, 0].tolist() == [*range(1, 29)]
    assert messages[1] == "1 row at the end without a number: left to forecast"
    for part in ("skipped 3 of 32 rows: line 30: 'closed' is not a number", "line 31: 1 col", "'soon' is not a date"):
        assert part in messages[0]
    with pytest.raises(DataError, match="line 31"):
        read_histories(path, HistoryConfig(strict=True))
