"""Reading text: what is promised for good files, and one sentence for each bad one."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv, feather

from regard.data.pairs import clean, read_lines, read_pairs
from regard.errors import DataError


def put(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\ntwo", ["one", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"\xef\xbb\xbfone\n", ["one"]),
        (b"\n\n", ["", ""]),
        ("a\u2028b\x85c\x0bd\n".encode(), ["a\u2028b\x85c\x0bd"]),  # str.splitlines would make four lines of it
    ],
    ids=["plain", "no last newline", "windows", "bom", "empty lines", "other separators"],
)
@pytest.mark.parametrize("packed", [False, True])
def test_lines_are_what_newlines_say(tmp_path, data, lines, packed):
    path = put(tmp_path, "text", gzip.compress(data) if packed else data)  # known by its first bytes, not its name
    assert list(read_lines(path)) == lines


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"fine\ncaf\xe9\n", ["line 2", "0xe9", "position 4", "iconv -f latin1"]),
        ("text\n".encode("utf-16"), ["UTF-16", "iconv -f utf-16"]),
        (b"", ["is empty"]),
        (gzip.compress(b"x" * 1000, mtime=0)[:-9], ["damaged gzip"]),
    ],
    ids=["latin-1", "utf-16", "empty", "cut gzip"],
)
def test_a_bad_file_is_told_in_a_sentence(tmp_path, data, words):
    path = put(tmp_path, "bad.en", data)
    with pytest.raises(DataError) as e:
        list(read_lines(path))
    assert "\n" not in str(e.value)
    for word in [str(path), *words]:
        assert word in str(e.value)


def test_a_folder_or_nothing_for_a_file(tmp_path):
    with pytest.raises(DataError, match="is a folder"):
        list(read_lines(tmp_path))
    with pytest.raises(DataError, match="no file"):
        list(read_lines(tmp_path / "nothing"))


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (1, 2)])
def test_unequal_counts_name_both(tmp_path, left, right):
    source, target = put(tmp_path, "a", b"x\n" * left), put(tmp_path, "b", b"y\n" * right)
    with pytest.raises(DataError, match=f"{source} has {left} lines and {target} has {right}"):
        list(read_pairs(source, target))


def test_pairs_keep_empty_lines_in_step(tmp_path):
    source, target = put(tmp_path, "a", b"one\n\nthree\n"), put(tmp_path, "b", b"un\ndeux\n\n")
    assert list(read_pairs(source, target)) == [("one", "un"), ("", "deux"), ("three", "")]


@pytest.mark.parametrize("names", [("en", "fr"), ("target", "source")])
def test_one_table_holds_both_sides(tmp_path, names):
    sides = dict(zip(names, (["Hello, you", "Bye"], ["Bonjour, toi", "Adieu"]), strict=True))
    pairs = list(
        zip(
            *(sides[name if name in sides else other] for name, other in (("source", "en"), ("target", "fr"))),
            strict=True,
        )
    )
    pq.write_table(pa.table(sides), tmp_path / "p.parquet")
    feather.write_feather(pa.table(sides), tmp_path / "p.arrow")
    csv.write_csv(pa.table(sides), tmp_path / "p.csv")
    for name in ("p.parquet", "p.arrow", "p.csv"):
        assert list(read_pairs(tmp_path / name, tmp_path / name)) == pairs


def test_clean_makes_every_white_space_one_space():
    assert clean("  Où\u00a0?\u202f  Là !\t") == "Où ? Là !"


def test_reading_is_lazy(tmp_path):
    lines = read_lines(put(tmp_path, "a", b"good\n" * 100_000 + b"\xff\n"))
    assert [next(lines) for _ in range(3)] == ["good"] * 3
