"""Triton kernels for the two steps that have no good one elsewhere: a new token looks back at a cache, and a softmax
becomes its own gradient.

Imported only where there is a GPU, and Triton with it. Their plain counterparts are `LayerCache.extend` and then
`attention.fast_attention`, and torch's cross-entropy, which the tests compare them with.
"""

import torch
import triton  # pyrefly: ignore[missing-import]
import triton.language as tl  # pyrefly: ignore[missing-import]
from torch import Tensor

FEW, MANY = dict(BLOCK=256, num_warps=8), dict(BLOCK=64, num_warps=1)  # keys looked at together, and by how many warps
PROGRAMS = 128  # up to here the GPU is not full, and one program had better be quick; beyond, cheap

ROW, WARPS = 2048, 16  # logits of a row read together, and by how many warps: the quickest of those tried on an H200


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
def _softmax_error(
    LOGITS, TARGETS, LOSS, ERROR, vocab, columns, smoothing, SMOOTHED: tl.constexpr, BLOCK: tl.constexpr
):
    """One row: its loss, and the gradient of the loss by its logits, read twice. Whole blocks need no mask."""
    LOG2E: tl.constexpr = 1.4426950408889634
    row, lanes, whole = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK), vocab // BLOCK * BLOCK
    logits, error, target = LOGITS + row * columns, ERROR + row * columns, tl.load(TARGETS + row)
    top, total = tl.full((BLOCK,), -1e30, tl.float32), tl.zeros((BLOCK,), tl.float32)
    plain = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, whole, BLOCK):
        x = tl.load(logits + start + lanes).to(tl.float32)
        top, total = _summed(top, total, x * LOG2E)
        if SMOOTHED:
            plain += x
    for start in range(whole, vocab, BLOCK):
        at = start + lanes
        x = tl.load(logits + at, mask=at < vocab, other=-1e30).to(tl.float32)
        top, total = _summed(top, total, x * LOG2E)
        if SMOOTHED:
            plain += tl.where(at < vocab, x, 0.0)
    highest = tl.max(top, 0)
    log_sum = highest + tl.log2(tl.sum(total * tl.exp2(top - highest), 0))
    real = (target >= 0).to(tl.float32)
    hit = tl.load(logits + tl.maximum(target, 0)).to(tl.float32)
    loss = log_sum / LOG2E - (1 - smoothing) * hit
    if SMOOTHED:
        loss -= smoothing * tl.sum(plain, 0) / vocab
    tl.store(LOSS + row, loss * real)
    for start in range(0, whole, BLOCK):
        at = start + lanes
        x = tl.exp2(tl.load(logits + at).to(tl.float32) * LOG2E - log_sum)
        x = x - tl.where(at == target, 1 - smoothing, 0.0) - smoothing / vocab
        tl.store(error + at, (x * real).to(ERROR.dtype.element_ty))
    for start in range(whole, columns, BLOCK):
        at = start + lanes
        x = tl.exp2(tl.load(logits + at, mask=at < vocab, other=-1e30).to(tl.float32) * LOG2E - log_sum)
        x = x - tl.where(at == target, 1 - smoothing, 0.0) - smoothing / vocab
        x = tl.where(at < vocab, x, 0.0) * real  # columns that are no words
        tl.store(error + at, x.to(ERROR.dtype.element_ty), mask=at < columns)


def softmax_error(logits: Tensor, targets: Tensor, smoothing: float, vocab: int) -> tuple[Tensor, Tensor]:
    """R V logits, of which the first `vocab` are words, and R targets (below 0: does not count) to R losses and their
    gradient by the logits, R V. Many warps to a row: few rows at a time stay in the cache between their two reads."""
    rows, columns = logits.shape
    loss, error = torch.empty(rows, device=logits.device), torch.empty_like(logits)
    block = min(ROW, 1 << (columns - 1).bit_length())
    _softmax_error[(rows,)](
        logits, targets.contiguous(), loss, error, vocab, columns, smoothing,
        SMOOTHED=smoothing > 0, BLOCK=block, num_warps=max(1, block * WARPS // ROW),
    )  # fmt: skip
    return loss, error
