"""Runs trained by an earlier version open, and answer as they did (`tests/fixtures/make_runs.py` tells how)."""

import json
import math
import shutil
from pathlib import Path

import pytest
from tests.fixtures.replies import replies
from tests.system.cli_toy import works

import regard
from regard.errors import CheckpointError

FIXTURES = Path(__file__).parents[1] / "fixtures"
NAMES = sorted(folder.name for folder in (FIXTURES / "runs").iterdir())
CLOSE = 1e-5  # relative, or absolute below one


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A copy to work in: a score is noted in its run, and a stopped run goes on."""
    folder = tmp_path_factory.mktemp("old")
    for name in ("data", "runs"):
        shutil.copytree(FIXTURES / name, folder / name)
    return folder


@pytest.fixture(autouse=True)
def _here(place, monkeypatch):
    monkeypatch.chdir(place)  # the paths in the runs are relative
    for user in ("dropout", "attention"):  # which elements a seed drops may change: here as then, by torch
        monkeypatch.setattr(f"regard.nn.{user}.takes_bits", lambda *_: False)


def differences(now: object, then: object, where: str = "") -> list[str]:
    """Where an answer of today is not the recorded one; what it says in addition is welcome."""
    if isinstance(then, dict):
        if not isinstance(now, dict):
            return [f"{where}: {type(now).__name__}, was an object"]
        missing = [f"{where}.{key}: missing" for key in then if key not in now]
        return missing + [x for key in then if key in now for x in differences(now[key], then[key], f"{where}.{key}")]
    if isinstance(then, list):
        if not isinstance(now, list) or len(now) != len(then):
            return [f"{where}: {now!r:.80}, was a list of {len(then)}"]
        return [x for i, (a, b) in enumerate(zip(now, then, strict=True)) for x in differences(a, b, f"{where}[{i}]")]
    if isinstance(then, float) and isinstance(now, int | float):
        return [] if math.isclose(now, then, rel_tol=CLOSE, abs_tol=CLOSE) else [f"{where}: {now}, was {then}"]
    return [] if now == then else [f"{where}: {now!r}, was {then!r}"]


def test_differences_are_found():
    then = {"a": [1.0, {"b": "x"}], "n": 3}
    assert not differences({"a": [1.0 + 5e-6, {"b": "x", "more": 1}], "n": 3}, then)
    for wrong in ({"a": [1.001, {"b": "x"}], "n": 3}, {"a": [1.0, {"b": "y"}], "n": 3}, {"a": [1.0], "n": 3},
                  {"a": [1.0, {"b": "x"}]}, {"a": [1.0, {"b": "x"}], "n": 4}):  # fmt: skip
        assert len(differences(wrong, then)) == 1


def test_every_task_has_an_old_run():
    tasks = {json.loads((FIXTURES / "runs" / name / "run.json").read_text())["task"] for name in NAMES}
    assert tasks == {"translate", "lm", "mlm", "classify", "pair", "tag", "image", "table", "caption", "series",
                     "fill-series", "forecast", "audio"}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_old_run_answers_as_it_did(name):
    inputs, answers = (json.loads(Path("runs", name, f"{file}.json").read_text()) for file in ("inputs", "answers"))
    problems = differences(replies(f"runs/{name}", inputs), answers)
    assert not problems, "\n".join(problems[:10])


@pytest.mark.parametrize("name", NAMES)
def test_info_describes_an_old_run(name):
    settings = json.loads(Path("runs", name, "run.json").read_text())
    info = json.loads(works("info", f"runs/{name}", "--json").out)
    assert info["task"] == settings["task"] and info["held_out"] and info["training"]["steps"] == settings["steps"]
    assert works("info", f"runs/{name}").out.startswith(f"runs/{name}: ")


def test_old_filler_of_series_is_refused_with_a_way_on():
    with pytest.raises(CheckpointError, match=r"regard finetune runs/fill-series series --data"):
        regard.load("runs/fill-series")
