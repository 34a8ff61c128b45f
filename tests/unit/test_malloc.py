"""Freed memory stays with the process, as the system's count of page faults shows."""

import os
import subprocess
import sys

import pytest

from regard.malloc import KEPT, VARIABLES

SCRIPT = """
import resource, sys
import numpy as np
from regard.malloc import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()
for time in range(11):
    blocks = [np.ones(1 << 20, np.uint8) for _ in range(40)]
    del blocks
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    start = faults if time == 0 else start
print(faults - start)
"""


def faults(mode: str, **variables: str) -> int:
    """Pages that the system cleared for ten times 40 blocks of a megabyte, after a first time."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES} | variables
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, mode], env=environment, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux" or "glibc" not in os.confstr("CS_GNU_LIBC_VERSION"), reason="needs glibc")
def test_freed_memory_is_used_again():
    pages = 10 * 40 * (1 << 20) // os.sysconf("SC_PAGESIZE")
    assert faults("plain") > 0.9 * pages and faults("keep") < 0.05 * pages
    assert faults("keep", MALLOC_TRIM_THRESHOLD_=str(KEPT // 1000)) > 0.9 * pages  # the user's choice stands
