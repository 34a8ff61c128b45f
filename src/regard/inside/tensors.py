"""Responses for the page as safetensors, with a JSON header in the metadata."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d

EXACT, HALF, SMALL = 256, 512, 256  # a matrix is f32 up to 256 x 256, f16 up to 512 x 512, else pooled to 256 x 256


def pack(header: dict[str, Any], tensors: Mapping[str, Tensor], scales: Mapping[str, float] | None = None) -> bytes:
    """Header and tensors as one file; `scales` are the values of 255 in tensors of bytes."""
    text = json.dumps({**header, "scales": dict(scales or {})}, ensure_ascii=False, allow_nan=False)
    arrays = {name: np.ascontiguousarray(tensor.cpu().numpy()) for name, tensor in tensors.items()}
    return save(arrays, {"header": text})


def pooled(x: Tensor, rows: int, columns: int) -> Tensor:
    """Max-pool to a coarser grid: T S -> rows columns; unchanged if it is small enough.

    Cell i of n covers places floor(i·T/n) to ceil((i+1)·T/n), as in torch's adaptive pooling, whose loop over rows is
    slower than this one.
    """
    T, S = x.shape
    if rows < T:
        x = torch.stack([x[i * T // rows : -(-(i + 1) * T // rows)].amax(0) for i in range(rows)])
    return x if columns >= S else adaptive_max_pool2d(x[None], (len(x), columns))[0]


def as_bytes(x: Tensor) -> tuple[Tensor, float]:
    """Weights, which are at least 0, as bytes, and the value of 255."""
    most = float(x.max()) if x.numel() else 1.0
    scale = most if most > 0 else 1.0
    return (x * (255 / scale)).round().to(torch.uint8), scale


def matrix(x: Tensor, weights: bool) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, float]]:
    """A T S table for `pack`: exact, in half precision, or pooled, by its size."""
    header = {"pooled": x.numel() > HALF * HALF, "rows": x.size(0), "columns": x.size(1)}
    if not header["pooled"]:
        return header, {"matrix": x.float() if x.numel() <= EXACT * EXACT else x.half()}, {}
    small = pooled(x.nan_to_num(nan=-torch.inf), SMALL, SMALL)
    if weights:
        small, scale = as_bytes(small)
        return header, {"matrix": small}, {"matrix": scale}
    return header, {"matrix": small.masked_fill(small.isinf(), torch.nan).half()}, {}
