"""One reader for tables: every format, every task, and what a cell means."""

import csv
import gzip
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from openpyxl import Workbook
from pyarrow import feather, parquet

from regard.data.audio import list_clips
from regard.data.captions import captioned
from regard.data.examples import read_examples
from regard.data.features import load_table
from regard.data.history import read_histories
from regard.data.images import list_images
from regard.data.series import read_series
from regard.data.settings import CaptionsConfig, HistoryConfig, SeriesConfig, TableConfig
from regard.data.skipped import has
from regard.data.tables import is_table, parse_table, read_table
from regard.errors import DataError, LimitError

FORMATS = ("csv", "semicolon.csv", "tsv", "jsonl", "parquet", "arrow", "csv.gz", "csv.zst", "jsonl.gz", "parquet.zst",
           "xlsx", "json")  # fmt: skip


def write(path, columns):
    """The same table in the format that the path's name asks for; numbers are numbers where a format has them."""
    rows = list(zip(*columns.values(), strict=True))
    data = io.BytesIO()
    base = path.name.removesuffix(".gz").removesuffix(".zst")
    if base.endswith(".parquet"):
        parquet.write_table(pa.table(columns), data)
    elif base.endswith(".arrow"):
        feather.write_feather(pa.table(columns), data)
    elif base.endswith(".xlsx"):
        book = Workbook()
        for row in (list(columns), *rows):
            book.active.append(row)
        book.save(data)
    elif base.endswith(".json"):
        data.write(json.dumps([dict(zip(columns, row, strict=True)) for row in rows]).encode())
    elif base.endswith(".jsonl"):
        data.write("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows).encode())
    else:
        semicolon = base.endswith(".semicolon.csv")
        text = io.StringIO()
        sheet = csv.writer(text, delimiter=";" if semicolon else "\t" if base.endswith(".tsv") else ",")
        comma = lambda cell: str(cell).replace(".", ",") if semicolon and isinstance(cell, float) else cell  # noqa: E731
        sheet.writerows([list(columns), *([comma(cell) for cell in row] for row in rows)])
        data.write(text.getvalue().encode())
    actual = data.getvalue()
    if path.suffix == ".gz":
        actual = gzip.compress(actual)
    elif path.suffix == ".zst":
        actual = pa.compress(actual, "zstd", asbytes=True)
    path.write_bytes(actual)
    return path


def examples(path):
    return [(e.text, e.second, e.label) for e in read_examples(path, pairs="pair" in path.name)]


def features(path):
    data = load_table(TableConfig(path=str(path), label="passed"))
    return data.columns, data.train.features.tolist(), data.valid.features.tolist()


def series(path):
    curves = read_series(path, SeriesConfig())
    return curves.ids, curves.labels, curves.times.tolist(), curves.values.tolist()


def history(path):
    found = read_histories(path, HistoryConfig())[0]
    return found.columns, found.values.tolist(), found.times.tolist(), found.dated


def images(path):
    return [(image.path.name, image.label) for image in list_images(path)]


def captions(path):
    return captioned(path, path.parent, CaptionsConfig(path=str(path), size=4), lambda _: None)[0].captions


def clips(path):
    return [(Path(clip.file).name, clip.label) for clip in list_clips(path)]


TEXT = ["good; film", 'a "fine" one', "dull, very", "so so"] * 3
TABLES = {
    "classify": (examples, {"id": list(range(12)), "text": TEXT, "label": ["1.0", "0", "-", "none"] * 3}),
    "pair": (examples, {"premise": TEXT, "hypothesis": TEXT[::-1], "label": ["yes", "no", "yes"] * 4}),
    "table": (
        features,
        {"x": [i + 0.5 for i in range(40)], "school": ["n", "s"] * 20, "passed": ["no"] * 20 + ["yes"] * 20},
    ),
    "series": (
        series,
        {"id": ["007", "007", "8"], "time": [1, 2, 1], "value": [0.5, 1.25, 2.0], "class": ["a", "a", "b"]},
    ),
    "forecast": (history, {"date": ["2020-01-01", "2020-01-02", "2020-01-03"], "close": [1.5, 2.25, 3.0]}),
    "image": (images, {"file": ["a.png", "b.png"], "label": ["cat", "dog"]}),
    "caption": (captions, {"image": ["a.ppm", "b.ppm", "a.ppm"], "caption": ["a red dot", "a cat, a dog", "red"]}),
    "audio": (clips, {"file": ["a.wav", "b.wav"], "label": ["cat", "dog"]}),
}


@pytest.mark.parametrize("task", TABLES)
def test_every_task_reads_the_same_rows_from_every_format(task, tmp_path):
    read, columns = TABLES[task]
    for name in ("a.ppm", "b.ppm"):
        (tmp_path / name).write_bytes(b"P6 4 4 255\n" + bytes(48))
    actual = {form: read(write(tmp_path / f"{task}.{form}", columns)) for form in FORMATS}
    assert all(is_table(f"x.{form}") for form in FORMATS)
    assert len(actual["csv"]) > 0
    for form in FORMATS:
        assert actual[form] == actual["csv"], form


def test_cells_stay_what_they_are():
    table = parse_table(Path("x.csv"), b"id,label,n\n007,1.0,1e3\n 8 ,none,-\n")
    assert table.text("id") == ["007", " 8 "] and table.names("id") == ["007", "8"]
    assert table.labels("label") == ["1.0", "none"], "a class may be called none"
    assert table.numbers("n")[0] == 1000 and np.isnan(table.numbers("n")[1])


def test_missing_is_the_same_in_text_and_in_typed_files(tmp_path):
    columns = {"n": [1.0, None, float("nan")], "label": ["a", None, "b"], "day": [None, 3, 4]}
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    table = read_table(tmp_path / "x.parquet")
    assert table.text("n") == ["1", "", ""] and np.isnan(table.numbers("n")).tolist() == [False, True, True]
    assert table.names("label") == ["a", "", "b"] and np.isnan(table.moments("day")[0])
    with pytest.raises(DataError, match=r"x.parquet row 2: no label \(column 'label'\)"):
        table.usable({"label": has("label")}, strict=True)


def test_typed_columns_become_text_and_days():
    days = pa.array([0, 86_400_000], pa.timestamp("ms"))
    columns = {
        "when": days,
        "kind": pa.array(["a", "b"]).dictionary_encode(),
        "tokens": [["x", "y"], None],
        "b": [b"q", b"r"],
    }
    data = io.BytesIO()
    parquet.write_table(pa.table(columns), data)
    table = parse_table(Path("x.parquet"), data.getvalue())
    assert table.moments("when").tolist() == [0, 1] and table.is_dated("when")
    assert table.text("kind") == ["a", "b"] and table.text("tokens") == ['["x", "y"]', ""]
    with pytest.raises(DataError, match="the column 'tokens' holds"):
        table.numbers("tokens")


@pytest.mark.parametrize(
    ("data", "columns", "rows", "noted"),
    [
        (b"a;b\n1;2,5\n2;3\n", ["a", "b"], [["1", "2.5"], ["2", "3"]], "semicolon, decimals written with a comma"),
        (b"1;2,5\n2;3,5\n", ["1", "2"], [["1", "2.5"], ["2", "3.5"]], "decimals"),
        (b"a;b\n1;1,234\n2;5,678\n", ["a", "b"], [["1", "1,234"], ["2", "5,678"]], "semicolon"),
        (b"text;label\ngood, very;1\nbad;0\n", ["text", "label"], [["good, very", "1"], ["bad", "0"]], "semicolon"),
        (b"a|b\nx|1\ny|2\n", ["a", "b"], [["x", "1"], ["y", "2"]], "vertical bar"),
        (b"text\tlabel\na, b\t1\nc\t0\n", ["text", "label"], [["a, b", "1"], ["c", "0"]], "tab"),
        (b"text,label\na; b,1\nc; d,0\n", ["text", "label"], [["a; b", "1"], ["c; d", "0"]], ""),
        ("text,label\ncafé,1\n".encode("latin-1"), ["text", "label"], [["café", "1"]], "Latin-1"),
        ("text,label\n“so”,1\n".encode("cp1252"), ["text", "label"], [["“so”", "1"]], "Latin-1"),
        ("text,label\ncafé,1\n".encode("utf-16"), ["text", "label"], [["café", "1"]], "UTF-16"),
        ("text,label\ncafé,1\n".encode("utf-16-le"), ["text", "label"], [["café", "1"]], "read as UTF-16"),
        ("text;label\ncafé, noir;1\n".encode("utf-16-be"), ["text", "label"], [["café, noir", "1"]], "UTF-16, columns"),
        ("text,label\ncafé,1\n".encode("utf-32"), ["text", "label"], [["café", "1"]], "read as UTF-32"),
        ("\ufefftext,label\ncafé,1\n".encode(), ["text", "label"], [["café", "1"]], ""),
        (b'text,label\r\n"two\r\nlines, ""quoted""",1\r\n', ["text", "label"], [['two\r\nlines, "quoted"', "1"]], ""),
        (b"text,label\ra,1\rb,0\r", ["text", "label"], [["a", "1"], ["b", "0"]], ""),
        (b"text,,label\na,,1\n", ["text", "2", "label"], [["a", "", "1"]], ""),
        (b"a.jpg,cat\nb.jpg,dog\n", ["1", "2"], [["a.jpg", "cat"], ["b.jpg", "dog"]], ""),
        (b"5.1,3.5\n4.9,3.0\n", ["1", "2"], [["5.1", "3.5"], ["4.9", "3.0"]], ""),
    ],
)  # fmt: skip
def test_delimited_text_is_read_as_it_is_written(data, columns, rows, noted):
    messages = []
    table = parse_table(Path("x.csv"), data, say=messages.append)
    assert table.columns == columns and list(table.rows()) == rows
    assert len(messages) == bool(noted) and noted in "".join(messages)


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b'text\tlabel\n"fine" film\t1\n"dull\t0\n', [['"fine" film', "1"], ['"dull', "0"]]),
        (b'text\tlabel\n"a\ttab"\t1\nb\t0\n', [["a\ttab", "1"], ["b", "0"]]),
        (b'"text"\t"label"\n"a"\t"1"\n', [["a", "1"]]),
    ],
)
def test_quotes_in_a_tsv_are_letters_unless_its_rows_say_otherwise(data, rows):
    assert list(parse_table(Path("x.tsv"), data).rows()) == rows


