"""Numbers and sets of labels: trained, used, scored and compared from the command line, for every medium."""

import csv
import json

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import f1_score, r2_score
from tests.system.cli_toy import regard, works

FAST = ["--device=cpu", "--set=schedule.warmup=5", "--set=model.dropout=0.0"]
GENRES = {"love": "romance", "gun": "action", "robot": "scifi"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("targets"), np.random.default_rng(0)
    rooms, city = rng.integers(1, 7, 200), rng.choice(["Bern", "Oslo"], 200)
    rows = zip(rooms, city, 1000 * rooms + 2500 * (city == "Bern") + 300, strict=True)
    write(folder / "houses.csv", [["rooms", "city", "price"], *rows])
    words = {"awful": 1, "fine": 3, "great": 5}
    texts = [rng.choice(list(words), 2) for _ in range(300)]
    rows = [[f"{a} and {b} film {i}", (words[a] + words[b]) / 2] for i, (a, b) in enumerate(texts)]
    write(folder / "reviews.csv", [["review", "stars"], *rows])
    rows = []
    for number in range(60):
        grey = int(rng.integers(256))
        Image.fromarray(np.full((8, 8), grey, np.uint8)).save(folder / f"{number}.png")
        rows.append([f"{number}.png", grey / 10, "|".join(["dark"] * (grey < 128) + ["even"] * (number % 2 == 0))])
    write(folder / "images.csv", [["image", "brightness", "tags"], *rows])
    rows = [[f"s{i}", t, i / 10 + 0.1 * t, i / 10] for i in range(60) for t in range(6)]
    write(folder / "curves.csv", [["id", "time", "value", "level"], *rows])
    rows = []
    for number in range(240):
        there = [word for word in GENRES if rng.random() < 0.5]
        rows.append([f"{' '.join(there)} {number}", ";".join(GENRES[word] for word in there)])
    write(folder / "films.csv", [["plot", "genres"], *rows])
    return folder


def write(path, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(autouse=True)
def _here(place, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(place)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "regard-cache"))


REGRESSIONS = {
    "rows": ["--data=houses.csv", "--label=price", "--arch=mlp", "--steps=150"],
    "texts": ["--data=reviews.csv", "--label=stars", "--steps=100", "--set=model.width=32", "--set=data.vocab=80",
              "--set=optim.lr=0.003"],
    "images": ["--data=images.csv", "--label=brightness", "--arch=vit", "--steps=60", "--set=data.size=8",
               "--set=model.width=32", "--set=model.layers=1", "--set=data.augment.flip=true"],
    "series": ["--data=curves.csv", "--label=level", "--arch=series", "--steps=60", "--set=model.width=32"],
}  # fmt: skip


@pytest.fixture(scope="module")
def houses(place, tmp_path_factory):
    """A run on rows, for the tests that only use it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "regard-cache"))
        works("train", "regress", *REGRESSIONS["rows"], "--name=houses", *FAST)


@pytest.mark.parametrize("medium", REGRESSIONS)
def test_a_number_is_learned_from_every_medium(place, medium):
    run, words = f"runs/{medium}", REGRESSIONS[medium]
    said = works("train", "regress", *words, f"--name={medium}", *FAST)
    assert "targets from" in said.err and "baseline: the mean" in said.err
    assert ("baseline: gradient-boosted trees, r2" in said.err) == (medium == "rows")
    scores = json.loads(works("evaluate", run, "--json").out)
    assert scores["r2"] > 0.7 and scores["mean_r2"] <= 0 and scores["mae"] < scores["mean_mae"]
    assert "(the training mean" in works("evaluate", run).out


def test_evaluate_agrees_with_scikit_learn_on_what_predict_writes(place, houses):
    works("predict", "runs/houses", "houses.csv", "--out=priced.csv")
    rows = read(place / "priced.csv")
    true, predicted = ([float(row[name]) for row in rows] for name in ("price", "predicted_price"))
    scores = json.loads(works("evaluate", "runs/houses", "--data=houses.csv", "--json").out)
    assert scores["r2"] == pytest.approx(r2_score(true, predicted), abs=1e-6)
    assert 0 < scores["seen_in_training"] < len(rows)
    broken = (place / "houses.csv").read_text().replace("\n", "\n2,Oslo,NA\n2,Oslo,1,1\nmany,Oslo,9\n", 1)
    (place / "broken.csv").write_text(broken)
    said = works("evaluate", "runs/houses", "--data=broken.csv", "--json")
    assert json.loads(said.out)["r2"] == scores["r2"] and "skipped 3 of 203 rows: line 2: no number" in said.err
    assert regard("evaluate", "runs/houses", "--data=broken.csv", "--strict").code == 2
    said = works("predict", "runs/houses", "broken.csv", "--out=answered.csv")
    (first, *marked), answered = read(place / "answered.csv")[:3], read(place / "answered.csv")
    assert first["predicted_price"] and [row["predicted_price"] for row in marked] == ["", ""]
    assert [row["price"] for row in answered[3:]] == [row["price"] for row in rows]
    assert all(row["predicted_price"] for row in answered[3:])
    assert "no answer for 1 of 203 rows: line 3: 4 columns" in said.err
    assert "line 4: 'many' is not a number (column 'rooms')" in said.err
    value = json.loads(works("classify", "runs/houses", "rooms=3, city=Oslo", "--json").out)["value"]
    assert value == pytest.approx(3300, abs=500)


def test_two_regressions_are_compared_by_their_error(place, houses):
    words = [word for word in REGRESSIONS["rows"] if not word.startswith("--steps")]
    works("train", "regress", *words, "--steps=3", "--name=short", *FAST)
    said = works("compare", "runs/short", "runs/houses", "--data=houses.csv")
    assert "runs/houses is better than runs/short" in said.out and "MAE" in said.out


def test_a_word_among_the_numbers_is_refused_by_name(place):
    said = regard("train", "regress", "--data=houses.csv", "--label=city", "--arch=mlp")
    assert said.code == 2 and "'Bern' is not a number (column 'city')" in said.err


def test_several_labels_of_a_text_are_learned(place):
    said = works("train", "multilabel", "--data=films.csv", "--text=plot", "--label=genres", "--steps=200",
                 "--set=model.width=32", "--set=data.vocab=80", "--set=optim.lr=0.003", "--name=films",
                 *FAST)  # fmt: skip
    assert "3 labels" in said.err and "labels per example" in said.err
    answer = json.loads(works("classify", "runs/films", "gun robot 7", "--json").out)
    assert set(answer["labels"]) <= set(answer["probabilities"]) == set(GENRES.values())
    scores = json.loads(works("evaluate", "runs/films", "--data=films.csv", "--json").out)
    works("predict", "runs/films", "films.csv", "--out=tagged.csv")
    rows = read(place / "tagged.csv")
    names = sorted(GENRES.values())
    true = [[name in row["genres"].split(";") for name in names] for row in rows]
    predicted = [[name in row["labels"].split("|") for name in names] for row in rows]
    assert scores["micro_f1"] == pytest.approx(f1_score(true, predicted, average="micro"))
    assert scores["macro_f1"] == pytest.approx(f1_score(true, predicted, average="macro"))
    assert scores["micro_f1"] > scores["all_labels_micro_f1"] + 0.1
    assert "threshold" in works("evaluate", "runs/films").out


def test_several_labels_of_an_image_are_learned(place):
    works("train", "multilabel", "--data=images.csv", "--label=tags", "--arch=vit", "--steps=40", "--set=data.size=8",
          "--set=model.width=32", "--set=model.layers=1", "--name=tags", *FAST)  # fmt: skip
    scores = {row["label"]: row for row in json.loads(works("evaluate", "runs/tags", "--json").out)["by_label"]}
    assert scores["dark"]["f1"] > 0.8 and set(scores) == {"dark", "even"}


@pytest.mark.parametrize("words", [*REGRESSIONS.values()], ids=REGRESSIONS)
def test_a_dry_run_estimates_memory(words):
    assert "memory" in works("train", "regress", *words, "--dry-run", *FAST).out


def test_a_dry_run_of_several_labels_estimates_memory():
    words = ["--data=films.csv", "--label=genres", "--dry-run", "--device=cpu"]
    assert "memory" in works("train", "multilabel", *words).out


@pytest.mark.parametrize("task", ["regress", "multilabel"])
def test_mixed_images_are_for_single_classes(task):
    words = ["--data=images.csv", "--label=tags", "--arch=vit", "--set=data.augment.mixup=0.2", "--device=cpu"]
    result = regard("train", task, *words)
    assert result.code == 2 and "mixup and cutmix are for single classes" in result.err
