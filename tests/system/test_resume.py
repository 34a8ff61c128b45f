"""A run that was stopped and resumed is the very same run: weights, optimiser, metrics, kept files, bit for bit."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tests.unit.training.toy import Loader, outcome, toy_run, toy_train

from regard import checkpoint
from regard.errors import CheckpointError, ConfigError, WorkFailed
from regard.tasks.plan import read_run
from regard.training.signals import Interrupts

TERMINAL = """
import fcntl, runpy, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # what is on the other end of stdin is the terminal of this process
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=False)
"""
SETTINGS = {
    "adamw": dict(name="adamw"),
    "muon": dict(name="muon"),
    "accumulate": dict(accumulate=3, precision="bf16"),
    "patience": dict(patience=1, steps=40, eval_every=2),
}


class Stop(Exception):
    """Out of nowhere, as far as the loop can tell."""


class StoppingLoader(Loader):
    def __init__(self, after: int):
        super().__init__()
        self.after = after

    def __next__(self):
        if self.position >= self.after:
            raise Stop
        return super().__next__()


@pytest.fixture(scope="module", params=SETTINGS.values(), ids=SETTINGS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, dict]:
    """Settings, and the outcome of a run with them that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole")
    toy_train(folder, toy_run(**request.param))
    return request.param, outcome(folder)


@pytest.mark.parametrize("after", [1, 13, 30, 41])
def test_a_stopped_run_resumes_exactly(tmp_path: Path, whole: tuple[dict, dict], after: int):
    settings, expected = whole
    with pytest.raises(Stop):
        toy_train(tmp_path / "parts", toy_run(**settings), loader=StoppingLoader(after))
    toy_train(tmp_path / "parts", read_run(tmp_path / "parts"), resume=True)
    assert outcome(tmp_path / "parts") == expected


def test_stopping_at_every_step_in_turn_changes_nothing(tmp_path: Path):
    run = toy_run(steps=8, eval_every=3, save_every=1, accumulate=1)
    toy_train(tmp_path / "whole", run)
    for step in range(1, 9):
        try:
            toy_train(tmp_path / "parts", run, loader=StoppingLoader(step), resume=step > 1)
        except Stop:
            assert checkpoint.load_state(tmp_path / "parts/state.safetensors")[1]["progress"]["step"] == step
    toy_train(tmp_path / "parts", run, resume=True)
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")


def test_resuming_a_finished_run_leaves_it_as_it_is(tmp_path: Path):
    first = toy_train(tmp_path / "run")
    before = outcome(tmp_path / "run")
    again = toy_train(tmp_path / "run", resume=True)
    assert (again.best, again.kept, again.steps) == (first.best, first.kept, first.steps)
    assert outcome(tmp_path / "run") == before


@pytest.mark.parametrize("moment", ["write", "fsync", "replace"])
def test_a_disk_that_fails_at_any_moment_costs_nothing(tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch):
    """Every write, fsync and rename of a whole run fails once; the run then resumes to the same end."""
    run = toy_run(steps=6, eval_every=2, save_every=3, keep=2, accumulate=1)
    toy_train(tmp_path / "whole", run)
    expected = outcome(tmp_path / "whole")
    real = getattr(os, moment)
    call, failed = 0, True
    while failed:
        call, seen, failed = call + 1, 0, False

        def failing(*args, fail_at=call, **kwargs):
            nonlocal seen, failed
            seen += 1
            if seen == fail_at:
                failed = True
                raise OSError(28, "No space left on device")
            return real(*args, **kwargs)

        folder = tmp_path / f"{moment}{call}"
        monkeypatch.setattr(os, moment, failing)
        try:
            toy_train(folder, run)
        except WorkFailed as e:
            said = str(e)
        else:
            said = ""
        assert ("no space left" in said) == failed, "a write that failed went unnoticed"
        monkeypatch.setattr(os, moment, real)
        assert not list(folder.rglob("*.tmp")) and not (folder / ".new").exists(), "something half-written is left"
        toy_train(folder, run, resume=True)
        assert outcome(folder) == expected
    assert call > 15, f"only {call - 1} calls of os.{moment}: is everything still written through checkpoint.py?"


@pytest.mark.parametrize("number", [signal.SIGHUP])  # SIGINT and SIGTERM: test_cli_start.py
def test_a_signal_saves_and_says_how_to_go_on(tmp_path: Path, number: signal.Signals):
    folder = tmp_path / "run"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.training.toy", folder, "pause=0.01"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not (folder / "state.safetensors").exists():
        assert child.poll() is None, child.stderr and child.stderr.read()
        time.sleep(0.01)
    child.send_signal(number)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 128 + number
    assert f"regard train --resume {folder}" in said
    stopped_at = checkpoint.load_state(folder / "state.safetensors")[1]["progress"]["step"]
    assert f"after step {stopped_at};" in said and stopped_at < 24
    toy_train(folder, read_run(folder), resume=True)
    toy_train(tmp_path / "whole")
    assert outcome(folder) == outcome(tmp_path / "whole")


def test_a_terminal_that_is_closed_costs_nothing(tmp_path: Path):
    """The kernel sends SIGHUP, and nothing can be printed any more; the run is saved all the same."""
    folder = tmp_path / "run"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", TERMINAL, "tests.unit.training.toy", folder, "pause=0.01"],
        env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    while not (folder / "state.safetensors").exists():
        assert child.poll() is None, os.read(ours, 100_000)
        time.sleep(0.01)
    os.close(ours)
    assert child.wait(60) == 128 + signal.SIGHUP
    assert checkpoint.load_state(folder / "state.safetensors")[1]["progress"]["step"] < 24
    toy_train(folder, read_run(folder), resume=True)
    toy_train(tmp_path / "whole")
    assert outcome(folder) == outcome(tmp_path / "whole")


def test_under_nohup_a_run_does_not_hear_of_its_terminal():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.signal
            signal.raise_signal(signal.SIGTERM)
            assert stop.signal == signal.SIGTERM
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_run_killed_between_state_and_settings_keeps_its_steps(tmp_path: Path):
    toy_train(tmp_path / "run")
    settings = json.loads((tmp_path / "run/run.json").read_text())
    (tmp_path / "run/run.json").write_text(
        json.dumps(settings | {"steps": 0, "minutes": 1.0, "schedule": {"warmup": 20}})
    )
    result = toy_train(tmp_path / "run", read_run(tmp_path / "run"), resume=True)
    assert result.steps == 24 and read_run(tmp_path / "run").steps == 24


def test_a_run_is_not_overwritten(tmp_path: Path):
    toy_train(tmp_path / "run")
    before = outcome(tmp_path / "run")
    with pytest.raises(ConfigError, match="--resume"):
        toy_train(tmp_path / "run")
    assert outcome(tmp_path / "run") == before


def test_two_processes_do_not_train_in_one_folder(tmp_path: Path):
    toy_train(tmp_path / "run")
    with checkpoint.locked(tmp_path / "run"), pytest.raises(WorkFailed, match="another process"):
        toy_train(tmp_path / "run", resume=True)


def test_a_damaged_state_is_refused(tmp_path: Path):
    toy_train(tmp_path / "run")
    path = tmp_path / "run/state.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="damaged"):
        toy_train(tmp_path / "run", resume=True)


def test_another_model_is_refused(tmp_path: Path):
    toy_train(tmp_path / "run")
    with pytest.raises(CheckpointError, match="a different model"):
        toy_train(tmp_path / "run", resume=True, model=torch.nn.Linear(2, 2))
