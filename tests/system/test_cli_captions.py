"""A table of captions and a folder of images in, sentences out."""

import csv
import json
import os
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.system.cli_toy import regard, works

from regard.data.captions import CaptionsConfig, captioned

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 220)}
FAST = ["--device=cpu", "--set=data.size=8", "--set=data.vocab=400", "--set=data.max_length=10", "--set=batch=24"]
FAST += ["--set=model.patch=4", "--set=schedule.warmup=5", "--set=data.augment.flip=true", "--set=model.dropout=0.0"]
FAST += ["--set=model.width=64", "--set=model.ffn=64", "--set=smoothing=0.0"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Images of one colour, dark on the left or on the right, with two captions each; and runs/cap."""
    folder = tmp_path_factory.mktemp("captions")
    (folder / "images").mkdir()
    rows = []
    for i in range(60):
        name, rng = list(COLOURS)[i % 3], np.random.default_rng(i)
        x = np.tile(np.array(COLOURS[name]), (12, 12, 1)) + rng.integers(-20, 20, (12, 12, 3))
        Image.fromarray(x.clip(0, 255).astype(np.uint8)).save(folder / "images" / f"{i}.png")
        rows += [(f"{i}.png", f"A {name} square ."), (f"{i}.png", f"this is {name}")]
    rows.append(("gone.png", "nothing here"))
    (folder / "captions.tsv").write_text("image\tcaption\n" + "".join(f"{a}\t{b}\n" for a, b in rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "regard-cache"))
        patch.chdir(folder)
        result = works("train", "caption", "--data=captions.tsv", "--images=images", "--steps=120", "--name=cap",
                     "--set=eval_every=60", *FAST)  # fmt: skip
    assert "54 images with 108 captions to train on, 6 with 12 for validation" in result.err
    assert "skipped 1 images: no such file" in result.err and "cut" not in result.err and "bleu" in result.out
    return folder


@pytest.fixture(autouse=True)
def _here(place, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(place)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "regard-cache"))


def test_it_says_which_colour_and_shows_where_it_looked(tmp_path):
    for i, name in enumerate(COLOURS):
        assert name in works("caption", "runs/cap", f"images/{i}.png", "--device=cpu").out
    result = works("caption", "runs/cap", "images/0.png", "--n-best=2", f"--attention={tmp_path}/x.png", "--device=cpu")
    assert len(result.lines) == 2 and Image.open(tmp_path / "x.png").width > 400
    predictions = json.loads(works("caption", "runs/cap", "images/1.png", "--json", "--device=cpu").out)
    assert predictions[0]["log_probability"] < 0


def test_evaluate_tells_right_images_from_others():
    scores = json.loads(works("evaluate", "runs/cap", "--json", "--device=cpu").out)
    assert scores["images"] == 6 and scores["cider"] > scores["cider_of_other_images"] + 1
    assert "BLEU-4" in works("evaluate", "runs/cap", "--device=cpu").out
    (metric,) = json.loads(works("compare", "runs/cap", "runs/cap", "--json", "--device=cpu").out)["metrics"]
    assert metric["metric"] == "CIDEr" and metric["first"] == pytest.approx(scores["cider"])
    header, *rows = Path("captions.tsv").read_text().splitlines()
    Path("again.tsv").write_text("\n".join([header, *(f"images/{row}" for row in rows)]) + "\n")
    again = json.loads(works("evaluate", "runs/cap", "--data=again.tsv", "--json", "--device=cpu").out)
    assert again["seen_in_training"] == again["images"] - 6


def test_predict_captions_a_folder_and_loses_nothing(tmp_path):
    works("predict", "runs/cap", "images", "--out=said.csv", "--device=cpu")
    with open("said.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 60 and list(rows[0]) == ["file", "caption"]
    (tmp_path / "some").mkdir()
    shutil.copy("images/0.png", tmp_path / "some" / "b.png")
    (tmp_path / "some" / "a.png").write_bytes(b"no image")
    result = works("predict", "runs/cap", str(tmp_path / "some"), "--json", "--device=cpu")
    first, second = (json.loads(line) for line in result.lines)
    assert first == {"file": str(tmp_path / "some" / "a.png"), "caption": ""} and "red" in second["caption"]
    assert "no answer" in result.err
    (tmp_path / "empty").mkdir()
    assert "holds no images" in regard("predict", "runs/cap", str(tmp_path / "empty"), "--device=cpu").err


def test_an_image_that_is_mended_is_read_again(place, tmp_path):
    (tmp_path / "0.png").write_bytes(b"no image")
    Image.new("RGB", (4, 4), "red").save(tmp_path / "1.png")
    table = tmp_path / "captions.tsv"
    table.write_text("image\tcaption\n0.png\ta\n1.png\tb\n")
    config = CaptionsConfig(path=str(table), size=4)
    assert len(captioned(table, tmp_path, config, print)[0]) == 1
    folder = tmp_path.stat()
    shutil.copy("images/1.png", tmp_path / "0.png")
    os.utime(tmp_path, ns=(folder.st_atime_ns, folder.st_mtime_ns))  # a file written over leaves its folder as it was
    assert len(captioned(table, tmp_path, config, print)[0]) == 2


def test_a_table_without_a_header_is_read_whole(place, tmp_path):
    table = tmp_path / "captions.tsv"
    table.write_text("0.png\ta square\n1.png\ta circle\n")
    actual, _ = captioned(table, place / "images", CaptionsConfig(path=str(table), size=4), print)
    assert actual.captions == [["a square"], ["a circle"]]


def test_a_tar_file_reads_as_the_folder_and_an_lstm_learns_too(place, tmp_path):
    with tarfile.open(tmp_path / "images.tar", "w") as tar:
        tar.add(place / "images", "some/where")
    result = works("train", "caption", "--data=captions.tsv", f"--images={tmp_path}/images.tar", "--arch=lstm",
                 "--steps=4", f"--name={tmp_path}/lstm", *FAST)  # fmt: skip
    assert "54 images with 108 captions" in result.err
    assert works("caption", tmp_path / "lstm", "images/0.png", "--device=cpu", f"--attention={tmp_path}/y.png").lines


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("translate", "runs/cap", "hello"), "regard caption runs/cap"),
        (("train", "caption", "--data=captions.tsv", "--images=none"), "no folder or tar file"),
        (("train", "caption"), "regard train caption --data captions.tsv"),
        (("train", "caption", "--data=captions.tsv", "--set=data.augment.mixup=1"), "have no caption"),
        (("caption", "runs/cap", "captions.tsv"), "damaged or not an image"),
    ],
)
def test_mistakes_are_told_in_a_sentence(words, message):
    done = regard(*words, "--device=cpu")
    assert done.code == 2 and message in done.err, done.err


def test_a_captioner_learns_other_words(tmp_path):
    """In its own pieces, all of it or by LoRA, which keeps only what it adds."""
    rows = [f"{i}.png\tnow {list(COLOURS)[i % 3]}\n" for i in range(60)]
    Path("other.tsv").write_text("image\tcaption\n" + "".join(rows))
    how = ["finetune", "runs/cap", "caption", "--data=other.tsv", "--images=images", "--device=cpu"]
    works(*how, "--name=again", "--steps=40", "--set=optim.lr=0.003", "--set=smoothing=0.0")
    assert "now red" in works("caption", "runs/again", "images/0.png", "--device=cpu").out
    works(*how, "--name=added", "--lora", "--steps=4")
    assert not Path("runs/added/model.safetensors").exists()
    assert works("caption", "runs/added", "images/0.png", "--device=cpu").out.strip()
