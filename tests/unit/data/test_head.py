"""The head of data: whole lines, rows and files, and nothing else is touched."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regard.data.head import FILES, LINES, head_of
from regard.data.tables import read_table


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "latin-1"])
def test_lines_are_whole_in_every_encoding(tmp_path, encoding):
    rows = [f"é{i},{i}" for i in range(LINES + 500)]
    (tmp_path / "x.csv").write_bytes("\n".join(["text,number", *rows]).encode(encoding))
    copy, more = head_of(tmp_path / "x.csv", tmp_path / "head")
    table = read_table(copy, say=lambda _: None)
    assert more and len(table) == LINES - 1 and table.text("text")[-1] == f"é{LINES - 2}"


def test_a_cell_with_line_breaks_is_not_cut(tmp_path):
    rows = [f'"a\nb {i}",{i}' for i in range(LINES)]
    (tmp_path / "x.csv").write_text("\n".join(["text,number", *rows]))
    copy, more = head_of(tmp_path / "x.csv", tmp_path / "head")
    table = read_table(copy, strict=True)
    assert more and set(map(len, table.text("text"))) <= {5, 6, 7}


def test_a_short_file_is_whole_and_gzip_is_read(tmp_path):
    with gzip.open(tmp_path / "x.csv.gz", "wt") as file:
        file.write("a,b\n1,2\n")
    copy, more = head_of(tmp_path / "x.csv.gz", tmp_path / "head")
    assert not more and copy.read_text() == "a,b\n1,2\n"


def test_rows_of_json_and_parquet(tmp_path):
    rows = [{"text": f"t{i}", "label": i % 2} for i in range(LINES + 10)]
    (tmp_path / "x.json").write_text(json.dumps(rows, indent=1))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    for name in ("x.json", "x.parquet"):
        copy, more = head_of(tmp_path / name, tmp_path / f"head-{name}", lines=64)
        table = read_table(copy)
        assert more and 1 < len(table) <= 64 and table.text("text") == [f"t{i}" for i in range(len(table))], name


def test_files_are_taken_from_every_folder_by_link(tmp_path):
    for label in ("a", "b"):
        (tmp_path / "all" / label).mkdir(parents=True)
        for i in range(FILES):
            (tmp_path / "all" / label / f"{i:03d}.txt").write_text(f"{label}{i}")
    copy, more = head_of(tmp_path / "all", tmp_path / "head")
    files = [path for path in copy.rglob("*") if path.is_file()]
    assert more and len(files) == FILES and all(path.is_symlink() for path in files)
    assert {path.parent.name for path in files} == {"a", "b"}
