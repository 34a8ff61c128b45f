"""Triton kernels for `nn.fp8`, which holds their plain counterparts, and for its loss. Values are rounded to FP8 where
they are computed, straight and transposed, since Hopper multiplies rows by rows only."""

import torch
import triton  # pyrefly: ignore[missing-import]
import triton.language as tl  # pyrefly: ignore[missing-import]
from torch import Tensor

from regard.nn.kernels import _activated, _summed

FORWARD_TILE, GRAD_TILE = dict(R=64, C=128, num_warps=4), dict(R=64, C=64, num_warps=2)  # the fastest tried on an H200
ERROR = dict(R=64, C=128, num_warps=8)


@triton.jit
def _store8(x, TOP, ROWS, COLUMNS, SCALE, row, at, rows, columns, padded, MOST: tl.constexpr):
    """Store a tile in FP8, straight and transposed; it is transposed in 16 bits, which is faster than in 8."""
    factor = tl.exp2(tl.floor(tl.log2(MOST / tl.maximum(tl.load(TOP), 1e-30))))
    x = (x * factor).to(tl.bfloat16)
    offsets = row.to(tl.int64)[:, None] * columns + at[None, :]
    tl.store(
        ROWS + offsets, x.to(tl.float32).to(ROWS.dtype.element_ty), mask=(row < rows)[:, None] & (at < columns)[None, :]
    )
    transposed = at.to(tl.int64)[:, None] * padded + row[None, :]
    turned = tl.trans(x).to(tl.float32).to(COLUMNS.dtype.element_ty)
    tl.store(COLUMNS + transposed, turned, mask=(at < columns)[:, None] & (row < padded)[None, :])
    if (tl.program_id(0) == 0) & (tl.program_id(1) == 0):
        tl.store(SCALE, 1.0 / factor)