def test_rows_know_their_lines():
    table = parse_table(Path("x.csv"), b'text,n\n"two\nlines",1\n\n,\nlast,2\n')
    assert list(table.lines) == [2, 6] and table.where(1) == "x.csv line 6"
    table = parse_table(Path("x.jsonl"), b'{"n": 1}\n\n{"n": "x", "m": [1]}\n')
    assert list(table.lines) == [1, 3] and list(table.rows()) == [["1", ""], ["x", "[1]"]]
    with pytest.raises(DataError, match=r"x.jsonl line 3, column 'n': 'x' is not a number"):
        table.numbers("n")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.csv", b"", "is empty"),
        ("x.csv", b"\x89PNG\r\n\x00\x00", "is not text; expected CSV, TSV, JSON or JSONL"),
        ("x.csv", b"a,a\n1,2\n", "two columns have the same name, 'a'"),
        ("x.csv", b"label,n\n", "has no rows"),
        ("x.csv", b"\xff\xfea\x00,", "damaged UTF-16"),
        ("x.jsonl", b'{"a": "\\ud800"}\n', "half of a surrogate pair"),
        ("x.jsonl", b"[" * 100_000, "line 1: not JSON"),
        ("x.parquet", b"no", "cannot be read as Parquet"),
        ("x.arrow", b"no", "cannot be read as Arrow"),
        ("x.npz", b"no", "cannot be read as NPZ"),
    ],
)
def test_a_file_that_is_no_table_is_one_sentence(name, data, message):
    with pytest.raises(DataError) as e:
        parse_table(Path(name), data, ("a",) if b"a,a" in data else ())
    assert message in str(e.value) and str(e.value).startswith(name)


