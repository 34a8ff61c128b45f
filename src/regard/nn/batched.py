"""Triton kernels for decoding tens of rows: tensor-core products that start before the previous kernel has finished.

Imported only where there is a GPU with Triton. Their plain counterparts are `residual + gelu(linear(x))` and
`argmax`, which the tests compare them with.
"""

import torch
import triton  # pyrefly: ignore[missing-import]
import triton.language as tl  # pyrefly: ignore[missing-import]
from torch import Tensor

from regard.nn.decoding import early
from regard.nn.kernels import _activated

MOST_ROWS = 64
SHARED_MEMORY = 160_000  # bytes a program needs; data-centre GPUs have them since Ampere
N, BLOCK = 32, 256  # columns per program, and elements of the inner dimension per iteration
PROGRAMS = 100  # the inner dimension is split between programs only up to this many
PARTS, CHUNK = 8, 1024  # parts of the vocabulary searched in parallel, and tokens per iteration
COUNTERS = 8_192
_counters: dict[torch.device, Tensor] = {}


def counters(device: torch.device) -> Tensor:
    """Zeroed counters of finished programs; the last program resets its counter."""
    if device not in _counters:
        _counters[device] = torch.zeros(COUNTERS, dtype=torch.int32, device=device)
    return _counters[device]


