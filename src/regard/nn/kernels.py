"""Triton kernels for training, where torch has no good one: cross-entropy that overwrites the logits with their
gradient, residual sum with dropout and norm, bias and GELU.

Imported only where there is a GPU with Triton. Their plain counterparts are torch's cross-entropy,
`norm(x + dropout(y))` and `gelu(x + bias)`, which the tests compare them with.
"""

import torch
import triton  # pyrefly: ignore[missing-import]
import triton.language as tl  # pyrefly: ignore[missing-import]
from torch import Tensor

ROW, WARPS = 4096, 32  # logits per iteration, and warps per row: the fastest tried on an H200


@triton.jit
def _summed(top, total, x):
    """Online sums of 2^(x - top) per lane, `top` the largest x so far: one exponential per element."""
    above = x - top
    less = tl.exp2(-tl.abs(above))  # rescales the smaller of the sum and the new term
    return tl.maximum(top, x), tl.where(above > 0, total * less + 1, total + less)


@triton.jit
def _softmax_error(LOGITS, TARGETS, LOSS, first, vocab, columns, SMOOTHING: tl.constexpr, BLOCK: tl.constexpr):
    """One row: its loss, and the gradient written over its logits, which are read twice. Whole blocks need no mask."""
    LOG2E: tl.constexpr = 1.4426950408889634
    row, lanes, whole = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK), vocab // BLOCK * BLOCK
    logits, target = LOGITS + row * columns, tl.load(TARGETS + first + row)
    hit = tl.load(logits + tl.maximum(target, 0)).to(tl.float32)  # before anything is written
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
    real = (target >= 0).to(tl.float32)
    loss = log_sum / LOG2E - (1 - SMOOTHING) * hit
    if SMOOTHING > 0:
        loss -= SMOOTHING * tl.sum(plain, 0) / vocab
    tl.store(LOSS + row, loss * real)
    for start in range(0, whole, BLOCK):
        at = start + lanes
        x = tl.exp2(tl.load(logits + at).to(tl.float32) * LOG2E - log_sum)
        x = x - tl.where(at == target, 1 - SMOOTHING, 0.0) - SMOOTHING / vocab
        tl.store(logits + at, (x * real).to(LOGITS.dtype.element_ty))
    for start in range(whole, columns, BLOCK):
        at = start + lanes
        x = tl.exp2(tl.load(logits + at, mask=at < vocab, other=-1e30).to(tl.float32) * LOG2E - log_sum)
        x = x - tl.where(at == target, 1 - SMOOTHING, 0.0) - SMOOTHING / vocab
        x = tl.where(at < vocab, x, 0.0) * real  # padding columns
        tl.store(logits + at, x.to(LOGITS.dtype.element_ty), mask=at < columns)


