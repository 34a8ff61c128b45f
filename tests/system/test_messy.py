"""Data as people have it, from the file to a trained model: it is read and reported, or one question is asked."""

import json
import random
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import soundfile
from openpyxl import Workbook
from pyarrow import parquet
from tests.system.cli_toy import regard, works

GOOD, BAD = ("good", "great", "lovely"), ("bad", "dull", "awful")
TINY = ["--steps=2", "--device=cpu", "--set=model.width=16", "--set=model.heads=2", "--set=model.ffn=16"]
TEXTS = [*TINY, "--set=model.layers=1", "--set=data.vocab=80"]


def reviews(count: int = 60) -> list[tuple[str, str]]:
    rng = random.Random(0)
    words = (BAD if i % 2 else GOOD for i in range(count))
    return [(f'a "{rng.choice(w)}" film, naïve; {i}', "neg" if w is BAD else "pos") for i, w in enumerate(words)]


def delimited(delimiter: str, rows: list[tuple[str, str]]) -> str:
    cells = (delimiter.join('"' + cell.replace('"', '""') + '"' for cell in row) for row in [("text", "label"), *rows])
    return "\r\n".join(cells) + "\r\n"


def excel(path: Path, rows: list[tuple[str, str]]) -> None:
    book = Workbook()
    for row in [("text", "label"), *rows]:
        book.active.append(row)
    book.save(path)


def objects(rows: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"text": text, "label": label} for text, label in rows]


def to_parquet(path: Path, rows: list[tuple[str, str]]) -> None:
    parquet.write_table(pa.Table.from_pylist(objects(rows)), path)


TABLES = {
    "semicolon.csv": (lambda p, r: p.write_text(delimited(";", r)), "separated by a semicolon"),
    "utf16.csv": (lambda p, r: p.write_text(delimited(",", r), "utf-16"), "read as UTF-16"),
    "latin1.csv": (lambda p, r: p.write_text(delimited(";", r), "latin-1"), "read as Latin-1"),
    "bom.csv": (lambda p, r: p.write_text(delimited(",", r), "utf-8-sig"), ""),
    "quoted.tsv": (lambda p, r: p.write_text(delimited("\t", r)), ""),
    "array.json": (lambda p, r: p.write_text(json.dumps(objects(r), indent=1)), ""),
    "x.parquet": (to_parquet, ""),
    "x.xlsx": (excel, ""),
    "unlabelled.csv": (
        lambda p, r: p.write_text(delimited(",", [("no label", ""), *r, ("", "pos")]) + '"one",two,three\r\n'),
        "skipped 3 of 63 rows: line 2: no label",
    ),
}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", TABLES)
def test_a_messy_table_trains_a_classifier(tmp_path, name):
    write, note = TABLES[name]
    write(tmp_path / name, reviews())
    result = works("train", "classify", f"--data={name}", "--name=x", *TEXTS)
    assert note in result.err and "54 texts to train on, 6 for validation" in result.err
    assert """for example: 'a "dull" film, naïve; 1' is 'neg'""" in result.err


def test_skipped_rows_of_a_scored_file_are_reported_once(tmp_path):
    TABLES["unlabelled.csv"][0](tmp_path / "x.csv", reviews())
    works("train", "classify", "--data=x.csv", "--name=x", *TEXTS)
    result = works("evaluate", "runs/x", "--data=x.csv")
    assert result.err.count("skipped 3 of 63 rows") == 1 and "were in the training data" in result.out + result.err


def test_a_file_half_without_labels_asks_whether_it_was_read_right(tmp_path):
    rows = [(text, label if i % 2 else "") for i, (text, label) in enumerate(reviews())]
    (tmp_path / "x.csv").write_text(delimited(",", rows))
    result = regard("train", "classify", "--data=x.csv", "--name=x", *TEXTS)
    assert result.code == 2 and "(30 of 60 rows cannot be used, more than a third); check that" in result.err


def test_prose_in_latin1_asks_for_a_conversion_that_works(tmp_path):
    (tmp_path / "my notes").mkdir()
    for i in range(3):
        (tmp_path / "my notes" / f"{i}.txt").write_text("Déjà vu, the cat sat on the mat. " * 40, "latin-1")
    refused = regard("train", "lm", "--data=my notes", *TINY)
    assert refused.code == 2 and "Latin-1" in refused.err
    subprocess.run(["sh", "-c", refused.err.split("to convert all, type: ")[1]], check=True)
    works(
        "train", "lm", "--data=my notes-utf8", "--tokens=chars", "--set=model.layers=1", "--set=model.context=32", *TINY
    )


def test_a_table_given_as_prose_asks_what_to_learn(tmp_path):
    TABLES["semicolon.csv"][0](tmp_path / "r.csv", reviews())
    refused = regard("train", "lm", "--data=r.csv", *TINY)
    assert refused.code == 2 and not Path("runs").exists()
    command = refused.err.split("type: regard ")[1].split(";")[0].replace("--text COLUMN --label COLUMN", "--text text")
    works(*shlex.split(command), *TEXTS)


def test_percentages_and_prices_are_numbers(tmp_path):
    rows = [f'{i % 7 + 1},{i % 5 * 12.5:.1f} %,"€{1000 + 7 * i:,}",{"yes" if i % 5 > 2 else "no"}' for i in range(60)]
    Path("shops.csv").write_text("\n".join(["day,discount,sales,open", *rows]) + "\n", "utf-8")
    result = works("train", "table", "--data=shops.csv", "--label=open", "--steps=2", "--device=cpu")
    assert "3 numbers and 0 categories" in result.err and "percentages" in result.err


def test_mp3_files_train_a_classifier_of_clips(tmp_path):
    rng = np.random.default_rng(0)
    for label, pitch in (("low", 220), ("high", 880)):
        (tmp_path / "clips" / label).mkdir(parents=True)
        for i in range(6):
            wave = 0.3 * np.sin(2 * np.pi * pitch * np.arange(4000) / 8000) + 0.01 * rng.standard_normal(4000)
            soundfile.write(tmp_path / "clips" / label / f"{i}.mp3", wave, 8000)
    (tmp_path / "clips" / "high" / "broken.mp3").write_bytes(b"no music")
    result = works("train", "audio", "--data=clips", *TINY, "--set=model.layers=1", "--set=data.seconds=1")
    assert "10 clips to train on, 2 for validation" in result.err and "broken.mp3 is not a WAV" in result.err


def test_instructions_in_an_array_train_a_language_model(tmp_path):
    records = [{"instruction": "add", "input": f"{i} 1", "output": f"{i + 1}"} for i in range(40)]
    Path("alpaca.json").write_text(json.dumps(records))
    settings = ["--tokens=bytes", "--set=model.layers=1", "--set=model.context=64"]
    result = works("train", "lm", "--data=alpaca.json", *settings, *TINY)
    assert "40 records in Alpaca's format" in result.err


def test_five_short_texts_train_a_bert(tmp_path):
    (tmp_path / "five").mkdir()
    for i in range(5):
        (tmp_path / "five" / f"{i}.txt").write_text(f"The cat of text {i} sat down. Then it slept.\n")
    result = works("train", "mlm", "--data=five", *TEXTS)
    assert "documents" in result.err and Path("runs/five-bert/model.safetensors").is_file()
