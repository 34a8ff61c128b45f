"""Products of fp32 matrices on a CPU, by the library that is fast on it.

On an AMD EPYC with AVX-512, MKL, torch's default, computes 112 GFLOPS a core and oneDNN 250: a step of the translator
of `make demo` takes 55 instead of 74 ms on two cores.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

ROWS = 64  # products have a multiple of that many
WORTH = 1 << 24  # multiplications; for fewer, calling oneDNN costs more than it gains


SETTING: Any = getattr(torch.backends.mkldnn, "matmul", None)  # which library multiplies


def onednn_is_faster() -> bool:
    """Whether this is a processor for which oneDNN is faster; never while a graph is compiled, which it would break."""
    return not torch.compiler.is_compiling() and amd_with_avx512()


@cache
def amd_with_avx512() -> bool:
    """Whether this is an AMD processor with AVX-512, and without AMX, for which oneDNN would round to bf16."""
    if not hasattr(SETTING, "fp32_precision") or not torch.backends.mkldnn.is_available():
        return False
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and not torch.cpu._is_amx_tile_supported() and by_amd()


def by_amd(about: Path = Path("/proc/cpuinfo")) -> bool:
    try:
        with about.open(encoding="utf-8", errors="replace") as lines:
            return any("AuthenticAMD" in next(lines, "") for _ in range(3))
    except OSError:
        return False


@contextmanager
def fast_products(work: int = WORTH) -> Iterator[None]:
    """Within the block torch multiplies fp32 matrices on a CPU by oneDNN if that is faster for so much work.

    Not for torch's attention, whose many small products take far longer then.
    """
    if work < WORTH or not onednn_is_faster():
        yield
        return
    before, SETTING.fp32_precision = SETTING.fp32_precision, "bf16"  # permits bf16 where there is AMX; otherwise fp32
    try:
        yield
    finally:
        SETTING.fp32_precision = before


def in_blocks(x: Tensor, fill: float = 0) -> Tensor:
    """R … filled up to a multiple of `ROWS`. oneDNN makes a kernel for each shape, and keeps it: without this, a
    translator's batches, of many sizes, would take a gigabyte."""
    missing = -x.size(0) % ROWS
    return F.pad(x, (0, 0) * (x.ndim - 1) + (0, missing), value=fill) if missing else x


class FastLinear(torch.autograd.Function):
    """`F.linear` of x, R K, with the three products of a training step by oneDNN."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows, x = len(x), in_blocks(x)
        ctx.save_for_backward(x, weight)
        with fast_products():
            return F.linear(x, weight, bias)[:rows]

    @staticmethod
    def backward(ctx, dy: Tensor):  # pyrefly: ignore[bad-override]
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        filled = in_blocks(dy)
        with fast_products():
            dx = (filled @ weight)[: len(dy)] if for_x else None
            dw = filled.T @ x if for_weight else None
        return dx, dw, dy.sum(0) if for_bias else None


def takes_fast(x: Tensor, weight: Tensor) -> bool:
    """Whether to train with `FastLinear`: fp32 on such a CPU, with enough to multiply."""
    if x.device.type != "cpu" or x.numel() * weight.size(0) < WORTH or not torch.is_grad_enabled():
        return False
    fp32 = x.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return fp32 and onednn_is_faster()


def fast_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b, … K -> … N."""
    return FastLinear.apply(x.flatten(0, -2), weight, bias).view(*x.shape[:-1], -1)