def test_a_compressed_table_may_not_outgrow_the_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_MEMORY", "4M")
    data = b"a,b\n" + b"1,2\n" * 500_000
    for name, packed in (("x.csv.gz", gzip.compress(data)), ("x.csv.zst", pa.compress(data, "zstd", asbytes=True))):
        (tmp_path / name).write_bytes(packed)
        with pytest.raises(LimitError, match=r"holds more than 1\.0 MB"):
            read_table(tmp_path / name)
    parquet.write_table(pa.table({"a": np.zeros(3_000_000)}), tmp_path / "x.parquet")
    with pytest.raises(LimitError, match=r"would need 22\.9 MB"):
        read_table(tmp_path / "x.parquet")
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros(3_000_000))
    with pytest.raises(LimitError, match=r"would need 22\.9 MB"):
        read_table(tmp_path / "x.npz")


def npz(**members: bytes) -> bytes:
    box = io.BytesIO()
    with zipfile.ZipFile(box, "w") as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)
    return box.getvalue()


def npy(array: np.ndarray) -> bytes:
    box = io.BytesIO()
    np.save(box, array)
    return box.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cannot be read as NPZ"),
        (npz(), "no rows"),
        (npz(x=b"not an array"), "cannot be read as NPZ"),
        (npz(x=npy(np.zeros(3)).replace(b"(3,)", b"(3" + b"0" * 12 + b",)")), "its header claims more"),
        (npz(x=npy(np.arange(3)), y=npy(np.arange(4))), "different lengths"),
        (npz(x=npy(np.array([{}], dtype=object))), "cannot be read as NPZ"),
        (npz(x=npy(np.zeros(999)))[:600], "cannot be read as NPZ"),
    ],
)
def test_a_broken_or_empty_npz_is_one_sentence(data, message):
    with pytest.raises(DataError, match=message):
        parse_table(Path("x.npz"), data)


