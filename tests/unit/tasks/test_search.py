"""A search trains the preset and variants of it, is judged on the validation set, and goes on where it stopped."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from tests.system.cli_toy import regard, works

from regard.tasks.plan import read_run
from regard.tasks.search import RATES, search_space

SMALL = "data.context=8 model.context=8 model.width=8 model.heads=2 model.layers=1 tokens=64 eval_every=3"
WORDS = ["train", "lm", "--data=my.txt", "--tokens=chars", "--arch=gpt", "--steps=6", "--device=cpu"]
WORDS += [f"--set={setting}" for setting in SMALL.split()]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my.txt").write_text("the cat sat on the mat and saw the dog\n" * 60)


def runs() -> list[dict]:
    return [json.loads((Path("runs/s") / f"trial-00{n}" / "run.json").read_text()) for n in (1, 2, 3)]


def test_a_search_varies_the_preset_and_resumes():
    result = works(*WORDS, "--search=3", "--name=s", "--json")
    trials = json.loads(result.out)["runs"]
    assert [Path(t["folder"]).name for t in trials] == ["trial-001", "trial-002", "trial-003"]
    assert trials[0]["label"] == "preset" and len({t["label"] for t in trials}) == 3
    base = read_run(Path("runs/s/trial-001"))
    assert set(search_space(base)) == {"optim.lr", "optim.adam_lr", "optim.weight_decay", "model.dropout"}
    for other in runs()[1:]:
        assert other["optim"]["lr"] != base.optim.lr and 1 / RATES <= other["optim"]["lr"] / base.optim.lr <= RATES
        assert {k: v for k, v in other["model"].items() if k != "dropout"} == {
            k: v for k, v in runs()[0]["model"].items() if k != "dropout"
        }
    last = runs()[2]
    shutil.rmtree("runs/s/trial-003")  # as if it had been stopped before the third
    plan = json.loads(Path("runs/s/plan.json").read_text())
    Path("runs/s/plan.json").write_text(json.dumps(plan[:2]))
    resumed = works("train", "--resume", "runs/s")
    assert "trial 3 of 3" in resumed.err and resumed.err.count("is finished") == 2
    assert runs()[2]["optim"] == last["optim"] and runs()[2]["model"] == last["model"]
    best = max(trials, key=lambda t: -t["metrics"]["held_out_loss"])
    assert f"regard info {best['folder']}" in resumed.err


@pytest.mark.parametrize("more", ["--seeds=2", "--arch=gpt,llama"])
def test_a_search_varies_one_run(more):
    result = regard(*WORDS, "--search=2", more)
    assert result.code == 2 and "--search varies one run" in result.err and not Path("runs").exists()


def test_without_optuna_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    result = regard(*WORDS, "--search=2")
    assert result.code == 3 and "regard[search]" in result.err and not Path("runs").exists()
