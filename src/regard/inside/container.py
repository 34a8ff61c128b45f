"""Numbers for a page, as bytes: u32 length of a JSON header, the header, then tensors, all at multiples of 8.

The header's "tensors" say where each begins, counted from the end of the padded header.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d

EDGE = 8
NAMES = {np.dtype("<u1"): "u8", np.dtype("<f2"): "f16", np.dtype("<f4"): "f32", np.dtype("<i4"): "i32"}
EXACT, HALF, SMALL = 256, 512, 256  # a matrix is f32 up to 256 x 256, f16 up to 512 x 512, else pooled to 256 x 256


def pack(header: dict[str, Any], tensors: Mapping[str, Tensor | np.ndarray], scales: Mapping[str, float]) -> bytes:
    """Header and tensors as one string of bytes; `scales` say what 255 stands for in a tensor of bytes."""
    arrays = {
        name: np.ascontiguousarray(t.cpu().numpy() if isinstance(t, Tensor) else t) for name, t in tensors.items()
    }
    about, offset = {}, 0
    for name, array in arrays.items():
        scale = {"scale": scales[name]} if name in scales else {}
        about[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape), "offset": offset, **scale}
        offset += _padded(array.nbytes)
    text = json.dumps({**header, "tensors": about}, ensure_ascii=False, allow_nan=False).encode()
    parts = [struct.pack("<I", len(text)), text, bytes(_padded(4 + len(text)) - 4 - len(text))]
    for array in arrays.values():
        parts += [array.tobytes(), bytes(_padded(array.nbytes) - array.nbytes)]
    return b"".join(parts)


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `pack` was given."""
    (size,) = struct.unpack_from("<I", data)
    header, start = json.loads(data[4 : 4 + size]), _padded(4 + size)
    types = {name: dtype for dtype, name in NAMES.items()}
    found = {}
    for name, about in header["tensors"].items():
        count = int(np.prod(about["shape"], dtype=np.int64))
        found[name] = np.frombuffer(data, types[about["dtype"]], count, start + about["offset"]).reshape(about["shape"])
    return header, found


def pooled(x: Tensor, rows: int, columns: int) -> Tensor:
    """The greatest of every cell of a coarser grid: T S -> rows columns; as it is where it is small enough.

    Cell i of n covers places floor(i·T/n) to ceil((i+1)·T/n), as torch's adaptive pooling has it, whose own loop over
    rows is slower than these.
    """
    T, S = x.shape
    if rows < T:
        x = torch.stack([x[i * T // rows : -(-(i + 1) * T // rows)].amax(0) for i in range(rows)])
    return x if columns >= S else adaptive_max_pool2d(x[None], (len(x), columns))[0]


def as_bytes(x: Tensor) -> tuple[Tensor, float]:
    """Weights from 0 to their greatest as bytes, and the weight that 255 stands for."""
    most = float(x.max()) if x.numel() else 1.0
    scale = most if most > 0 else 1.0
    return (x * (255 / scale)).round().to(torch.uint8), scale


def matrix(x: Tensor, weights: bool) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, float]]:
    """A T S table as large as a page wants it, for `pack`: exact, in half precision, or pooled."""
    rows, columns = x.shape
    if x.numel() <= EXACT * EXACT:
        return {"pooled": False, "rows": rows, "columns": columns}, {"matrix": x.float()}, {}
    if x.numel() <= HALF * HALF:
        return {"pooled": False, "rows": rows, "columns": columns}, {"matrix": x.half()}, {}
    small = pooled(x.nan_to_num(nan=-torch.inf), SMALL, SMALL)
    header = {"pooled": True, "rows": rows, "columns": columns}
    if weights:
        small, scale = as_bytes(small)
        return header, {"matrix": small}, {"matrix": scale}
    return header, {"matrix": small.masked_fill(small.isinf(), torch.nan).half()}, {}


def _padded(size: int) -> int:
    return -(-size // EDGE) * EDGE
