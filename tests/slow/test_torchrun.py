"""The launchers themselves: a signal saves and stops every process; a process that is killed costs nothing but time."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.system.test_old_runs import FIXTURES

from regard.checkpoint import load_state
from regard.run_folder import WEIGHTS

KILLS, SEED = int(os.environ.get("KILLS", 50)), int(os.environ.get("REGARD_SEED", 1))
APART = 40  # steps between two kills, about; a save every 5
WORDS = ["train", "lm", f"--data={FIXTURES}/data/story.txt", "--tokens=bytes", "--set=model.width=16",
         "--set=model.layers=1",
         "--set=model.heads=2", "--set=tokens=384", "--set=model.context=96", "--set=model.dropout=0.1", "--device=cpu",
         "--set=log_every=1", "--set=save_every=5", "--set=eval_every=100", "--set=schedule.warmup=3"]  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def start(*words: str, torchrun: bool = False) -> subprocess.Popen:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", f"--max-restarts={KILLS}"]
    command = [sys.executable, *(launcher if torchrun else []), "-m", "regard", *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def steps(name: str) -> int:
    path = Path("runs") / name / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return max([json.loads(line).get("step", 0) for line in lines if line.endswith("}")], default=0)


def wait_for(name: str, step: int, process: subprocess.Popen) -> None:
    end = time.monotonic() + 120
    while steps(name) < step and process.poll() is None:
        assert time.monotonic() < end, f"step {step} does not come"
        time.sleep(0.05)


def workers(process: subprocess.Popen) -> list[str]:
    while process.poll() is None:
        children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
        if children:
            return children
        time.sleep(0.05)
    raise AssertionError(f"ended before all kills: {process.communicate()}")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_to_the_launcher_saves_and_stops_all(number, code):
    process = start(*WORDS, "--steps=100000", "--name=stopped", "--processes=2")
    wait_for("stopped", 12, process)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert err.splitlines()[-1].startswith("stopped after step") and "Traceback" not in err
    saved = load_state("runs/stopped/state.safetensors")[1]["progress"]["step"]
    assert saved >= 12 and f"stopped after step {saved};" in err


def test_killed_processes_restart_and_end_as_if_undisturbed():
    words = [*WORDS, f"--steps={APART * KILLS + 200}"]
    whole = start(*words, "--name=whole", "--processes=2")
    _, err = whole.communicate(timeout=600)
    assert whole.returncode == 0, err
    rng, process = random.Random(SEED), start(*words, "--name=killed", torchrun=True)
    try:
        for kill in range(KILLS):
            wait_for("killed", APART * kill + rng.randrange(1, APART), process)
            time.sleep(rng.random() / 20)  # in a step, a save or between them
            os.kill(int(rng.choice(workers(process))), signal.SIGKILL)
            time.sleep(1.0)
        _, err = process.communicate(timeout=600)
    finally:
        process.terminate()
    assert process.returncode == 0, err
    assert (Path("runs/killed") / WEIGHTS).read_bytes() == (Path("runs/whole") / WEIGHTS).read_bytes()