@triton.jit
def _eight(
    X, H, BIAS, TOP, ROWS, COLUMNS, SCALE, SUMS, rows, columns, padded, MOST: tl.constexpr, ACTIVATION: tl.constexpr,
    GRAD: tl.constexpr, SUM: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """A tile of X, of its activation, or of the activation's gradient at H."""
    row, at = tl.program_id(0) * R + tl.arange(0, R), tl.program_id(1) * C + tl.arange(0, C)
    real = (row < rows)[:, None] & (at < columns)[None, :]
    offsets = row.to(tl.int64)[:, None] * columns + at[None, :]
    x = tl.load(X + offsets, mask=real, other=0.0).to(tl.float32)
    if ACTIVATION != "":
        bias = tl.load(BIAS + at, mask=at < columns, other=0.0).to(tl.float32)
        if GRAD:
            _, slope = _activated(tl.load(H + offsets, mask=real, other=0.0).to(tl.float32) + bias[None, :], ACTIVATION)
            x = x * slope
        else:
            x, _ = _activated(x + bias[None, :], ACTIVATION)
            x = tl.where(real, x, 0.0)
    if SUM:
        tl.store(SUMS + tl.program_id(0) * columns + at, tl.sum(x, 0), mask=at < columns)
    _store8(x, TOP, ROWS, COLUMNS, SCALE, row, at, rows, columns, padded, MOST)


def eight(
    x: Tensor,
    top: Tensor,
    dtype: torch.dtype,
    bias: Tensor | None = None,
    activation: str = "",
    h: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The fields of `fp8.Eight` for x, R C, with magnitudes up to `top`. With `activation`: for the activation of
    x + bias; with `h` too: for the gradient by h, where x is the gradient by the activation of h + bias."""
    (rows, columns), padded = x.shape, triton.cdiv(x.size(0), 16) * 16
    straight = torch.empty(rows, columns, device=x.device, dtype=dtype)
    turned = torch.empty(columns, padded, device=x.device, dtype=dtype)
    scale = torch.empty((), device=x.device)
    summed = dtype == torch.float8_e5m2
    tile = GRAD_TILE if summed else FORWARD_TILE
    grid = triton.cdiv(padded, tile["R"]), triton.cdiv(columns, tile["C"])
    sums = torch.empty(grid[0] if summed else 0, columns, device=x.device)
    _eight[grid](
        x, x if h is None else h, x if bias is None else bias, top, straight, turned, scale, sums, rows, columns,
        padded, MOST=torch.finfo(dtype).max, ACTIVATION=activation, GRAD=h is not None, SUM=summed, **tile,
    )  # fmt: skip
    return straight, turned, scale, sums.sum(0) if summed else None


@triton.jit
def _of_heads(X, row, at, length, batch, head, step, WIDTH: tl.constexpr, real):
    """A tile of B H T K as B·T H·K, from its strides."""
    rows = (row // length).to(tl.int64) * batch + (row % length).to(tl.int64) * step
    columns = at // WIDTH * head + at % WIDTH
    return tl.load(X + rows[:, None] + columns[None, :], mask=real, other=0.0).to(tl.float32)


@triton.jit
def _joined(
    Q, K, V, row, at, first, rows, length, q_end, k_end, qb, qh, qt, kb, kh, kt, vb, vh, vt, WIDTH: tl.constexpr
):  # fmt: skip
    """A tile of three such tensors concatenated, from column `first` on; it lies within one of them."""
    real = (row < rows)[:, None] & (at >= 0)[None, :]
    if first < q_end:
        x = _of_heads(Q, row, at, length, qb, qh, qt, WIDTH, real)
    elif first < k_end:
        x = _of_heads(K, row, at - q_end, length, kb, kh, kt, WIDTH, real)
    else:
        x = _of_heads(V, row, at - k_end, length, vb, vh, vt, WIDTH, real)
    return x


@triton.jit
def _eight_heads(
    Q, K, V, TOP, ROWS, COLUMNS, SCALE, SUMS, rows, columns, padded, length, q_end, k_end, qb, qh, qt, kb, kh, kt, vb,
    vh, vt, WIDTH: tl.constexpr, MOST: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    row, at = tl.program_id(0) * R + tl.arange(0, R), tl.program_id(1) * C + tl.arange(0, C)
    x = _joined(
        Q, K, V, row, at, tl.program_id(1) * C, rows, length, q_end, k_end, qb, qh, qt, kb, kh, kt, vb, vh, vt, WIDTH
    )
    tl.store(SUMS + tl.program_id(0) * columns + at, tl.sum(x, 0))
    _store8(x, TOP, ROWS, COLUMNS, SCALE, row, at, rows, columns, padded, MOST)


def of_heads(parts: tuple[Tensor, ...]) -> tuple[int, ...]:
    """The sizes and strides `_joined` needs for three of B H T K."""
    queries, keys = (x.size(1) * x.size(3) for x in parts[:2])
    return parts[0].size(2), queries, queries + keys, *(x.stride(i) for x in parts for i in range(3))


def eight_heads(parts: tuple[Tensor, ...], top: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`eight` for three gradients, B H T K, concatenated; H·K must be a multiple of 64."""
    q = parts[0]
    rows, columns = q.size(0) * q.size(2), sum(x.size(1) * x.size(3) for x in parts)
    padded = triton.cdiv(rows, 16) * 16
    straight = torch.empty(rows, columns, device=q.device, dtype=dtype)
    turned = torch.empty(columns, padded, device=q.device, dtype=dtype)
    scale = torch.empty((), device=q.device)
    grid = triton.cdiv(padded, GRAD_TILE["R"]), columns // GRAD_TILE["C"]
    sums = torch.empty(grid[0], columns, device=q.device)
    _eight_heads[grid](
        *parts, top, straight, turned, scale, sums, rows, columns, padded, *of_heads(parts), WIDTH=q.size(3),
        MOST=torch.finfo(dtype).max, **GRAD_TILE,
    )  # fmt: skip
    return straight, turned, scale, sums.sum(0)


@triton.jit
def _log_sums(LOGITS, TARGETS, SUMS, LOSS, first, vocab, columns, SMOOTHING: tl.constexpr, BLOCK: tl.constexpr):
    """One row: the log2 of its sum of exponentials, and its loss."""
    LOG2E: tl.constexpr = 1.4426950408889634
    row, lanes, whole = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK), vocab // BLOCK * BLOCK
    logits, target = LOGITS + row * columns, tl.load(TARGETS + first + row)
    top, total = tl.full((BLOCK,), -1e30, tl.float32), tl.zeros((BLOCK,), tl.float32)
    plain = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, whole, BLOCK):
        x = tl.load(logits + start + lanes).to(tl.float32)
        top, total = _summed(top, total, x * LOG2E)
        if SMOOTHING > 0:
            plain += x
    for start in range(whole, vocab, BLOCK):
        at = start + lanes
        x = tl.load(logits + at, mask=at < vocab, other=-1e30).to(tl.float32)
        top, total = _summed(top, total, x * LOG2E)
        if SMOOTHING > 0:
            plain += tl.where(at < vocab, x, 0.0)
    highest = tl.max(top, 0)
    log_sum = highest + tl.log2(tl.sum(total * tl.exp2(top - highest), 0))
    hit = tl.load(logits + tl.maximum(target, 0)).to(tl.float32)
    loss = log_sum / LOG2E - (1 - SMOOTHING) * hit
    if SMOOTHING > 0:
        loss -= SMOOTHING * tl.sum(plain, 0) / vocab
    tl.store(SUMS + row, log_sum)
    tl.store(LOSS + row, tl.where(target >= 0, loss, 0.0))


