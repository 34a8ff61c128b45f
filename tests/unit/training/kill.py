"""Training in a process of its own that ends by SIGKILL, and the resume that follows."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.unit.training.toy import toy_run, toy_train

from regard.tasks.plan import read_run


def start(folder: Path, *settings: str) -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.unit.training.toy", str(folder), "name=muon", "quiet=1", *settings]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def killed_while_training(folder: Path, after: float, *settings: str) -> None:
    """Kill it `after` seconds of training; it takes about half a second."""
    child = start(folder, "pause=0.008", *settings)
    assert child.stdout and child.stdout.readline() == "ready\n"
    time.sleep(after)
    child.kill()
    assert child.wait(60) == -signal.SIGKILL, "it was faster than the killer"


def killed_in_a_save(folder: Path, call: int, *settings: str) -> None:
    """Let it kill itself just before its `call`-th write, fsync or rename."""
    assert start(folder, f"kill_at={call}", *settings).wait(60) == -signal.SIGKILL, f"it never came to call {call}"


def resumed(folder: Path) -> Path:
    """Finish the run in `folder`; one killed before it wrote its settings is simply started."""
    known = (folder / "run.json").exists()
    toy_train(folder, read_run(folder) if known else toy_run(name="muon"), resume=known)
    return folder
