"""CPU seconds of `regard --help`, the best of five: what somebody who only wants help waits for.

python bench/help.py
"""

import resource
import subprocess
import sys


def cpu_seconds() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "regard", "--help"], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    print(f"regard --help: {min(cpu_seconds() for _ in range(5)):.3f} s of CPU")
