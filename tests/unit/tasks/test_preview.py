"""What a dry run understood: for every medium three examples, from the head, and nothing is written."""

import csv
import json
import os
import wave

import numpy as np
import pytest
from PIL import Image

from regard.config import from_dict
from regard.errors import DataError
from regard.tasks.plan import default_run, resolve_config
from regard.tasks.preview import preview
from regard.tasks.registry import get


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


def look(task, arch="", **data):
    settings = from_dict(get(task).settings, data)
    return preview(resolve_config(default_run(task, arch, "", settings)))


def write(path, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)
    return str(path)


def text_table(path, rows):
    words = ("stirring", "dull")
    return write(path, [["review", "label"], *([f"a {words[i % 2]} film {i}", "yn"[i % 2]] for i in range(rows))])


def test_texts_are_shown_in_pieces_with_their_label(tmp_path):
    seen = look("classify", path=text_table(tmp_path / "x.csv", 100), vocab=200)
    assert seen.whole and seen.notes[0] == "columns: review, label" and "2 labels: " in seen.notes[2]
    assert len(seen.examples) == 3
    for example in seen.examples:
        pieces, label = example.split(" → ")
        assert pieces.startswith("[CLS] a ") and pieces.endswith("[SEP]") and ("dull" in pieces) == (label == "n")


def test_only_the_head_is_read_and_nothing_stays(tmp_path):
    path = text_table(tmp_path / "x.csv", 50_000)
    before = sorted(os.walk(tmp_path))
    seen = look("classify", path=path, vocab=200)
    assert not seen.whole and seen.notes[1].startswith("1,799 texts to train on, 200 for validation")
    assert sorted(os.walk(tmp_path)) == before and os.environ["REGARD_CACHE"] == str(tmp_path / "cache")


def test_a_head_of_one_class_is_a_note_and_a_whole_file_an_error(tmp_path):
    rows = [["review", "label"], *([f"a film {i}", "y" if i < 3_000 else "n"] for i in range(6_000))]
    seen = look("classify", path=write(tmp_path / "x.csv", rows), vocab=200)
    assert not seen.examples and "x.csv: all examples have the label 'y'" in seen.notes[-1]
    assert str(tmp_path / "x.csv") in seen.notes[-1], "the user's file, not its copy"
    with pytest.raises(DataError, match="all examples have the label"):
        look("classify", path=write(tmp_path / "y.csv", rows[:1000]), vocab=200)


def test_rows_are_shown_by_column(tmp_path):
    rows = [[f"{i},5 %", ("north", "south")[i % 2], "yes" if i > 20 else "no"] for i in range(40)]
    seen = look("table", path=write(tmp_path / "x.csv", [["rate", "school", "passed"], *rows]), label="passed")
    assert "'rate': percentages, decimal commas, read as numbers" in seen.notes
    for example in seen.examples:
        rate, rest = example.removeprefix("rate=").split(", school=")
        number = float(rate) - 0.5
        assert rest == f"{('north', 'south')[int(number) % 2]} → {'yes' if number > 20 else 'no'}"


def test_images_and_clips_are_shown_by_shape(tmp_path):
    for label, level in (("dark", 10), ("light", 200)):
        (tmp_path / "images" / label).mkdir(parents=True)
        (tmp_path / "clips" / label).mkdir(parents=True)
        for i in range(8):
            Image.new("RGB", (20, 10), (level + i, 30, 60)).save(tmp_path / "images" / label / f"{i}.png")
            with wave.open(str(tmp_path / "clips" / label / f"{i}.wav"), "wb") as file:
                file.setparams((1, 2, 16_000, 0, "NONE", ""))
                file.writeframes((np.random.default_rng(i).normal(size=4000) * level).astype("<i2").tobytes())
    seen = look("image", path=str(tmp_path / "images"), size=16)
    assert all(example.startswith("3 × 16 × 16 pixels, ") for example in seen.examples)
    assert {example.split(" → ")[1] for example in seen.examples} <= {"dark", "light"}
    assert all("40 × " in example for example in look("audio", path=str(tmp_path / "clips")).examples)


def test_series_and_forecasts_are_shown_by_their_numbers(tmp_path):
    rows = [[f"s{i % 20}", i // 20, i % 20, "ab"[i % 2]] for i in range(400)]
    seen = look("series", path=write(tmp_path / "s.csv", [["id", "time", "value", "label"], *rows]))
    for example in seen.examples:
        points, label = example.split(" → ")
        value = int(points.split("0: ")[1].split(",")[0])
        assert label == "ab"[value % 2]
    days = np.delete(np.arange("2024-01-01", "2024-07-01", dtype="datetime64[D]"), [100])
    history = write(tmp_path / "h.csv", [["date", "sold"], *([str(day), i] for i, day in enumerate(days))])
    seen = look("forecast", path=history, lookback=8, horizon=4)
    assert seen.notes[:2] == [
        "columns: date, sold",
        "1 time missing: left as gaps on the calendar, not trained on or scored",
    ]
    assert all(example.startswith("sold … ") and example.count(", ") == 8 for example in seen.examples)


def test_dialogues_show_what_is_learned(tmp_path):
    turns = [
        [{"role": "user", "content": f"What is {i}?"}, {"role": "assistant", "content": f"It is {i}."}]
        for i in range(60)
    ]
    (tmp_path / "chat.jsonl").write_text("".join(json.dumps({"messages": turn}) + "\n" for turn in turns))
    seen = look("lm", path=str(tmp_path / "chat.jsonl"), vocab=300)
    assert len(seen.examples) == 3 and all("Instruction" in x.split(" → ")[0] for x in seen.examples)
    assert all("What" not in x.split(" → ")[1] for x in seen.examples)


def test_sentences_words_and_masks_are_shown(tmp_path):
    (tmp_path / "a.en").write_text("".join(f"I see {i} cats .\n" for i in range(3_000)))
    (tmp_path / "a.fr").write_text("".join(f"Je vois {i} chats .\n" for i in range(3_000)))
    seen = look("translate", source=str(tmp_path / "a.en"), target=str(tmp_path / "a.fr"), vocab=300)
    assert not seen.whole and all("see" in x.split(" → ")[0] and "vois" in x.split(" → ")[1] for x in seen.examples)
    (tmp_path / "a.conll").write_text("".join(f"Ada B-PER\nmet O\nGrace{i} B-PER\n\n" for i in range(40)))
    assert all("ada/B-PER met/O" in x for x in look("tag", path=str(tmp_path / "a.conll"), vocab=100).examples)
    paragraphs = [f"The cat number {i} sat on the mat. It was happy there." for i in range(60)]
    (tmp_path / "a.txt").write_text("\n\n".join(paragraphs))
    masked = look("mlm", path=str(tmp_path / "a.txt"), vocab=200).examples
    assert all("[CLS]" in x and " → " in x for x in masked) and "[MASK]" in " ".join(masked)


def test_a_set_that_is_not_here_is_not_downloaded(monkeypatch):
    monkeypatch.delenv("REGARD_DATA", raising=False)
    seen = look("classify", name="sst2")
    assert not seen.examples and seen.notes == ["sst2 is not downloaded; type: regard data get sst2"]