def softmax_error(
    logits: Tensor, targets: Tensor, smoothing: float, vocab: int, first: int = 0
) -> tuple[Tensor, Tensor]:
    """R losses, and their gradient by the logits, which overwrites the R V logits.

    The first `vocab` columns are tokens, the rest padding. Targets start at `first` of `targets`; negative ones do not
    count. Many warps work on a row, so that the few rows in flight stay in the cache between their two reads."""
    rows, columns = logits.shape
    loss = torch.empty(rows, device=logits.device)
    block = min(ROW, 1 << (columns - 1).bit_length())
    _softmax_error[(rows,)](
        logits, targets.contiguous(), loss, first, vocab, columns,
        SMOOTHING=smoothing, BLOCK=block, num_warps=max(1, block * WARPS // ROW),
    )  # fmt: skip
    return loss, logits


@triton.jit
def _mixed(x):
    """A 32-bit integer hash (Wellons 2018)."""
    x = (x ^ (x >> 16)) * 0x21F0AAAD
    x = (x ^ (x >> 15)) * 0xD35A2D97
    return x ^ (x >> 15)


@triton.jit
def _kept(seed, row, at, DROP: tl.constexpr):
    """The dropout factor: 0 or 1 / (1 - p)."""
    start = _mixed(_mixed(row.to(tl.uint32)) + seed.to(tl.uint32))
    bits = _mixed(start[:, None] + at.to(tl.uint32)[None, :] * 0x9E3779B9) >> 8
    return tl.where(bits.to(tl.int32).to(tl.float32) * (1.0 / 16777216) < DROP, 0.0, 1.0 / (1.0 - DROP))


@triton.jit
def _add_norm(
    X, Y, SCALE, BIAS, SEED, SUM, OUT, MEAN, SPREAD, rows, columns, EPS: tl.constexpr,
    DROP: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    row, at = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, C)
    valid = (at < columns)[None, :]
    real = (row < rows)[:, None] & valid
    offsets = row.to(tl.int64)[:, None] * columns + at[None, :]
    y = tl.load(Y + offsets, mask=real, other=0.0).to(tl.float32)
    if DROP > 0:
        y *= _kept(tl.load(SEED), row, at, DROP)
    total = (tl.load(X + offsets, mask=real, other=0.0).to(tl.float32) + y).to(SUM.dtype.element_ty)
    tl.store(SUM + offsets, total, mask=real)
    total = total.to(tl.float32)
    mean = tl.sum(total, 1) / columns
    apart = tl.where(valid, total - mean[:, None], 0.0)
    spread = tl.rsqrt(tl.sum(apart * apart, 1) / columns + EPS)
    scale = tl.load(SCALE + at, mask=at < columns, other=0.0).to(tl.float32)
    bias = tl.load(BIAS + at, mask=at < columns, other=0.0).to(tl.float32)
    out = apart * spread[:, None] * scale[None, :] + bias[None, :]
    tl.store(OUT + offsets, out.to(OUT.dtype.element_ty), mask=real)
    tl.store(MEAN + row, mean, mask=row < rows)
    tl.store(SPREAD + row, spread, mask=row < rows)


@triton.jit
def _add_norm_grad(
    DN, DSUM, SUM, SCALE, SEED, MEAN, SPREAD, DX, DY, SCALES, BIASES, rows, columns, stretch,
    DROP: tl.constexpr, ALSO: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """For a stretch of rows. ALSO: the sum has its own gradient."""
    at = tl.arange(0, C)
    valid = (at < columns)[None, :]
    scale = tl.load(SCALE + at, mask=at < columns, other=0.0).to(tl.float32)
    scales, biases = tl.zeros((C,), tl.float32), tl.zeros((C,), tl.float32)
    first = tl.program_id(0) * stretch
    for start in range(first, tl.minimum(first + stretch, rows), R):
        row = start + tl.arange(0, R)
        real = (row < rows)[:, None] & valid
        offsets = row.to(tl.int64)[:, None] * columns + at[None, :]
        mean = tl.load(MEAN + row, mask=row < rows, other=0.0)
        spread = tl.load(SPREAD + row, mask=row < rows, other=0.0)
        normed = (tl.load(SUM + offsets, mask=real, other=0.0).to(tl.float32) - mean[:, None]) * spread[:, None]
        normed = tl.where(real, normed, 0.0)
        dn = tl.load(DN + offsets, mask=real, other=0.0).to(tl.float32)
        scales += tl.sum(dn * normed, 0)
        biases += tl.sum(dn, 0)
        d = dn * scale[None, :]
        along, level = tl.sum(d * normed, 1) / columns, tl.sum(d, 1) / columns
        dx = (d - normed * along[:, None] - level[:, None]) * spread[:, None]
        if ALSO:
            dx += tl.load(DSUM + offsets, mask=real, other=0.0).to(tl.float32)
        tl.store(DX + offsets, dx.to(DX.dtype.element_ty), mask=real)
        if DROP > 0:
            dy = dx * _kept(tl.load(SEED), row, at, DROP)
            tl.store(DY + offsets, dy.to(DY.dtype.element_ty), mask=real)
    tl.store(SCALES + tl.program_id(0) * columns + at, scales, mask=at < columns)
    tl.store(BIASES + tl.program_id(0) * columns + at, biases, mask=at < columns)


NORM, NORM_GRAD = dict(lanes=4096, num_warps=4), dict(lanes=2048, num_warps=2)  # elements of a tile of whole rows
ROWS = 16  # rows per program; each writes one partial sum for scale and bias


def _tile(columns: int, lanes: int, num_warps: int) -> dict[str, int]:
    width = 1 << (columns - 1).bit_length()
    return dict(R=max(1, min(ROWS, lanes // width)), C=width, num_warps=num_warps)


FULL = 2048  # rows that keep a GPU busy; with fewer, a program takes one


def add_norm(
    x: Tensor, y: Tensor, scale: Tensor, bias: Tensor, eps: float, drop: float, seed: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """R C: x + dropout(y), its layer norm, and each row's mean and 1 / spread. `seed` decides what is dropped."""
    rows, columns = x.shape
    total, out = torch.empty_like(x), torch.empty_like(x)
    mean, spread = torch.empty(rows, device=x.device), torch.empty(rows, device=x.device)
    tile = _tile(columns, **NORM) | ({} if rows >= FULL else dict(R=1))
    _add_norm[(triton.cdiv(rows, tile["R"]),)](
        x, y, scale, bias, seed, total, out, mean, spread, rows, columns, EPS=eps, DROP=drop, **tile
    )
    return total, out, mean, spread


def add_norm_grad(
    dn: Tensor, dtotal: Tensor | None, total: Tensor, scale: Tensor, mean: Tensor, spread: Tensor, drop: float,
    seed: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of `add_norm` by x, y, scale and bias."""
    rows, columns = total.shape
    dx, stretches = torch.empty_like(total), triton.cdiv(rows, ROWS)
    dy = torch.empty_like(total) if drop else dx
    sums = torch.empty(2, stretches, columns, device=total.device)
    _add_norm_grad[(stretches,)](
        dn, total if dtotal is None else dtotal, total, scale, seed, mean, spread, dx, dy, sums[0], sums[1], rows,
        columns, ROWS, DROP=drop, ALSO=dtotal is not None, **_tile(columns, **NORM_GRAD),
    )  # fmt: skip
    scales, biases = sums.sum(1)
    return dx, dy, scales, biases


@triton.jit
def _activated(x, ACTIVATION: tl.constexpr):
    """The activation of x and its derivative."""
    if ACTIVATION == "relu":
        return tl.maximum(x, 0.0), tl.where(x > 0, 1.0, 0.0)
    elif (
        ACTIVATION == "gelu"
    ):  # erf by Abramowitz and Stegun 7.1.26, accurate to 1.5e-7, from an exponential needed anyway
        bell = tl.exp2(-0.7213475204444817 * x * x)
        t = 1.0 / (1.0 + 0.23164189 * tl.abs(x))
        tail = 1.061405429 * t - 1.453152027
        tail = ((tail * t + 1.421413741) * t - 0.284496736) * t + 0.254829592
        tail = 0.5 * tail * t * bell
        share = tl.where(x > 0, 1.0 - tail, tail)
        return x * share, share + x * 0.3989422804014327 * bell
    else:  # tanh(x) = 2 sigmoid(2x) - 1
        square = x * x
        s = 1.0 / (1.0 + tl.exp2(-2.302208198144325 * x * (1.0 + 0.044715 * square)))
        return x * s, s + x * s * (1.0 - s) * 1.5957691216057308 * (1.0 + 0.134145 * square)


@triton.jit
def _bias_act(X, BIAS, Y, rows, columns, ACTIVATION: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    row, at = tl.program_id(0) * R + tl.arange(0, R), tl.program_id(1) * C + tl.arange(0, C)
    real = (row < rows)[:, None] & (at < columns)[None, :]
    offsets = row.to(tl.int64)[:, None] * columns + at[None, :]
    bias = tl.load(BIAS + at, mask=at < columns, other=0.0).to(tl.float32)
    y, _ = _activated(tl.load(X + offsets, mask=real, other=0.0).to(tl.float32) + bias[None, :], ACTIVATION)
    tl.store(Y + offsets, y.to(Y.dtype.element_ty), mask=real)


@triton.jit
def _bias_act_grad(
    DY, X, BIAS, DX, SUMS, rows, columns, stretch, ACTIVATION: tl.constexpr, R: tl.constexpr, C: tl.constexpr
):  # fmt: skip
    """The gradient by x, and its sum over this stretch of rows, a partial gradient by the bias."""
    at = tl.program_id(1) * C + tl.arange(0, C)
    bias = tl.load(BIAS + at, mask=at < columns, other=0.0).to(tl.float32)
    total = tl.zeros((R, C), tl.float32)
    first = tl.program_id(0) * stretch
    for start in range(first, tl.minimum(first + stretch, rows), R):
        row = start + tl.arange(0, R)
        real = (row < rows)[:, None] & (at < columns)[None, :]
        offsets = row.to(tl.int64)[:, None] * columns + at[None, :]
        dy = tl.load(DY + offsets, mask=real, other=0.0).to(tl.float32)
        _, slope = _activated(tl.load(X + offsets, mask=real, other=0.0).to(tl.float32) + bias[None, :], ACTIVATION)
        total += dy * slope
        tl.store(DX + offsets, (dy * slope).to(DX.dtype.element_ty), mask=real)
    tl.store(SUMS + tl.program_id(0) * columns + at, tl.sum(total, 0), mask=at < columns)


ACT = dict(lanes=4096, num_warps=4)  # elements of a tile, and its warps
ACT_GRAD = dict(lanes=2048, num_warps=4)
STRETCH = 64  # rows per program; each writes one partial sum for the bias


def _part(columns: int, lanes: int, num_warps: int) -> dict[str, int]:
    """Rows and columns of a tile, with no idle lanes where `columns` allow it."""
    width = min(1024, columns & -columns)
    width = width if width >= 128 else min(1024, 1 << (columns - 1).bit_length())
    return dict(R=max(1, min(STRETCH, lanes // width)), C=width, num_warps=num_warps)


def bias_act(x: Tensor, bias: Tensor, activation: str) -> Tensor:
    """R C: the activation of x + b."""
    (rows, columns), y = x.shape, torch.empty_like(x)
    tile = _part(columns, **ACT)
    grid = (triton.cdiv(rows, tile["R"]), triton.cdiv(columns, tile["C"]))
    _bias_act[grid](x, bias, y, rows, columns, ACTIVATION=activation, **tile)
    return y


def bias_act_grad(dy: Tensor, x: Tensor, bias: Tensor, activation: str) -> tuple[Tensor, Tensor]:
    """The gradients of `bias_act` by x, R C, and by b, C."""
    (rows, columns), dx, tile = x.shape, torch.empty_like(x), _part(x.size(1), **ACT_GRAD)
    stretches = triton.cdiv(rows, STRETCH)
    sums = torch.empty(stretches, columns, device=x.device)
    grid = (stretches, triton.cdiv(columns, tile["C"]))
    _bias_act_grad[grid](dy, x, bias, dx, sums, rows, columns, STRETCH, ACTIVATION=activation, **tile)
    return dx, sums.sum(0)
