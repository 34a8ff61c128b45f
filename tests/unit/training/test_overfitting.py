"""A run says that it overfits, once and at the end; so it does with what an objective warns of."""

import dataclasses

import numpy as np
import pytest
from tests.unit.training.toy import Task, toy_run, toy_train

from regard.data.settings import LabelledConfig
from regard.tasks.classes import class_scores
from regard.training.overfitting import Curve, overfitting


def curve(*points: tuple[float, float]) -> Curve:
    curve = Curve()
    for number, (training, valid) in enumerate(points, 1):
        curve.add({"step": number, "loss": training + 0.1})
        curve.add({"step": number, "loss": training - 0.1})
        curve.add({"step": number, "held_out_loss": valid, "better": False})
    return curve


def test_small_losses_are_shown_by_their_digits():
    tiny = Curve()
    for step, (training, valid) in enumerate([(2e-4, 1.5e-4), (1e-4, 1.6e-4), (5e-5, 1.7e-4)], 1):
        tiny.add({"step": step, "loss": training})
        tiny.add({"step": step, "held_out_loss": valid})
    assert "rose from 0.00015 to 0.00017 while the training loss fell from 0.0002 to 5e-05" in overfitting(
        tiny, toy_run()
    )


def test_overfitting_needs_validation_up_and_training_down():
    told = overfitting(curve((3.0, 3.0), (2.0, 2.5), (1.5, 2.6), (1.0, 3.0)), toy_run())
    assert told.startswith("OVERFITTING: since step 2 the validation loss rose from 2.500 to 3.000 while the training")
    assert "fell from 2.000 to 1.000" in told and told.endswith(
        "--set patience=2 to stop sooner, or --set model.dropout=0.2"
    )


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(3.0, 3.0), (2.0, 2.5), (1.0, 2.4)],
        [(3.0, 3.0), (2.0, 2.5), (1.5, 2.8)],
        [(3.0, 3.0), (2.0, 2.5), (1.9, 2.51), (1.8, 2.52)],
        [(3.0, 3.0), (2.0, 2.5), (2.2, 2.8), (2.4, 3.0)],
    ],
    ids=["nothing yet", "learning", "one rise only", "hardly any rise", "diverging"],
)
def test_other_runs_do_not_overfit(points):
    assert overfitting(curve(*points), toy_run()) == ""


class Rising(Task):
    """Its validation loss rises from the second evaluation on; from the third on it warns."""

    evaluations = 0
    warning = ""

    def held_out(self, model, batches):
        self.evaluations += 1
        self.warning = f"ALARM: evaluation {self.evaluations}" if self.evaluations >= 3 else ""
        return {"loss": 1.0 + 0.1 * self.evaluations, "accuracy": 0.1 * self.evaluations}


def test_warnings_come_once_and_again_at_the_end(tmp_path, capsys):
    run = toy_run(average=False, steps=60, eval_every=10, log_every=5)
    toy_train(tmp_path, run, objective=Rising(), quiet=False)
    lines = capsys.readouterr().err.splitlines()
    done = next(i for i, line in enumerate(lines) if line.startswith("done: step 60"))
    topics = [line.partition(":")[0] for line in lines]
    assert sorted(topics[:done].count(topic) for topic in ("ALARM", "OVERFITTING")) == [1, 1]
    assert lines[done + 1].startswith("ALARM: evaluation 6. "), "that of the model that is kept"
    assert lines[done + 2].startswith("OVERFITTING: since step 10 the validation loss rose from 1.100 to 1.600")


def test_a_resumed_run_knows_its_curve(tmp_path, capsys):
    """The last two evaluations are those of the resumed run; the best was before."""
    run = toy_run(average=False, steps=40, eval_every=10, log_every=5)
    toy_train(tmp_path, run, objective=Rising())
    toy_train(tmp_path, dataclasses.replace(run), objective=Task(), resume=True, quiet=False)
    assert "OVERFITTING: since step 10 the validation loss rose from 1.100 to 1.400" in capsys.readouterr().err


def test_class_scores_warn_of_one_class_for_all():
    run = dataclasses.replace(toy_run(), data=LabelledConfig(path="x.csv"))
    scores = class_scores(run, ("a", "b"))
    assert scores is not None
    scores(np.array([0, 1, 1]), np.array([1, 1, 1]))
    assert scores.warning.startswith("ALARM: all 3")
    scores(np.array([0, 1, 1]), np.array([1, 0, 1]))
    assert scores.warning == ""