def test_a_name_is_not_a_page():
    table = parse_table(Path("x.csv"), b"id,value\na,1\n" + b"b" * 5000 + b",2\n")
    assert table.text("id")[1] == "b" * 5000
    with pytest.raises(
        DataError, match=r"x.csv line 3, column 'id': 5,000 characters, expected a name of at most 1,000"
    ):
        table.names("id")


def test_rows_may_end_in_carriage_returns():
    table = parse_table(Path("x.csv"), b"text,label\ra good film,pos\ra bad film,neg\r")
    assert table.columns == ["text", "label"] and table.text("text") == ["a good film", "a bad film"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_a_json_array_of_flat_objects_is_a_table(encoding):
    text = '[\n {"text": "café, noir", "n": 1},\n\n {"text": null, "m": true, "n": 2.5}\n]\n'
    table = parse_table(Path("x.json"), text.encode(encoding), say=lambda line: None)
    assert table.columns == ["text", "n", "m"] and list(table.lines) == [2, 4]
    assert list(table.rows()) == [["café, noir", "1", ""], ["", "2.5", "true"]]


def test_a_json_file_with_an_object_on_each_line_is_read_as_jsonl():
    assert list(parse_table(Path("x.json"), b'{"a": 1}\n{"a": 2}\n').rows()) == [["1"], ["2"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n"data": [{"a": 1}]}', "x.json: expected an array of objects, [{"),
        ('[{"a": 1},\n 2]', "line 2: expected an object"),
        ('[{"a": 1},\n {"a": {"b": 1}}]', "line 2: 'a' holds an object; expected flat objects"),
        ('[{"a": [1]}]', "line 1: 'a' holds a list; expected flat objects"),
        ('[{"a": 1},\n {"a": 2}', "line 2: not a JSON array (it ends too early)"),
        ('[{"a": 1}\n {"a": 2}]', "line 1: not a JSON array (expected a comma"),
        ('[{"a": 1},\n {"a" 2}]', "line 2: not a JSON array (Expecting ':' delimiter)"),
        ('[{"a": 1}] 7', "there is more text after it"),
        ("[" * 100_000, "not a JSON array"),
        ("[]", "has no rows"),
        ("", "expected an array"),
    ],
)
def test_other_json_is_refused_with_what_was_expected(text, message):
    with pytest.raises(DataError) as e:
        parse_table(Path("x.json"), text.encode())
    assert message in str(e.value) and str(e.value).startswith("x.json")


def test_json_may_not_outgrow_the_memory(monkeypatch):
    monkeypatch.setenv("REGARD_MEMORY", "1M")
    with pytest.raises(LimitError, match=r"reading x.json would need"):
        parse_table(Path("x.json"), b"[" + b"{}," * 50_000 + b"{}]")
    keys = ("\n".join(f'{{"k{i}": 1}}' for i in range(600))).encode()
    with pytest.raises(LimitError, match="a table of 600 rows and 600 columns"):
        parse_table(Path("x.jsonl"), keys)
