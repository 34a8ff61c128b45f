"""The cost of a cold start: CPU seconds of `regard --help`, and of a translation compared with `import torch`.

python bench/help.py            # help alone
python bench/help.py runs/demo  # and one sentence of a trained translator
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping

TIMES = 7


def cpu_seconds(*words: str, env: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    commands = {"regard --help": ("-m", "regard", "--help")}
    if len(sys.argv) > 1:
        commands["import torch"] = ("-c", "import torch")
        commands["regard translate"] = ("-m", "regard", "translate", sys.argv[1], "I am tired.")
    with tempfile.TemporaryDirectory() as compiled:  # as after an installation, all modules are compiled already
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {
            "PYTHONPYCACHEPREFIX": compiled
        }
        for words in commands.values():
            cpu_seconds(*words, env=env)
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(TIMES):  # in turn, so that a busy moment affects all of them
            for name, words in commands.items():
                seconds[name].append(cpu_seconds(*words, env=env))
    for name, values in seconds.items():
        print(f"{name:<17} {min(values):.3f} s of CPU, median {statistics.median(values):.3f}")
