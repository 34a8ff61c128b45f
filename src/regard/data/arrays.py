"""NPZ files: arrays by name, none of them larger than it claims to be."""

import io
import math
import zipfile
import zlib
from pathlib import Path

import numpy as np

from regard import limits
from regard.errors import DataError, reason


def read_arrays(path: Path, data: bytes) -> dict[str, np.ndarray]:
    """The arrays of an NPZ file by name."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as box:
            limits.require(sum(member.file_size for member in box.infolist()), str(path))
            for member in box.infolist():
                _check_size(box, member)
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, zlib.error, NotImplementedError, RuntimeError, zipfile.BadZipFile) as e:
        raise DataError(f"{path} cannot be read as NPZ ({reason(e)})") from None


def _check_size(box: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Raise `ValueError` if an array of an NPZ file claims to be larger than it is: NumPy would allocate that much."""
    from numpy.lib import format as npy

    with box.open(member) as file:
        version = npy.read_magic(file)
        shape, _, dtype = npy.read_array_header_1_0(file) if version == (1, 0) else npy.read_array_header_2_0(file)
    if math.prod(shape) * dtype.itemsize > member.file_size:
        raise ValueError(f"{member.filename} has {member.file_size:,} bytes, but its header claims more")
