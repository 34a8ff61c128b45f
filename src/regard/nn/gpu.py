"""Whether our Triton kernels can run on a GPU here."""

import os
from importlib.util import find_spec
from shutil import which

COMPILERS = (os.environ.get("CC", "cc"), "gcc", "clang")  # Triton needs one; torch does not install it
TRITON = find_spec("triton") is not None and any(map(which, COMPILERS))  # otherwise torch's own kernels are used
