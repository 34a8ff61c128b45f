"""Folders with files that are not text, and tables that are not prose."""

import json
import shutil
import subprocess

import pyarrow as pa
import pytest
from pyarrow import parquet

from regard.data.masked import prepare_masked
from regard.data.settings import MaskedConfig, TextConfig
from regard.data.tables import is_delimited
from regard.data.text import holds_records, prepare_text, text_files
from regard.errors import DataError
from regard.tasks.plan import default_run, run_from_dict

PROSE = "The cat sat on the mat. It was a fine day, and nobody minded.\n"


@pytest.fixture
def notes(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "my notes"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text(PROSE * 40)
    (folder / "deep" / "b.txt").write_text(PROSE * 40)
    return folder


def test_files_that_are_not_text_are_skipped_by_name(notes):
    (notes / "photo.txt").write_bytes(b"\x89PNG\r\n\0\0\0")
    (notes / "cafe.md").write_bytes("un café noir".encode("latin-1"))
    messages = []
    files = text_files(TextConfig(path=str(notes)), say=messages.append)
    assert [path.name for path in files["train"]] == ["a.txt", "b.txt"]
    (message,) = messages
    assert (
        "skipped 2 of 4 files" in message and "photo.txt is not text" in message and "cafe.md is not UTF-8" in message
    )
    with pytest.raises(DataError, match=r"cafe.md is not UTF-8.*photo.txt is not text"):
        text_files(TextConfig(path=str(notes), strict=True))
    prepare_text(TextConfig(path=str(notes), tokens="chars"), messages.append)
    prepare_masked(MaskedConfig(path=str(notes), valid=str(notes / "a.txt"), vocab=60), messages.append)


@pytest.mark.skipif(not shutil.which("iconv"), reason="the advice is for machines with iconv")
@pytest.mark.parametrize(("encoding", "every"), [("latin-1", True), ("utf-16", True), ("latin-1", False)])
def test_the_advice_works_when_it_is_typed(notes, encoding, every):
    files = sorted(notes.rglob("*.txt"))
    for file in files if every else files[:1]:
        file.write_bytes(("Déjà vu: " + file.read_text()).encode(encoding))
    messages = []
    if every:
        with pytest.raises(DataError) as e:
            text_files(TextConfig(path=str(notes)))
        command, folder = str(e.value).split("; to convert all, type: ")[1], notes.with_name("my notes-utf8")
    else:
        text_files(TextConfig(path=str(notes)), say=messages.append)
        command, folder = messages.pop().split("type: ")[1], notes
    subprocess.run(["sh", "-c", command], check=True)
    read = text_files(TextConfig(path=str(folder)), say=messages.append)["train"]
    assert len(read) == 2 and sum(path.read_text("utf-8").startswith("Déjà vu: The cat") for path in read) == 1 + every
    assert {"b.txt"} <= {path.name for path in read} and all(" skipped 1 of 3" in line for line in messages)


@pytest.mark.parametrize("name", ["r.csv", "r.tsv", "r.json", "r.csv.gz", "r.parquet"])
@pytest.mark.parametrize("part", ["path", "valid"])
def test_a_table_is_not_prose(notes, name, part):
    (notes / name).write_text('[{"text": "a", "label": "b"}]')
    if name.endswith(".parquet"):
        parquet.write_table(pa.table({"text": ["a"], "label": ["b"]}), notes / name)
    files = {"path": str(notes / "a.txt")} | {part: str(notes / name)}
    for config in (TextConfig(**files), MaskedConfig(**files)):
        with pytest.raises(DataError, match=r"is a table, .*type: regard train classify --data .*--text COLUMN") as e:
            text_files(config)
    assert ("add: --set data.as_text=true" in str(e.value)) == is_delimited(name)
    if is_delimited(name):
        assert text_files(TextConfig(**files, as_text=True))[{"path": "train"}.get(part, part)] == [notes / name]


def test_texts_and_records_in_tables_are_learned_but_labels_are_not(notes):
    for rows, kept in (
        ([{"text": PROSE}], True),
        ([{"prompt": "p", "completion": "c"}], True),
        ([{"text": PROSE, "id": 7}], True),
        ([{"text": PROSE, "sentiment": "pos"}], False),
        ([{"title": PROSE}], False),
    ):
        (notes / "r.json").write_text(json.dumps(rows * 20))
        parquet.write_table(pa.Table.from_pylist(rows * 20), notes / "r.parquet")
        assert [holds_records(notes / name) for name in ("r.json", "r.parquet")] == [kept, kept]
    parquet.write_table(pa.Table.from_pylist([{"text": PROSE}] * 9), notes / "r.parquet")
    (notes / "r.jsonl").write_text((json.dumps({"text": PROSE}) + "\n") * 9)
    typed, plain = (prepare_text(TextConfig(path=str(notes / f"r.{e}"), vocab=280)) for e in ("parquet", "jsonl"))
    assert len(typed.train) == len(plain.train) and typed.manifest["report"]["documents"] == 9


def test_a_run_that_learned_a_table_as_prose_goes_on(notes):
    (notes / "r.csv").write_text("text,label\nfine,pos\n")
    old = default_run("lm", "gpt", "", TextConfig(path=str(notes / "r.csv")), "cpu").to_dict()
    del old["data"]["as_text"]  # as versions that did not refuse it wrote run.json
    assert text_files(run_from_dict(old).data)["train"] == [notes / "r.csv"]


def test_records_are_read_as_before(notes):
    (notes / "r.jsonl").write_text((json.dumps({"text": PROSE}) + "\n") * 20)
    assert text_files(TextConfig(path=str(notes / "r.jsonl")))["train"] == [notes / "r.jsonl"]