@triton.jit
def _fetch(pointers):
    """Prefetch the lines at these addresses into the L2 cache."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [pointers.to(tl.int64)], tl.int32, is_pure=False, pack=1
    )


@triton.jit
def _rows_times(
    X, W, BIAS, RESIDUAL, OUT, SUMS, COUNTS, rows, columns, inner, part, xs, rs, BIASED: tl.constexpr,
    GELU: tl.constexpr, ADD: tl.constexpr, EARLY: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    SHARES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """N columns: [residual +] [gelu] (x Wᵀ [+ b]), by SHARES programs that each take a `part` of the inner dimension;
    the last of them adds the sums, always in the same order. `part` is an argument: if it were computed here, Triton
    would not know that it is a multiple of 16, and loads would be narrow."""
    share, tile = tl.program_id(0), tl.program_id(1)
    n, m, k = tile * N + tl.arange(0, N), tl.arange(0, M), tl.arange(0, BLOCK)
    columnwise = W + n[None, :].to(tl.int64) * inner + share * part
    if EARLY:  # start loading weights before the previous kernel has finished
        for start in range(0, part, BLOCK):
            _fetch(columnwise + start + 64 * tl.arange(0, BLOCK // 64)[:, None])
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    inputs = X + tl.where(m < rows, m, 0)[:, None] * xs + share * part + k[None, :]  # M BLOCK
    weights = columnwise + k[:, None]  # BLOCK N
    total = tl.zeros((M, N), tl.float32)
    for start in tl.range(0, part, BLOCK, num_stages=3):
        total = tl.dot(tl.load(inputs + start), tl.load(weights + start), total)
    last = True
    if SHARES > 1:
        at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
        tl.store(SUMS + (tile * SHARES + share) * M * N + at, total)
        tl.debug_barrier()
        last = tl.atomic_add(COUNTS + tile, 1, sem="acq_rel") == SHARES - 1
        if last:
            total = tl.zeros((M, N), tl.float32)
            for i in tl.static_range(SHARES):
                total += tl.load(SUMS + (tile * SHARES + i) * M * N + at, cache_modifier=".cg")
            tl.store(COUNTS + tile, 0)
    if last:
        if BIASED:
            total += tl.load(BIAS + n)[None, :].to(tl.float32)
        if GELU:
            total, _ = _activated(total, "gelu-tanh")
        real = (m < rows)[:, None]
        if ADD:
            total += tl.load(RESIDUAL + m[:, None] * rs + n[None, :], mask=real, other=0.0).to(tl.float32)
        tl.store(OUT + m[:, None] * columns + n[None, :], total.to(OUT.dtype.element_ty), mask=real)


def takes_rows(x: Tensor, weight: Tensor) -> bool:
    """Whether `rows_times` multiplies these rows by this matrix."""
    fits = weight.size(0) % N == 0 and weight.size(1) % BLOCK == 0 and weight.size(0) // N <= COUNTERS
    fits = fits and len(x) <= MOST_ROWS and x.stride(1) == 1 and weight.dtype in (torch.bfloat16, torch.float16)
    memory = getattr(torch.cuda.get_device_properties(x.device), "shared_memory_per_block_optin", 0)
    return fits and memory >= SHARED_MEMORY


def rows_times(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, gelu: bool = False, residual: Tensor | None = None
) -> Tensor:
    """R K, at most 64 rows, times N K: [residual +] [gelu] (x Wᵀ [+ b]), R N."""
    (rows, inner), columns = x.shape, weight.size(0)
    out = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
    M, tiles = max(16, 1 << (rows - 1).bit_length()), columns // N
    shares = max(s for s in (1, 2, 3, 4) if s == 1 or (s * tiles <= PROGRAMS and inner % (s * BLOCK) == 0))
    sums = out if shares == 1 else torch.empty(shares * tiles * M * N, device=x.device)
    _rows_times[(shares, tiles)](
        x, weight, weight if bias is None else bias, x if residual is None else residual, out, sums,
        counters(x.device), rows, columns, inner, inner // shares, x.stride(0),
        0 if residual is None else residual.stride(0), BIASED=bias is not None, GELU=gelu, ADD=residual is not None,
        M=M, N=N, SHARES=shares, BLOCK=BLOCK, num_warps=4, **early(),
    )  # fmt: skip
    return out


@triton.jit
def _best_word(
    LOGITS, TOPS, PLACES, COUNTS, OUT, words, stride, PARTS: tl.constexpr, CHUNK: tl.constexpr, EARLY: tl.constexpr
):  # fmt: skip
    """The argmax of one part of a row, ties to the first; the row's last program compares the parts."""
    row, part, lanes = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, CHUNK)
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    size = tl.cdiv(words, PARTS * CHUNK) * CHUNK
    first, stop = part * size, tl.minimum(part * size + size, words)
    top, place = tl.full((CHUNK,), float("-inf"), tl.float32), first + lanes
    for start in range(first, stop, CHUNK):
        at = start + lanes
        x = tl.load(LOGITS + row * stride + at, mask=at < stop, other=float("-inf")).to(tl.float32)
        place = tl.where(x > top, at, place)
        top = tl.maximum(top, x)
    best = tl.max(top, 0)
    best_place = tl.min(tl.where(top == best, place, words), 0)
    tl.store(TOPS + row * PARTS + part, best)
    tl.store(PLACES + row * PARTS + part, best_place)
    tl.debug_barrier()
    if tl.atomic_add(COUNTS + row, 1, sem="acq_rel") == PARTS - 1:
        parts = row * PARTS + tl.arange(0, PARTS)
        tops = tl.load(TOPS + parts, cache_modifier=".cg")
        places = tl.load(PLACES + parts, cache_modifier=".cg")
        first_best = tl.min(tl.where(tops == tl.max(tops, 0), places, words), 0)
        tl.store(OUT + row, tl.minimum(first_best, words - 1).to(tl.int64))
        tl.store(COUNTS + row, 0)


def takes_words(logits: Tensor) -> bool:
    """Whether `best_word` supports these logits."""
    fits = logits.ndim == 2 and len(logits) <= COUNTERS and logits.stride(1) == 1
    return fits and logits.dtype in (torch.float32, torch.bfloat16, torch.float16)


def best_word(logits: Tensor) -> Tensor:
    """The argmax of R V logits, ties to the first: R."""
    rows, words = logits.shape
    out = torch.empty(rows, dtype=torch.long, device=logits.device)
    tops, places = logits.new_empty(rows, PARTS, dtype=torch.float), logits.new_empty(rows, PARTS, dtype=torch.int32)
    _best_word[(rows, PARTS)](
        logits, tops, places, counters(logits.device), out, words, logits.stride(0), PARTS=PARTS, CHUNK=CHUNK,
        num_warps=4, **early(),
    )  # fmt: skip
    return out
