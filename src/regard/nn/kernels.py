"""Triton kernels for the steps that have no good one elsewhere: a new token looks back at a cache, a softmax becomes
its own gradient, and a residual sum with dropout is normed.

Imported only where there is a GPU, and Triton with it. Their plain counterparts are `LayerCache.extend` and then
`attention.fast_attention`, torch's cross-entropy, and `norm(x + dropout(y))`, which the tests compare them with.
"""

import torch
import triton  # pyrefly: ignore[missing-import]
import triton.language as tl  # pyrefly: ignore[missing-import]
from torch import Tensor

FEW, MANY = dict(BLOCK=256, num_warps=8), dict(BLOCK=64, num_warps=1)  # keys looked at together, and by how many warps
PROGRAMS = 128  # up to here the GPU is not full, and one program had better be quick; beyond, cheap

ROW, WARPS = 4096, 32  # logits of a row read together, and by how many warps: the quickest of those tried on an H200


@triton.jit
def _look_back(
    Q, K, V, KEYS, VALUES, SLOTS, OUT, qb, qh, kb, kh, vb, vh, cb, ch, cs, shared,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row and one head: write the new key and value, then a running softmax over all keys before them."""
    b, h = tl.program_id(0), tl.program_id(1)
    group = h // shared  # the head of keys this head looks at
    d = tl.arange(0, WIDTH)
    slot = tl.load(SLOTS + b)
    q = tl.load(Q + b * qb + h * qh + d).to(tl.float32)
    q = q / tl.sqrt(tl.full((1,), WIDTH, tl.float32))
    k = tl.load(K + b * kb + group * kh + d)
    v = tl.load(V + b * vb + group * vh + d)
    past = b * cb + group * ch
    if h % shared == 0:
        tl.store(KEYS + past + slot * cs + d, k)
        tl.store(VALUES + past + slot * cs + d, v)
    top = tl.sum(q * k.to(tl.float32), 0)  # the token sees itself, from registers: its key may not be written yet
    total = tl.exp(top - top)
    mixed = v.to(tl.float32)
    for start in range(0, slot, BLOCK):
        s = start + tl.arange(0, BLOCK)
        real = s < slot
        at = past + s[:, None] * cs + d[None, :]
        keys = tl.load(KEYS + at, mask=real[:, None], other=0.0).to(tl.float32)
        values = tl.load(VALUES + at, mask=real[:, None], other=0.0).to(tl.float32)
        scores = tl.where(real, tl.sum(keys * q[None, :], 1), float("-inf"))
        new = tl.maximum(top, tl.max(scores, 0))
        weights, old = tl.exp(scores - new), tl.exp(top - new)
        mixed = mixed * old + tl.sum(weights[:, None] * values, 0)
        total = total * old + tl.sum(weights, 0)
        top = new
    tl.store(OUT + (b * tl.num_programs(1) + h) * WIDTH + d, (mixed / total).to(OUT.dtype.element_ty))


def look_back(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> Tensor:
    """B H 1 K queries over B G C K caches, to whose `slots` (B) their own k and v are written first: B H 1 K.

    Row b sees slots 0 to `slots[b]`, and no more of the cache is read than that.
    """
    B, H, _, width = q.shape
    out = torch.empty(B, 1, H, width, dtype=q.dtype, device=q.device)
    _look_back[(B, H)](
        q, k, v, keys, values, slots, out, q.stride(0), q.stride(1), k.stride(0), k.stride(1),
        v.stride(0), v.stride(1), keys.stride(0), keys.stride(1), keys.stride(2), H // keys.size(1),
        WIDTH=width, **(FEW if B * H <= PROGRAMS else MANY),
    )  # fmt: skip
    return out.transpose(1, 2)


@triton.jit
def _summed(top, total, x):
    """Sums of powers of two lane by lane, 2^(x - top), each with the largest x so far: one exponential a number."""
    above = x - top
    less = tl.exp2(-tl.abs(above))  # of the sum and the new term one is the larger, and the other so many times less
    return tl.maximum(top, x), tl.where(above > 0, total * less + 1, total + less)


@triton.jit
def _softmax_error(LOGITS, TARGETS, LOSS, first, vocab, columns, SMOOTHING: tl.constexpr, BLOCK: tl.constexpr):
    """One row: its loss, and over its logits, read twice, the loss's gradient by them. Whole blocks need no mask."""
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
        x = tl.where(at < vocab, x, 0.0) * real  # columns that are no words
        tl.store(logits + at, x.to(LOGITS.dtype.element_ty), mask=at < columns)


def softmax_error(
    logits: Tensor, targets: Tensor, smoothing: float, vocab: int, first: int = 0
) -> tuple[Tensor, Tensor]:
    """R V logits, of which the first `vocab` are words, and R targets (below 0: does not count; in a list of more, from
    `first` on) to R losses and their gradient by the logits, R V, which is written over them. Many warps to a row: few
    rows at a time stay in the cache between their two reads."""
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
    """Every bit of 32 hangs on every other (Wellons 2018)."""
    x = (x ^ (x >> 16)) * 0x21F0AAAD
    x = (x ^ (x >> 15)) * 0xD35A2D97
    return x ^ (x >> 15)


@triton.jit
def _kept(seed, row, at, DROP: tl.constexpr):
    """What a number that may be forgotten is multiplied by: 0, or so much more that the mean stays."""
    start = _mixed(_mixed(row.to(tl.uint32)) + seed.to(tl.uint32))
    chance = _mixed(start[:, None] + at.to(tl.uint32)[None, :] * 0x9E3779B9) >> 8
    return tl.where(chance.to(tl.int32).to(tl.float32) * (1.0 / 16777216) < DROP, 0.0, 1.0 / (1.0 - DROP))


@triton.jit
def _add_norm(
    X, Y, SCALE, BIAS, SEED, SUM, OUT, MEAN, SPREAD, rows, columns, EPS: tl.constexpr,
    DROP: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    row, at = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, C)
    there = (at < columns)[None, :]
    real = (row < rows)[:, None] & there
    here = row.to(tl.int64)[:, None] * columns + at[None, :]
    y = tl.load(Y + here, mask=real, other=0.0).to(tl.float32)
    if DROP > 0:
        y *= _kept(tl.load(SEED), row, at, DROP)
    total = (tl.load(X + here, mask=real, other=0.0).to(tl.float32) + y).to(SUM.dtype.element_ty)
    tl.store(SUM + here, total, mask=real)
    total = total.to(tl.float32)
    mean = tl.sum(total, 1) / columns
    apart = tl.where(there, total - mean[:, None], 0.0)
    spread = tl.rsqrt(tl.sum(apart * apart, 1) / columns + EPS)
    scale = tl.load(SCALE + at, mask=at < columns, other=0.0).to(tl.float32)
    bias = tl.load(BIAS + at, mask=at < columns, other=0.0).to(tl.float32)
    out = apart * spread[:, None] * scale[None, :] + bias[None, :]
    tl.store(OUT + here, out.to(OUT.dtype.element_ty), mask=real)
    tl.store(MEAN + row, mean, mask=row < rows)
    tl.store(SPREAD + row, spread, mask=row < rows)


@triton.jit
def _add_norm_grad(
    DN, DSUM, SUM, SCALE, SEED, MEAN, SPREAD, DX, DY, SCALES, BIASES, rows, columns, stretch,
    DROP: tl.constexpr, ALSO: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Of a stretch of rows; ALSO: the sum had a gradient of its own."""
    at = tl.arange(0, C)
    there = (at < columns)[None, :]
    scale = tl.load(SCALE + at, mask=at < columns, other=0.0).to(tl.float32)
    scales, biases = tl.zeros((C,), tl.float32), tl.zeros((C,), tl.float32)
    first = tl.program_id(0) * stretch
    for start in range(first, tl.minimum(first + stretch, rows), R):
        row = start + tl.arange(0, R)
        real = (row < rows)[:, None] & there
        here = row.to(tl.int64)[:, None] * columns + at[None, :]
        mean = tl.load(MEAN + row, mask=row < rows, other=0.0)
        spread = tl.load(SPREAD + row, mask=row < rows, other=0.0)
        normed = (tl.load(SUM + here, mask=real, other=0.0).to(tl.float32) - mean[:, None]) * spread[:, None]
        normed = tl.where(real, normed, 0.0)
        dn = tl.load(DN + here, mask=real, other=0.0).to(tl.float32)
        scales += tl.sum(dn * normed, 0)
        biases += tl.sum(dn, 0)
        d = dn * scale[None, :]
        along, level = tl.sum(d * normed, 1) / columns, tl.sum(d, 1) / columns
        dx = (d - normed * along[:, None] - level[:, None]) * spread[:, None]
        if ALSO:
            dx += tl.load(DSUM + here, mask=real, other=0.0).to(tl.float32)
        tl.store(DX + here, dx.to(DX.dtype.element_ty), mask=real)
        if DROP > 0:
            dy = dx * _kept(tl.load(SEED), row, at, DROP)
            tl.store(DY + here, dy.to(DY.dtype.element_ty), mask=real)
    tl.store(SCALES + tl.program_id(0) * columns + at, scales, mask=at < columns)
    tl.store(BIASES + tl.program_id(0) * columns + at, biases, mask=at < columns)


LANES = 4096  # numbers of a tile of whole rows
ROWS = 128  # to a program, of which each leaves one sum for scale and bias


def _tile(columns: int) -> dict[str, int]:
    width = 1 << (columns - 1).bit_length()
    return dict(R=max(1, LANES // width), C=width, num_warps=4)


def add_norm(
    x: Tensor, y: Tensor, scale: Tensor, bias: Tensor, eps: float, drop: float, seed: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """R C: x + dropout(y), its layer norm, and each row's mean and 1 / spread. `seed` decides what is dropped."""
    rows, columns = x.shape
    total, out = torch.empty_like(x), torch.empty_like(x)
    mean, spread = torch.empty(rows, device=x.device), torch.empty(rows, device=x.device)
    tile = _tile(columns)
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
        columns, ROWS, DROP=drop, ALSO=dtotal is not None, **_tile(columns),
    )  # fmt: skip
    scales, biases = sums.sum(1)
    return dx, dy, scales, biases
