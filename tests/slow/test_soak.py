"""Half an hour of training that evaluates all the time: memory stays flat, and no file stays open."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.system.cli_toy import train_words, write_toy

MINUTES = 30
WARM = 0.25  # of that, before memory is expected to be level
FLAT = 4_000_000  # bytes that the trend of the rest may rise, 1 % of the process; lines kept by a cache made it 40 MB
LEAK = 70_000  # bytes an evaluation once left behind: enough are made that it would show
SMALL = ["--tokens=bytes", "--set=model.context=32", "--set=data.context=32", "--set=model.width=16",
         "--set=model.layers=1", "--set=model.heads=2", "--set=model.ffn=16", "--set=tokens=256"]  # fmt: skip


def words(task: str, place: Path) -> list[str]:
    if task == "translate":
        return [word for word in train_words(write_toy(place)) if not word.startswith(("--steps", "--set=eval_every"))]
    (place / "my.txt").write_text("".join(f"the cat number {i} sat on the mat.\n" for i in range(2000)))
    return ["train", "lm", "--data=my.txt", *SMALL, "--device=cpu"]


@pytest.mark.parametrize("task", ["translate", "lm"])
def test_memory_is_flat_and_no_file_stays_open(tmp_path: Path, task: str):
    how = [f"--minutes={MINUTES}", "--set=eval_every=4", "--set=log_every=2", "--set=schedule.warmup=20", "--name=x"]
    child = subprocess.Popen(
        [sys.executable, "-m", "regard", "-q", *words(task, tmp_path), *how], cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    metrics, seen = tmp_path / "runs/x/metrics.jsonl", []
    while child.poll() is None:
        if metrics.exists():  # it is training
            seen.append((time.monotonic(), *held_by(child.pid), metrics.stat().st_size))
        time.sleep(0.2)
    assert child.returncode == 0
    evaluations = metrics.read_text().count("held_out_loss")
    *samples, written = np.array(seen).T
    training = written < metrics.read_bytes().rstrip().rfind(b"\n")  # before the last event: then the run ends
    training[: int(WARM * len(training))] = False
    seconds, memory, files = (column[training] for column in samples)
    rise = np.polyfit(seconds, memory, 1)[0] * (seconds[-1] - seconds[0])
    print(
        f"{task}: {evaluations} evaluations, {memory.mean() / 1e6:.0f} MB, trend {rise / 1e3:+.0f} kB in all, "
        f"{rise / evaluations:+.0f} bytes an evaluation; {files.min():.0f} to {files.max():.0f} open files"
    )
    assert evaluations * LEAK > 2 * FLAT and rise < FLAT
    half = len(files) // 2
    assert files[half:].min() == files[:half].min() and files[half:].max() <= files[:half].max() + 1


def held_by(process: int) -> tuple[int, int]:
    """Bytes of resident memory, and open files."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{process}/fd"))  # noqa: PTH208
