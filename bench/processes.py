"""The demo's translator on two processes with a thread each vs. one process with one thread: tokens per second.

python bench/processes.py        # about two minutes on two idle cores; the target ratio is 1.6
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from _common import machine

STEPS, ROUNDS = 60, 2
DEMO = ["translate", "--data=tatoeba-en-fr", "--set=data.max_words=10", "--set=data.repeat_short=6"]
QUICK = [f"--steps={STEPS}", "--set=log_every=10", f"--set=eval_every={STEPS}", "--set=keep=1", "--device=cpu", "-q"]


def rate(processes: int) -> list[float]:
    """The rate of each ten steps after the first twenty."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "regard", "train", *DEMO, *QUICK, f"--processes={processes}"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run([*command, f"--name={folder}/run"], check=True, env=environment)
        events = map(json.loads, Path(folder, "run", "metrics.jsonl").read_text().splitlines())
        return [event["targets_per_second"] for event in events if event.get("targets_per_second")][2:]


if __name__ == "__main__":
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(ROUNDS):  # in turn, so that a slow minute affects both
        for processes in rates:
            rates[processes] += rate(processes)
    one, two = (statistics.median(rates[processes]) for processes in (1, 2))
    line = {"machine": machine("cpu"), "one": round(one), "two": round(two), "ratio": round(two / one, 2)}
    print(json.dumps(line), flush=True)
