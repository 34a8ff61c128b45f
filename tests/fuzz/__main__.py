"""`python -m tests.fuzz SEED COUNT [FIRST]`: try that many command lines and print what went wrong."""

import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.findings import failures
from tests.fuzz.world import World


def main(seed: int, count: int, first: int = 0) -> None:
    start, bad = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder, World(Path(folder)) as world:
        for number in range(first, first + count):
            for failure in failures(world, seed, [number]):
                bad += 1
                print(f"== {failure}", flush=True)
    print(f"{count} cases of seed {seed} from {first} on, {bad} with findings, {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
