"""A finished run keeps its model, can be trained for longer, and an extension that was stopped resumes exactly."""

import json
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
from tests.system.cli_toy import regard, works
from tests.system.test_resume import Stop, StoppingLoader
from tests.unit.training.toy import Task, outcome, toy_run, toy_train

import regard as package
from regard.checkpoint import load_state, tensor_names
from regard.errors import CheckpointError
from regard.tasks.plan import read_run
from regard.training.progress import has_state, reduce_state

TABLE = ["train", "classify", "--arch=mlp", "--data=rows.csv", "--label=y", "--device=cpu", "--set=eval_every=10"]


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [f"{x / 10},{'high' if x >= 30 else 'low'}" for x in range(60)]
    Path("rows.csv").write_text("x,y\n" + "\n".join(lines) + "\n")
    return tmp_path


def events(name: str) -> list[dict]:
    return [json.loads(line) for line in Path(name, "metrics.jsonl").read_text().splitlines()]


def test_a_finished_run_is_extended_and_keeps_no_optimiser(rows):
    works(*TABLE, "--steps=20", "--set=log_every=1", "--name=x")
    assert not has_state(Path("runs/x")) and not Path("runs/x/checkpoints").exists()
    assert "for longer: regard train --resume runs/x --minutes" in works("train", "--resume=runs/x").err
    works("train", "--resume=runs/x", "--steps", "30")
    rates = {event["step"]: event["lr"] for event in events("runs/x") if "lr" in event}
    assert sorted(rates) == list(range(1, 51)) and rates[21] < max(rates[step] for step in range(21, 26)) > rates[50]
    assert read_run("runs/x").steps == 50 and events("runs/x")[-1]["final"] and not has_state(Path("runs/x"))
    assert package.load("runs/x").predict([{"x": "0.1"}])


@pytest.mark.parametrize("more", [["--epochs", "+3"], ["--minutes=0.01"]])
def test_an_extension_may_be_in_epochs_or_minutes(rows, more):
    works(*TABLE, "--steps=10", "--name=x")
    works("train", "--resume", "runs/x", *more)
    assert read_run("runs/x").steps > 10


def test_an_extension_begins_with_the_kept_model(rows):
    """With a rate of nearly nothing, the first evaluation is that of the run it extends."""
    works(*TABLE, "--steps=20", "--name=x")
    before = events("runs/x")[-1]
    settings = json.loads(Path("runs/x/run.json").read_text())
    settings["optim"]["lr"] = 1e-12
    Path("runs/x/run.json").write_text(json.dumps(settings))
    works("train", "--resume=runs/x", "--steps=10")
    first = next(event for event in events("runs/x") if event["step"] == 30 and "held_out_loss" in event)
    assert first["held_out_loss"] == pytest.approx(before["held_out_loss"], abs=1e-6)


def test_only_finished_runs_are_extended_by_one_measure(rows):
    works(*TABLE, "--steps=10", "--name=x")
    assert "only one of --minutes" in regard("train", "--resume=runs/x", "--steps=5", "--minutes=1").err
    kept = [json.dumps(event) for event in events("runs/x")[:-1]]
    Path("runs/x/metrics.jsonl").write_text("\n".join(kept) + "\n")
    refused = regard("train", "--resume=runs/x", "--steps=5")
    assert refused.code == 2 and "first type: regard train --resume runs/x" in refused.err


def finished(folder: Path, **settings) -> dict:
    toy_train(folder, toy_run(**settings))
    reduce_state(folder)
    return {"held_out_loss": 9.0}


@pytest.mark.parametrize("after", [50, 61])
def test_a_stopped_extension_resumes_exactly(tmp_path, after):
    metrics, longer = finished(tmp_path / "whole"), toy_run(steps=12)
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    toy_train(tmp_path / "whole", longer, extend=metrics)
    with pytest.raises(Stop):
        toy_train(tmp_path / "parts", longer, extend=metrics, loader=StoppingLoader(after))
    toy_train(tmp_path / "parts", read_run(tmp_path / "parts"), resume=True)
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")
    assert load_state(tmp_path / "whole/state.safetensors")[1]["progress"]["step"] == 24 + 12


def test_a_reduced_state_is_not_resumed(tmp_path):
    finished(tmp_path / "run")
    with pytest.raises(CheckpointError, match="--minutes"):
        toy_train(tmp_path / "run", resume=True)


def test_a_kept_state_goes_on_with_its_optimiser(tmp_path):
    toy_train(tmp_path / "run", toy_run(steps=24))
    toy_train(tmp_path / "run", toy_run(steps=12), extend={"held_out_loss": 9.0})
    tensors = load_state(tmp_path / "run/state.safetensors")[0]
    assert {tensors[name].item() for name in tensors if name.startswith("optim.adam.step")} == {36.0}


class Worse(Task):
    def held_out(self, model, batches):
        return {"loss": 10.0}


def test_an_extension_that_is_worse_changes_nothing(tmp_path):
    metrics = finished(tmp_path / "run", average=False)
    result = toy_train(tmp_path / "run", toy_run(steps=12, average=False), objective=Worse(), extend=metrics)
    assert result.kept == "step 24" and result.best == metrics


def test_clean_lists_then_removes(rows):
    works(*TABLE, "--steps=10", "--name=x", "--set=keep_state=true")
    works(*TABLE, "--steps=10", "--name=y", "--set=keep_state=true")
    assert "nothing to remove" in works("clean").err, "they were asked to keep it"
    settings = json.loads(Path("runs/x/run.json").read_text())
    Path("runs/x/run.json").write_text(json.dumps(settings | {"keep_state": False}))
    listed = works("clean")
    assert "runs/x" in listed.out and "runs/y" not in listed.out and "add --yes" in listed.err
    assert has_state(Path("runs/x"))
    freed = json.loads(works("clean", "--yes", "--json").out)["bytes"]
    assert freed > 1000 and not has_state(Path("runs/x")) and tensor_names(Path("runs/x/model.safetensors"))
    assert regard("clean", "nowhere").code == 2


def test_a_full_disk_is_noticed_before_training(rows, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("regard.tasks.assembly.shutil.disk_usage", lambda path: usage(10**6, 10**6 - 100, 100))
    refused = regard(*TABLE, "--steps=10", "--name=x")
    assert refused.code == 2 and "regard clean" in refused.err and not Path("runs/x").exists()
