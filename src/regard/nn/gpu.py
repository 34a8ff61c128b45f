"""Whether a GPU may use kernels of ours."""

import os
from importlib.util import find_spec
from shutil import which

COMPILERS = (os.environ.get("CC", "cc"), "gcc", "clang")  # Triton needs one, and torch installs Triton without it
TRITON = find_spec("triton") is not None and any(map(which, COMPILERS))  # else a GPU does with torch's own kernels
