"""A folder of pictures in, a classifier out; a table in, a classifier of rows out: each line of the README."""

import csv
import json
import shutil

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file
from tests.system.cli_toy import regard, works

import regard as package
from regard.checkpoint import load_state
from regard.data.loader import Loader
from regard.tasks.plan import read_run

FAST = ["--device=cpu", "--set=schedule.warmup=5", "--set=batch=16", "--set=data.size=8"]


def stripes(i: int, upright: bool) -> Image.Image:
    """A picture of dark and light stripes, which way tells the class."""
    rng = np.random.default_rng(i)
    x = np.tile(np.where(np.arange(16) // 4 % 2, 220, 30), (16, 1)) + rng.integers(0, 25, (16, 16))
    x = np.roll(x, int(rng.integers(16)), 1)
    return Image.fromarray((x if upright else x.T).astype(np.uint8))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with pictures and a table, and a classifier of each: runs/vit and runs/pass."""
    folder = tmp_path_factory.mktemp("images")
    for name in ("across", "upright"):
        (folder / "photos" / name).mkdir(parents=True)
        for i in range(60):
            stripes(i, name == "upright").save(folder / "photos" / name / f"{i}.png")
    (folder / "photos" / "across" / "broken.png").write_bytes(b"no picture")
    rng = np.random.default_rng(0)
    with open(folder / "students.csv", "w", newline="") as file:
        sheet = csv.writer(file)
        sheet.writerow(["hours", "school", "passed"])
        for _ in range(200):
            hours, school = round(float(rng.uniform(0, 20)), 1), rng.choice(["north", "south"])
            sheet.writerow([hours, school, "yes" if hours + 5 * (school == "north") > 12 else "no"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "regard-cache"))
        patch.chdir(folder)
        result = works("train", "image", "--data=photos", "--steps=120", "--name=vit", *FAST, "--set=model.patch=2")
        rows = works("train", "classify", "--data=students.csv", "--label=passed", "--arch=mlp", "--name=pass",
                     "--device=cpu")  # fmt: skip
    assert "skipped 1 (train)" in result.err and "regard classify runs/vit picture.png" in result.err
    assert "2 classes of 'passed'" in rows.err and "1 numbers and 1 categories" in rows.err
    return folder


@pytest.fixture(autouse=True)
def _here(place, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(place)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "regard-cache"))


def test_a_picture_is_classified_and_where_it_looked_is_drawn(place, tmp_path):
    stripes(999, True).save(tmp_path / "new.png")
    result = works("classify", "runs/vit", tmp_path / "new.png", f"--attention={tmp_path}/seen.png", "--device=cpu")
    assert result.lines[0] == "upright" and "%" in result.lines[1]
    with Image.open(tmp_path / "seen.png") as image:
        assert image.width > 600
    predictions = json.loads(works("classify", "runs/vit", tmp_path / "new.png", "--json", "--device=cpu").out)
    assert predictions["label"] == "upright" and sum(predictions["probabilities"].values()) == pytest.approx(1)


def test_another_table_is_read_by_the_column_it_was_trained_on(place):
    shutil.copytree("runs/vit", "runs/way")
    settings = json.loads((place / "runs/way/run.json").read_text())
    settings["data"]["label"] = "way"
    (place / "runs/way/run.json").write_text(json.dumps(settings))
    (place / "ways.csv").write_text("image,way,by\nphotos/across/1.png,across,a\nphotos/upright/1.png,upright,b\n")
    scores = json.loads(works("evaluate", "runs/way", "--data=ways.csv", "--json", "--device=cpu").out)
    assert scores["accuracy"] == 1.0 and scores["images"] == 2


def test_evaluate_scores_what_was_held_out_or_a_folder(place):
    own = json.loads(works("evaluate", "runs/vit", "--json", "--device=cpu").out)
    assert own["images"] == 12 and own["accuracy"] == 1.0 and own["on"] == "its own validation set"
    result = works("evaluate", "runs/vit", "--data=photos", "--device=cpu", "--picture=sure.png")
    assert "120 images" in result.out and "majority class, accuracy 50.00%" in result.out and "skipped 1" in result.err
    assert "warning: 108 of these 120 images were in the training data; the score is inflated" in result.out
    assert (place / "sure.png").is_file()
    assert "scored on photos" in works("info", "runs/vit").out


@pytest.mark.parametrize(("run", "examples"), [("runs/vit", 12), ("runs/pass", 19)])
def test_compare_reads_the_validation_set_of_the_first(place, run, examples):
    found = json.loads(works("compare", run, run, "--json", "--device=cpu").out)
    (metric,) = found["metrics"]
    right = json.loads(works("evaluate", run, "--json", "--device=cpu").out)["accuracy"]
    assert metric["first"] == metric["second"] == pytest.approx(100 * right) and metric["p_value"] == 1.0
    assert found["examples"] == examples and found["on"] == "its own validation set"
    assert "do not do the same task (image and table)" in regard("compare", "runs/vit", "runs/pass").err


def test_predict_labels_a_folder(place):
    result = works("predict", "runs/vit", "photos/across", "--out=scored.csv", "--device=cpu")
    with open("scored.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 61 and list(rows[0]) == ["file", "label", "probability_across", "probability_upright"]
    (broken,) = [row for row in rows if row["file"].endswith("broken.png")]
    assert broken["label"] == "" and "no answer" in result.err
    assert sum(row["label"] == "across" for row in rows) == 60
    lines = works("predict", "runs/vit", "photos/across/1.png", "--json", "--device=cpu").lines
    assert json.loads(lines[0])["label"] == "across"


def test_transformers_processor_makes_the_same_pixels(place):
    run = read_run("runs/vit")
    assert run.model.labels == ("across", "upright") and run.model.channels == 1
    theirs = transformers.ViTForImageClassification.from_pretrained("runs/vit").eval()
    ours = package.load("runs/vit")
    pixels = ours.read(["photos/across/1.png", "photos/upright/2.png"])
    made = json.loads((place / "runs/vit/preprocessor_config.json").read_text())
    scaled = (torch.from_numpy(pixels) * made["rescale_factor"] - made["image_mean"][0]) / made["image_std"][0]
    expected = theirs(scaled).logits.softmax(-1).detach().double().numpy()
    assert np.allclose(ours.probabilities(pixels), expected, atol=1e-5)
    assert theirs.config.id2label[1] == "upright"


TUNED = ["--device=cpu", "--set=batch=16", "--steps=30"]


@pytest.fixture
def few(place):
    """Other classes: bright and dark pictures, 12 of each, of another size than the model was trained on."""
    for name, light in (("bright", 180), ("dark", 40)):
        (place / "few" / name).mkdir(parents=True, exist_ok=True)
        for i in range(12):
            noise = np.random.default_rng(i).integers(0, 40, (20, 14), dtype=np.uint8)
            Image.fromarray(noise + np.uint8(light)).save(place / "few" / name / f"{i}.png")
    return "few"


def test_a_vit_is_fine_tuned_to_other_classes(place, few):
    result = works("finetune", "runs/vit", "image", f"--data={few}", "--name=tuned", *TUNED, "--set=data.size=16")
    assert "randomly initialised: classifier" in result.err
    run = read_run("runs/tuned")
    assert run.optim.layer_decay < 1 and run.model.image == 16 and run.model.labels == ("bright", "dark")
    assert run.model.mean == read_run("runs/vit").model.mean
    scores = json.loads(works("evaluate", "runs/tuned", f"--data={few}", "--json", "--device=cpu").out)
    assert scores["accuracy"] == 1.0


def test_lora_keeps_what_it_adds_to_a_vit(place, few):
    words = ["finetune", "runs/vit", "image", f"--data={few}", "--name=added", "--lora", "--rank=2", *TUNED]
    dry = json.loads(works(*words, "--dry-run", "--json").out)
    works(*words)
    files = {path.name: path.stat().st_size for path in (place / "runs/added").iterdir()}
    assert "model.safetensors" not in files
    trained = load_file(place / "runs/added/adapter_model.safetensors").values()
    assert dry["memory"]["gradients"] == 4 * sum(tensor.numel() for tensor in trained)
    assert files["adapter_model.safetensors"] < (place / "runs/vit/model.safetensors").stat().st_size / 2
    settings = json.loads((place / "runs/added/adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(place / "runs/vit") and settings["modules_to_save"]
    scores = json.loads(works("evaluate", "runs/added", f"--data={few}", "--json", "--device=cpu").out)
    assert scores["accuracy"] == 1.0
    works("export", "runs/added", "--out=added-hf")
    whole, added = (package.load(name).probabilities for name in ("added-hf", "runs/added"))
    pixels = package.load("runs/added").read(["few/dark/1.png"])
    np.testing.assert_allclose(whole(pixels), added(pixels), atol=1e-6)


def test_frozen_parts_keep_their_weights(place, few):
    works("finetune", "runs/vit", "image", f"--data={few}", "--name=cold", "--set=freeze=stem.*,layers.0.*", *TUNED)
    before, after = (package.load(name).model for name in ("runs/vit", "runs/cold"))
    assert torch.equal(before.stem.weight, after.stem.weight)
    assert torch.equal(before.layers[0].mlp.up.weight, after.layers[0].mlp.up.weight)
    assert not torch.equal(before.layers[1].mlp.up.weight, after.layers[1].mlp.up.weight)
    probe = works("finetune", "runs/vit", "image", f"--data={few}", "--name=probe", "--probe", *TUNED)
    assert "the encoder is frozen" in probe.err
    assert torch.equal(before.layers[1].mlp.up.weight, package.load("runs/probe").model.layers[1].mlp.up.weight)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("runs/vit", "classify", "--data=students.csv"), "it can be fine-tuned to: image, multilabel-image"),
        (("runs/pass", "image", "--data=few"), "models that can: vit"),
        (("runs/vit", "image", "--data=few", "--set=freeze=nothing.*"), "the parts of the model are: classifier"),
        (("runs/vit", "image", "--data=few", "--set=optim.layer_decay=0"), "must be in (0, 1]"),
    ],
)
def test_what_cannot_be_fine_tuned_names_what_can(place, few, words, message):
    result = regard("finetune", *words, "--steps=2", "--device=cpu")
    assert result.code == 2 and message in result.err


def test_several_architectures_make_one_table_and_resume_goes_on(place):
    result = works("train", "image", "--data=photos", "--arch=mlp,conv", "--steps=10", "--name=both", *FAST)
    assert {line.split()[0] for line in result.lines[1:3]} == {"mlp", "conv"}
    again = works("train", "--resume", "runs/both")
    assert "is finished" in again.err
    files = ["photos/across/1.png", "photos/across/2.png"]
    assert works("classify", "runs/both/mlp-seed0", files[0], "--device=cpu").lines[0]
    assert [line.split()[0] for line in works("classify", "runs/both/mlp-seed0", *files, "--device=cpu").lines] == files
    refused = regard("classify", "runs/both/mlp-seed0", "photos/across/1.png", "--attention=x.png", "--device=cpu")
    assert refused.code == 2 and "only a vit does" in refused.err


def test_a_stopped_run_with_mixed_and_moved_pictures_resumes_exactly(place, tmp_path, monkeypatch):
    how = ["train", "image", "--data=photos", *FAST, "--set=data.augment.crop=0.1", "--set=data.augment.mixup=0.4",
           "--set=data.augment.operations=1", "--set=save_every=3", "--steps=10", "--set=keep_state=true"]  # fmt: skip
    works(*how, f"--name={tmp_path}/whole")
    given = Loader.__next__
    with monkeypatch.context() as patch:
        patch.setattr(Loader, "__next__", lambda self: given(self) if self.position < 5 else 1 / 0)
        assert regard(*how, f"--name={tmp_path}/parts").code == 1
    works("train", "--resume", f"{tmp_path}/parts", "--device=cpu")
    whole, parts = (load_state(tmp_path / name / "state.safetensors") for name in ("whole", "parts"))
    assert parts[1]["progress"]["step"] == 10
    assert all(torch.equal(tensor, parts[0][name]) for name, tensor in whole[0].items())


def test_dry_run_tells_size_and_samples(place):
    result = works("train", "image", "--data=photos", "--dry-run", "--set=data.size=32", "--set=model.patch=8")
    assert "samples per step: 64" in result.out and "model.image" in result.out and "vocabulary" not in result.out
    (answer,) = json.loads(works("train", "image", "--data=mnist", "--arch=mlp", "--dry-run", "--json").out)
    assert answer["settings"]["model"]["shape"] == [3, 28, 28]


def test_rows_are_classified_scored_and_labelled(place):
    result = works("classify", "runs/pass", "hours=19, school=north", "--device=cpu")
    assert result.lines[0] == "yes"
    assert works("classify", "runs/pass", "hours=1,school=south", "--device=cpu").lines[0] == "no"
    scores = json.loads(works("evaluate", "runs/pass", "--json", "--device=cpu").out)
    assert scores["accuracy"] >= 0.9 and scores["rows"] == 19
    output = works("evaluate", "runs/pass", "--data=students.csv", "--device=cpu").out
    assert "200 rows" in output and "warning: 181 of these 200 rows were in the training data" in output
    works("predict", "runs/pass", "students.csv", "--out=marked.csv", "--device=cpu")
    with open("marked.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:4] == ["hours", "school", "passed", "predicted_passed"]
    assert np.mean([row["passed"] == row["predicted_passed"] for row in rows]) > 0.9


def test_columns_and_categories_the_model_does_not_know_are_named(place):
    (place / "other.csv").write_text("school,hour\nnorth,3\neast,4\neast,5\n,6\n")
    result = works("predict", "runs/pass", "other.csv", "--device=cpu")
    assert "no column 'hours': replaced by its mean" in result.err and len(result.lines) == 5
    assert "'school': 2 of 4 rows hold values not in the training data, ignored: 'east'" in result.err
    assert "not in the training data" in works("classify", "runs/pass", "hours=3, school=east", "--device=cpu").err
    (place / "wrong.csv").write_text("a,b\n1,2\n")
    result = regard("predict", "runs/pass", "wrong.csv", "--out=none.csv", "--device=cpu")
    assert result.code == 2 and "expected hours, school" in result.err and not (place / "none.csv").exists()
    assert works("predict", "runs/pass", "students.csv", "--device=cpu").err == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("classify", "runs/vit", "none.png"), "no such file"),
        (("classify", "runs/vit", "students.csv"), "damaged or not an image"),
        (("classify", "runs/pass", "hours"), "name=value"),
        (("classify", "runs/pass", "hour=3"), "did you mean 'hours'"),
        (("train", "image", "--data=none/"), "no such file or folder"),
        (("train", "image"), "regard train image --data photos/"),
        (("train", "image", "--data=photos", "--set=data.size=30", "--set=model.patch=7"), "model.patch=6"),
        (("train", "image", "--data=tatoeba-en-fr"), "for images there are"),
        (("evaluate", "runs/vit", "--data=students.csv"), "not among those trained on"),
    ],
)
def test_mistakes_are_told_in_a_sentence(words, message):
    done = regard(*words, "--device=cpu")
    assert done.code == 2 and message in done.err and len(done.err.strip().splitlines()) <= 2, done.err


def test_breast_cancer_is_told_from_thirty_numbers(tmp_path, monkeypatch):
    """scikit-learn's table; its own logistic regression gets 97 to 98 % in cross-validation."""
    from sklearn.datasets import load_breast_cancer

    loaded = load_breast_cancer()
    with open(tmp_path / "cells.csv", "w", newline="") as file:
        sheet = csv.writer(file)
        sheet.writerow([*loaded.feature_names, "diagnosis"])
        names = loaded.target_names[loaded.target]
        sheet.writerows([*row, name] for row, name in zip(loaded.data.tolist(), names, strict=True))
    monkeypatch.chdir(tmp_path)
    works("train", "classify", "--data=cells.csv", "--label=diagnosis", "--arch=mlp", "--name=cells", "--device=cpu",
          "--set=data.held_out=0.3")  # fmt: skip
    scores = json.loads(works("evaluate", "runs/cells", "--json", "--device=cpu").out)
    assert scores["rows"] == 171 and scores["accuracy"] >= 0.94
