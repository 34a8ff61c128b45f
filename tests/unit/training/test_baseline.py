"""The kept model is compared with the best baseline, and a loser is told what to type."""

import dataclasses

import pytest
from tests.unit.training.toy import Task, toy_parts, toy_run

from regard.tasks.classes import imbalance
from regard.training.baseline import Baseline, compared
from regard.training.loop import train
from regard.training.overfitting import Curve, what_next

BAG = Baseline("bag of words", "accuracy", 0.71)
MAJORITY = Baseline("majority class", "accuracy", 0.5)
NAIVE = Baseline("naive", "held_out_loss", 0.3, lower_is_better=True)


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        (
            {"accuracy": 0.8},
            "better than the baseline: accuracy 80.0%; bag of words, accuracy 71.0% (majority class 50.0%)",
        ),
        (
            {"accuracy": 0.6},
            "THE BASELINE WON: bag of words, accuracy 71.0% (majority class 50.0%); this model: accuracy 60.0%. Go on.",
        ),
        (
            {"accuracy": 0.71},
            "NO BETTER THAN THE BASELINE: bag of words, accuracy 71.0% (majority class 50.0%); "
            "this model: accuracy 71.0%. Go on.",
        ),
        ({"r2": 0.5}, ""),
    ],
)
def test_the_best_baseline_is_the_one_to_beat(metrics, expected):
    assert compared([MAJORITY, BAG], metrics, "Go on.") == expected


def test_a_tie_of_perfect_scores_asks_for_a_larger_validation_set():
    line = compared([dataclasses.replace(BAG, value=1.0)], {"accuracy": 1.0}, "Go on.")
    assert line.endswith("this model: accuracy 100.0%. To tell them apart, use a larger validation set: --valid FILE")


def test_of_losses_the_lowest_wins():
    other = dataclasses.replace(NAIVE, name="seasonal", value=0.2)
    assert compared([NAIVE, other], {"held_out_loss": 0.25}, "").startswith("THE BASELINE WON: seasonal")
    assert compared([NAIVE, other], {"held_out_loss": 0.1}, "").startswith("better than the baseline: validation loss")


@pytest.mark.parametrize(
    ("losses", "advice"),
    [
        ([2.0, 1.0], "--resume runs/x --minutes 4"),
        ([2.0], "--resume runs/x --minutes 4"),
        ([1.0, 1.2], "a lower rate: --set optim.lr=0.0025"),
    ],
)
def test_advice_depends_on_whether_the_loss_fell(losses, advice, tmp_path):
    curve = Curve()
    for step, loss in enumerate(losses):
        curve.add({"step": step, "loss": loss})
        curve.add({"step": step, "held_out_loss": 1.0})
    assert what_next(curve, toy_run(), "runs/x", 58.0).endswith(advice)


class Half(Task):
    def held_out(self, model, batches):
        return {"loss": 1.0, "accuracy": 0.5}


def test_a_run_ends_with_its_comparison(tmp_path, capsys):
    parts = dataclasses.replace(toy_parts(toy_run(), objective=Half()), baselines=[BAG])
    train(parts, tmp_path / "run")
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("THE BASELINE WON: bag of words, accuracy 71.0%; this model: accuracy 50.0%")
    assert f"regard train --resume {tmp_path / 'run'} --minutes 1" in last


def test_imbalance_names_what_balancing_changes():
    (line,) = imbalance(["no", "yes"], [900, 100], "weighs")
    assert "'yes' has 100 of 1,000 training examples, 'no' 900" in line
    assert "--set data.balanced=true weighs every 'yes' 9.0 times as much as every 'no'" in line
    assert not list(imbalance(["no", "yes"], [300, 100], "weighs"))