@triton.jit
def _error(
    LOGITS, TARGETS, SUMS, ROWS, COLUMNS, first, rows, vocab, columns, padded, FACTOR: tl.constexpr,
    SMOOTHING: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """A tile of FACTOR · (softmax - target) in FP8."""
    LOG2E: tl.constexpr = 1.4426950408889634
    row, at = tl.program_id(1) * R + tl.arange(0, R), tl.program_id(0) * C + tl.arange(0, C)
    real = (row < rows)[:, None] & (at < columns)[None, :]
    offsets = row.to(tl.int64)[:, None] * columns + at[None, :]
    target = tl.load(TARGETS + first + row, mask=row < rows, other=-1)
    log_sum = tl.load(SUMS + row, mask=row < rows, other=0.0)
    x = tl.exp2(tl.load(LOGITS + offsets, mask=real, other=0.0).to(tl.float32) * LOG2E - log_sum[:, None])
    x = x - tl.where(at[None, :] == target[:, None], 1.0 - SMOOTHING, 0.0) - SMOOTHING / vocab
    x = tl.where((at < vocab)[None, :] & (target >= 0)[:, None], x * FACTOR, 0.0).to(tl.bfloat16)
    tl.store(ROWS + offsets, x.to(tl.float32).to(ROWS.dtype.element_ty), mask=real)
    transposed = at.to(tl.int64)[:, None] * padded + row[None, :]
    turned = tl.trans(x).to(tl.float32).to(COLUMNS.dtype.element_ty)
    tl.store(COLUMNS + transposed, turned, mask=(at < columns)[:, None] & (row < padded)[None, :])


def softmax_error8(
    logits: Tensor, targets: Tensor, smoothing: float, vocab: int, first: int, factor: float
) -> tuple[Tensor, Tensor, Tensor]:
    """R losses, and `factor` times their gradient by the R V logits in e5m2, R V and V R, R padded to a multiple of 16.

    The first `vocab` columns are tokens. Targets start at `first` of `targets`; negative ones do not count."""
    (rows, columns), padded = logits.shape, triton.cdiv(logits.size(0), 16) * 16
    loss, sums = torch.empty(rows, device=logits.device), torch.empty(rows, device=logits.device)
    error = torch.empty(rows, columns, device=logits.device, dtype=torch.float8_e5m2)
    turned = torch.empty(columns, padded, device=logits.device, dtype=torch.float8_e5m2)
    block = min(4096, 1 << (columns - 1).bit_length())
    _log_sums[(rows,)](
        logits, targets, sums, loss, first, vocab, columns, SMOOTHING=smoothing, BLOCK=block,
        num_warps=max(1, block // 256),
    )  # fmt: skip
    _error[(triton.cdiv(columns, ERROR["C"]), triton.cdiv(padded, ERROR["R"]))](
        logits, targets, sums, error, turned, first, rows, vocab, columns, padded, FACTOR=factor, SMOOTHING=smoothing,
        **ERROR,
    )  # fmt: skip
    return loss, error, turned
