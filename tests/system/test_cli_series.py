"""Curves in, classes out; a table in, its next rows out: each line of the README, on toy data."""

import csv
import json

import numpy as np
import pytest
from tests.system.cli_toy import regard, works

FAST = ["--device=cpu", "--set=schedule.warmup=5", "--set=model.dropout=0.0", "--set=model.width=32"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with light curves of two classes and a table by the hour, and models trained on them."""
    folder = tmp_path_factory.mktemp("series")
    rng = np.random.default_rng(0)
    rows = []
    for star in range(120):
        kind = "flat" if star % 3 else "wave"
        for time in np.sort(rng.uniform(0, 20, rng.integers(8, 20))):
            value = 3 * np.sin(time + star) * (kind == "wave") + rng.normal() * 0.3
            rows.append([f"star{star}", f"{time:.4f}", f"{value:.4f}", "0.3", "gr"[rng.integers(2)], kind])
    rows[3][2] = "nan"
    write(folder / "curves.csv", [["object_id", "mjd", "flux", "flux_err", "band", "class"], *rows])
    one = [row[:5] for row in rows if row[0] == "star3"]
    write(folder / "curve.csv", [["object_id", "mjd", "flux", "flux_err", "band"], *one])
    hours = [f"2020-01-{1 + h // 24:02d} {h % 24:02d}:00:00" for h in range(600)]
    prices = [[t, f"{10 + 3 * np.sin(h * np.pi / 12) + rng.normal() * 0.2:.3f}"] for h, t in enumerate(hours)]
    write(folder / "prices.csv", [["date", "close"], *prices])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "regard-cache"))
        patch.chdir(folder)
        result = works("train", "series", "--data=curves.csv", "--label=class", "--steps=40", "--name=s", *FAST)
        assert (
            "1 points dropped: a time, value or error" in result.err and "nearest neighbours by summary" in result.err
        )
        assert (
            "108 series to train on, 12 for validation" in result.err
            and "regard classify runs/s curve.csv" in result.err
        )
        result = works("train", "forecast", "--data=prices.csv", "--target=close", "--horizon=12", "--steps=60",
                     "--set=data.lookback=48", "--name=f", *FAST)  # fmt: skip
        assert (
            "windows of 48 rows, 12 to forecast: 361 to train" in result.err and "the last 24 rows again" in result.err
        )
    return folder


def write(path, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)


@pytest.fixture(autouse=True)
def _here(place, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(place)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "regard-cache"))


def test_a_curve_is_classified_and_drawn(place):
    result = works("classify", "runs/s", "curve.csv", "--attention=look.png")
    assert result.lines[0] == "wave" and (place / "look.png").stat().st_size > 10_000
    answer = json.loads(works("classify", "runs/s", "curve.csv", "--json").out)
    assert answer["label"] == "wave" and sum(answer["probabilities"].values()) == pytest.approx(1)


def test_all_curves_of_a_file_get_a_row(place):
    works("predict", "runs/s", "curves.csv", "--out=labels.csv")
    rows = list(csv.DictReader((place / "labels.csv").read_text().splitlines()))
    assert len(rows) == 120 and rows[0]["id"] == "star0" and set(rows[0]) == {
        "id", "label", "probability_flat", "probability_wave"}  # fmt: skip
    assert sum(row["label"] == ("flat" if i % 3 else "wave") for i, row in enumerate(rows)) > 110
    works("predict", "runs/s", "curves.csv", "--out=labels.jsonl")
    lines = (place / "labels.jsonl").read_text().splitlines()
    assert lines == works("predict", "runs/s", "curves.csv", "--json").lines, "a line for each, as of all predictions"
    assert [json.loads(line)["label"] for line in lines] == [row["label"] for row in rows]


def test_a_curve_of_one_band_or_of_one_point_is_drawn(place):
    with open(place / "curve.csv") as file:
        header, *rows = csv.reader(file)
    one = [row for row in rows if row[4] == "g"]
    for count in (len(one), 2, 1):
        write(place / "one.csv", [header, *one[:count]])
        works("classify", "runs/s", "one.csv", f"--attention=one{count}.png")
        assert (place / f"one{count}.png").stat().st_size > 8_000


def test_a_curve_of_no_usable_point_keeps_its_row(place):
    header = ["object_id", "mjd", "flux", "flux_err", "band"]
    rows = [["b", "1", "2", "0.1", "g"], ["void", "1", "nan", "0.1", "g"], ["a", "1", "2", "-1", "g"],
            ["a", "2", "2", "0.1", "r"]]  # fmt: skip
    write(place / "some.csv", [header, *rows])
    result = works("predict", "runs/s", "some.csv")
    actual = list(csv.DictReader(result.lines))
    assert [row["id"] for row in actual] == ["b", "void", "a"] and set(actual[1].values()) == {"void", ""}
    assert all(row["label"] and float(row["probability_wave"]) > 0 for row in (actual[0], actual[2]))
    assert "1 series skipped: no usable point" in result.err and "an error is negative" in result.err
    write(place / "none.csv", [header, rows[1]])
    for verb in ("classify", "predict"):
        result = regard(verb, "runs/s", "none.csv")
        assert result.code == 2 and "none.csv: no usable point in any of its 1 series" in result.err, result.err


def test_many_curves_are_told_how_to_get_them_all():
    assert "and 108 more; all of them: regard predict runs/s curves.csv --out" in works(
        "classify", "runs/s", "curves.csv").err  # fmt: skip


def test_a_table_of_labels_is_found_from_another_folder(place, monkeypatch, tmp_path):
    with open(place / "curves.csv") as file:
        _, *rows = csv.reader(file)
    write(place / "alone.csv", [["id", "time", "value"], *(row[:3] for row in rows)])
    write(place / "kinds.csv", [["id", "label"], *dict.fromkeys((row[0], row[5]) for row in rows)])
    works("train", "series", "--data=alone.csv", "--set=data.labels=kinds.csv", "--steps=2", "--name=beside", *FAST)
    monkeypatch.chdir(tmp_path)
    assert json.loads(works("evaluate", place / "runs/beside", "--json").out)["series"] == 12


def test_what_never_moves_is_forecast_as_it_is(place):
    for value in ("10", "0.1"):
        write(place / "const.csv", [["day", "close"], *([day, value] for day in range(200))])
        result = works("train", "forecast", "--data=const.csv", "--target=close", "--horizon=4", "--steps=4", "--force",
                     "--set=data.lookback=16", "--name=const", *FAST)  # fmt: skip
        assert "a linear map of the past, validation loss 0.0000" in result.err
        assert json.loads(works("evaluate", "runs/const", "--json").out)["mse"] < 0.1
        rows = json.loads(works("forecast", "runs/const", "--json").out)
        assert [row["close"] for row in rows] == pytest.approx([float(value)] * 4, rel=0.05)


def test_scores_stand_beside_the_nearest_and_say_how_sure(place):
    scores = json.loads(works("evaluate", "runs/s", "--json", "--picture=sure.png").out)
    assert scores["accuracy"] > 0.9 and scores["series"] == 12 and 0.5 < scores["majority"] < 0.7
    assert (place / "sure.png").is_file() and "nearest" in scores and "ece" in scores
    result = works("evaluate", "runs/s", "--data=curves.csv")
    assert "120 series" in result.out and "balanced" in result.out and "baselines" in result.out
    assert "warning: 108 of these 120 series were in the training data" in result.out
    assert "a series to classify series" in works("info", "runs/s").out


def test_a_model_learns_to_fill_in_and_goes_on_to_classes(place):
    with open(place / "curves.csv") as file:
        write(place / "bare.csv", [row[:5] for row in csv.reader(file)])
    result = works("train", "fill-series", "--data=bare.csv", "--steps=30", "--name=pre", *FAST)
    assert "of the mean" in result.err and "regard finetune runs/pre series" in result.err
    assert "108 series to train on, 12 for validation: 10 % chosen by a hash of the content" in result.err
    result = works("finetune", "runs/pre", "series", "--data=curves.csv", "--label=class", "--steps=10", "--name=post",
                 "--device=cpu", "--set=schedule.warmup=2")  # fmt: skip
    assert "randomly initialised: classifier" in result.err
    result = works("train", "fill-series", "--data=curves.csv", "--label=class", "--steps=2", "--name=too", *FAST)
    assert "2 labels: flat: 72" in result.err
    result = regard("train", "fill-series", "--data=bare.csv", "--steps=2", "--set=data.balanced=true", *FAST)
    assert result.code == 2 and "data.balanced needs a label" in result.err
    result = regard("classify", "runs/pre", "curve.csv")
    assert result.code == 2 and "regard finetune runs/pre series" in result.err


def test_the_next_rows_are_told_with_their_quantiles_and_drawn(place):
    result = works("forecast", "runs/f", "--data=prices.csv", "--plot=next.png")
    assert result.lines[0].split() == ["time", "close", "close", "10%", "close", "50%", "close", "90%"]
    assert result.lines[1].startswith("2020-01-26 00:00:00") and (place / "next.png").stat().st_size > 10_000
    assert len(json.loads(works("forecast", "runs/f", "--data=prices.csv", "--json").out)) == 12
    works("predict", "runs/f", "prices.csv", "--out=next.csv")
    rows = list(csv.DictReader((place / "next.csv").read_text().splitlines()))
    assert len(rows) == 12 and all(
        float(r["close 10%"]) <= float(r["close 50%"]) <= float(r["close 90%"]) for r in rows
    )


def test_every_test_window_is_scored_beside_simple_forecasts():
    scores = json.loads(works("evaluate", "runs/f", "--json").out)
    assert scores["windows"] == 120 - 12 + 1 and scores["lookback"] == 48 and scores["horizon"] == 12
    names = [row["name"] for row in scores["beside"]]
    assert names == ["the last 24 rows again", "a linear map of the past"] and 0 < scores["mse"] < 1
    assert "look-back 48" in works("evaluate", "runs/f").out


def test_forecasting_rows_that_were_trained_on_is_pointed_out(place):
    with open(place / "prices.csv") as file:
        header, *rows = csv.reader(file)
    write(place / "early.csv", [header, *rows[:400]])  # 420 of 600 were trained on
    assert (
        "warning: 80 of these 80 rows were in the training data" in works("evaluate", "runs/f", "--data=early.csv").out
    )
    assert "were in the training" not in works("evaluate", "runs/f", "--data=prices.csv").out


def test_all_rows_of_a_score_on_another_table_have_one_unit(place):
    with open(place / "prices.csv") as file:
        header, *rows = csv.reader(file)
    write(place / "large.csv", [[*header, "volume"], *([t, f"{10 * float(x):.3f}", "7"] for t, x in rows)])
    own, large = (json.loads(works("evaluate", "runs/f", "--json", *more).out) for more in ([], ["--data=large.csv"]))
    for a, b in zip((own, *own["beside"]), (large, *large["beside"]), strict=True):
        assert b["mse"] == pytest.approx(100 * a["mse"], rel=1e-2), "in units of the spread it was trained on"


def test_compare_pairs_series_and_windows(place):
    found = json.loads(works("compare", "runs/s", "runs/s", "--data=curves.csv", "--json").out)
    assert found["examples"] == 120 and found["metrics"][0]["metric"] == "accuracy"
    found = json.loads(works("compare", "runs/f", "runs/f", "--json").out)
    own = json.loads(works("evaluate", "runs/f", "--json").out)
    assert found["examples"] == own["windows"] and found["metrics"][0]["first"] == pytest.approx(own["mse"], rel=1e-4)
    assert "score the same squared error" in works("compare", "runs/f", "runs/f").out


def test_parts_of_a_cross_validation_share_a_row(place):
    (place / "cv.py").write_text(
        "import dataclasses\nfrom regard.tasks.plan import read_run\n\n\ndef recipe():\n    run = read_run('runs/s')\n"
        "    data = [dataclasses.replace(run.data, folds=3, fold=k) for k in range(2)]\n"
        "    return {f'cv/{k}': dataclasses.replace(run, data=d, steps=2, minutes=0.0) for k, d in enumerate(data)}\n"
    )
    result = works("train", "cv.py", "--name=cv", "--device=cpu")
    row = next(line for line in result.lines if line.startswith("cv"))
    assert row.split()[1] == "2" and "±" in row
    assert (place / "runs/cv/cv-0-seed0/run.json").is_file() and (place / "runs/cv/cv-1-seed0/run.json").is_file()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("train", "series"), "train on what"),
        (("train", "series", "--data=curves.csv", "--label=kind", "--steps=1"), "no labels in a column 'kind'; name"),
        (("train", "forecast", "--data=prices.csv", "--horizon=500", "--steps=1"), "one window takes"),
        (("train", "forecast", "--data=prices.csv", "--target=open", "--steps=1"), "no column 'open'"),
        (("forecast", "runs/s"), "regard forecast is not for runs/s, a model to classify series"),
        (("classify", "runs/f", "curve.csv"), "regard classify is not for runs/f, a model to forecast"),
        (("finetune", "runs/f", "series", "--data=curves.csv"), "which cannot be fine-tuned to series"),
        (("evaluate", "runs/s", "--data=prices.csv"), "which column is the value"),
        (
            ("classify", "runs/s", "prices.csv"),
            "there are: date, close; call it 'value', or train with --set data.value",
        ),
        (("evaluate", "runs/s", "--data=curve.csv"), "no labels in a column 'class'; give a table of them: --labels"),
    ],
)
def test_what_went_wrong_is_one_sentence(words, says):
    result = regard(*words)
    assert result.code == 2 and says in result.err, result.err
    assert result.err.strip().splitlines()[-1].startswith("regard: ")


def test_a_dry_run_shows_every_plan_and_its_data():
    result = works("train", "series", "--data=curves.csv", "--arch=transformer,lstm", "--dry-run")
    assert result.out.count("samples per step: 32") == 2
    assert "examples, as the model sees them\n  0: " in result.out and "2 labels: flat: 72" in result.out
    output = works("train", "forecast", "--data=prices.csv", "--horizon=12", "--set=data.lookback=48", "--dry-run").out
    assert "samples per step" in output and "columns: date, close" in output
    result = regard("train", "forecast", "--data=prices.csv", "--dry-run")
    assert result.code == 2 and "one window takes 96 (horizon 96" in result.err, "as training would"
    assert "samples per step" in works("train", "fill-series", "--data=curves.csv", "--dry-run").out


def test_missing_days_leave_the_peaks_on_their_weekday(place):
    """39 of 420 days are missing; the week has its peak on Saturday."""
    rng = np.random.default_rng(0)
    days = np.arange("2023-01-01", "2024-02-25", dtype="datetime64[D]")
    weekday = (days.astype(int) + 3) % 7  # Monday is 0
    visits = 100 + 60 * (weekday == 5) + rng.normal(size=len(days)) * 3
    kept = np.sort(rng.permutation(len(days))[39:])
    write(place / "visits.csv", [["date", "visits"], *([str(days[i]), f"{visits[i]:.1f}"] for i in kept)])
    result = works("train", "forecast", "--data=visits.csv", "--horizon=14", "--set=data.lookback=28", "--steps=60",
                   "--set=optim.lr=5e-3", "--set=model.patch=7", "--set=model.stride=7", "--name=v", *FAST)  # fmt: skip
    assert "39 times missing" in result.err and "the last 7 rows again" in result.err
    rows = json.loads(works("forecast", "runs/v", "--json").out)
    assert [r["time"] for r in rows[:2]] == ["2024-02-25", "2024-02-26"]
    peaks = sorted(sorted(rows, key=lambda r: -r["visits"])[:2], key=lambda r: r["time"])
    assert [r["time"] for r in peaks] == ["2024-03-02", "2024-03-09"], "both are Saturdays"


def test_stores_are_forecast_with_what_is_known_in_advance(place):
    days = np.arange("2023-01-01", "2023-07-15", dtype="datetime64[D]")
    rows = [["date", "store", "sold", "closed"]]
    for scale, store in ((1, "north"), (1000, "south")):
        for i, day in enumerate(days):
            closed = (i * 7 + scale) % 11 == 0
            rows.append([day, store, scale * (9 if closed else 10 + i % 2) if i < 188 else "", "yes" if closed else ""])
    write(place / "stores.csv", rows)
    result = works("train", "forecast", "--data=stores.csv", "--target=sold", "--series=store", "--covariates=closed",
                   "--horizon=7", "--set=data.lookback=14", "--steps=3", "--name=stores", *FAST)  # fmt: skip
    assert "2 series, 188 rows of 1 column" in result.err
    works("predict", "runs/stores", "stores.csv", "--out=next.csv")
    answers = list(csv.DictReader((place / "next.csv").read_text().splitlines()))
    assert [(r["store"], r["time"]) for r in answers[6:8]] == [("north", "2023-07-14"), ("south", "2023-07-08")]
    assert all(500 < float(r["sold"]) / (1 if r["store"] == "south" else 0.001) < 20000 for r in answers)
    assert "each series' standard deviation" in works("evaluate", "runs/stores").out
    write(place / "past.csv", [row for row in rows if row[2] != ""])
    result = regard("forecast", "runs/stores", "--data=past.csv")
    assert result.code == 2 and "add up to 7 rows after the last of north, with closed filled in" in result.err
