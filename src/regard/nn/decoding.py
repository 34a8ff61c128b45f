"""Triton kernels for decoding, where few rows meet all weights of a model and launching kernels dominates.

Imported only where there is a GPU with Triton. Their plain counterparts are `LayerCache.extend` and then
`attention.fast_attention`, `residual + gelu(linear(norm(x)))` and `norm(x), x + bias`, which the tests compare
them with.
"""

import torch
import triton  # pyrefly: ignore[missing-import]
import triton.language as tl  # pyrefly: ignore[missing-import]
from torch import Tensor

from regard.nn.kernels import _activated

FEW, MANY = dict(BLOCK=256, num_warps=8), dict(BLOCK=64, num_warps=1)  # keys per iteration, and warps
HEADS = dict(BLOCK=16, STAGES=4, num_warps=1)  # the same with tensor cores; STAGES loads are in flight
HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)
PROGRAMS = 128  # below this the GPU is not full and latency counts; above, throughput


def early() -> dict[str, bool]:
    """Launch options that start a kernel before the previous one has finished; it waits for that one's output."""
    return dict(EARLY=True, launch_pdl=True) if HOPPER and not torch.compiler.is_compiling() else dict(EARLY=False)


@triton.jit
def _look_back(
    Q, K, V, KEYS, VALUES, SLOTS, OUT, qb, qh, kb, kh, vb, vh, cb, ch, cs, shared,
    EARLY: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row and one head: write the new key and value, then an online softmax over all earlier keys."""
    b, h = tl.program_id(0), tl.program_id(1)
    group = h // shared  # the key head of this query head
    d = tl.arange(0, WIDTH)
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    slot = tl.load(SLOTS + b)
    q = tl.load(Q + b * qb + h * qh + d).to(tl.float32)
    q = q / tl.sqrt(tl.full((1,), WIDTH, tl.float32))
    k = tl.load(K + b * kb + group * kh + d)
    v = tl.load(V + b * vb + group * vh + d)
    past = b * cb + group * ch
    if h % shared == 0:
        tl.store(KEYS + past + slot * cs + d, k)
        tl.store(VALUES + past + slot * cs + d, v)
    top = tl.sum(q * k.to(tl.float32), 0)  # the token's own key comes from registers: it may not be written yet
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


@triton.jit
def _heads_look_back(
    Q, K, V, KEYS, VALUES, SLOTS, OUT, qb, qh, kb, kh, vb, vh, cb, ch, cs, shared,
    EARLY: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """The same with tensor cores, for all heads that share keys: M of them, of which the first `shared` are real."""
    b, group = tl.program_id(0), tl.program_id(1)
    d, m = tl.arange(0, WIDTH), tl.arange(0, M)
    past, head = b * cb + group * ch, group * shared + m
    real = (m < shared)[:, None]
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    slot = tl.load(SLOTS + b)
    q = tl.load(Q + b * qb + head[:, None] * qh + d[None, :], mask=real, other=0.0)  # M WIDTH
    k = tl.load(K + b * kb + group * kh + d)
    v = tl.load(V + b * vb + group * vh + d)
    tl.store(KEYS + past + slot * cs + d, k)
    tl.store(VALUES + past + slot * cs + d, v)
    scale = 1.0 / tl.sqrt(tl.full((1,), WIDTH, tl.float32))
    top = tl.sum(q.to(tl.float32) * k.to(tl.float32)[None, :], 1) * scale  # from registers, as above
    total = tl.exp(top - top)
    mixed = tl.zeros((M, WIDTH), tl.float32) + v.to(tl.float32)[None, :]
    for start in tl.range(0, slot, BLOCK, num_stages=STAGES):
        s = start + tl.arange(0, BLOCK)
        past_keys = s < slot
        keys = tl.load(KEYS + past + s[None, :] * cs + d[:, None], mask=past_keys[None, :], other=0.0)  # WIDTH BLOCK
        values = tl.load(VALUES + past + s[:, None] * cs + d[None, :], mask=past_keys[:, None], other=0.0)
        scores = tl.where(past_keys[None, :], tl.dot(q, keys) * scale, float("-inf"))  # M BLOCK
        new = tl.maximum(top, tl.max(scores, 1))
        weights, old = tl.exp(scores - new[:, None]), tl.exp(top - new)
        mixed = mixed * old[:, None] + tl.dot(weights.to(values.dtype), values)
        total = total * old + tl.sum(weights, 1)
        top = new
    out = OUT + (b * tl.num_programs(1) * shared + head[:, None]) * WIDTH + d[None, :]
    tl.store(out, (mixed / total[:, None]).to(OUT.dtype.element_ty), mask=real)


def look_back(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> Tensor:
    """Write k and v to `slots` (B) of B G C K caches, then attend with B H 1 K queries: B H 1 K.

    Row b reads slots 0 to `slots[b]` and no others.
    """
    (B, H, _, width), groups = q.shape, keys.size(1)
    out = torch.empty(B, 1, H, width, dtype=q.dtype, device=q.device)
    tensors = q, k, v, keys, values, slots, out
    strides = *q.stride()[:2], *k.stride()[:2], *v.stride()[:2], *keys.stride()[:3]
    if B * groups > PROGRAMS and H // groups <= MOST_QUERIES and q.dtype != torch.float32:
        _heads_look_back[(B, groups)](*tensors, *strides, H // groups, WIDTH=width, M=MOST_QUERIES, **HEADS, **early())
    else:
        how = FEW if B * H <= PROGRAMS else MANY
        _look_back[(B, H)](*tensors, *strides, H // groups, WIDTH=width, **how, **early())
    return out.transpose(1, 2)


@triton.jit
def _row_times(
    X, W, BIAS, SCALE, SHIFT, RESIDUAL, OUT, xs, rs, columns, EPS: tl.constexpr, K: tl.constexpr, NORM: tl.constexpr,
    BIASED: tl.constexpr, GELU: tl.constexpr, ADD: tl.constexpr, EARLY: tl.constexpr, N: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """N outputs of one row: [x +] [gelu] ([norm](x) Wᵀ + b). Every program norms the row itself.

    EARLY: start, and load weights, before the previous kernel has finished.
    """
    row, n, at = tl.program_id(1), tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, BLOCK)
    real = n < columns
    weights = W + n.to(tl.int64)[:, None] * K + at[None, :]
    w = tl.load(weights, mask=real[:, None] & (at < K)[None, :], other=0.0)
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    x = tl.load(X + row * xs + at, mask=at < K, other=0.0).to(tl.float32)
    if NORM:
        apart = tl.where(at < K, x - tl.sum(x, 0) / K, 0.0)
        scale = tl.load(SCALE + at, mask=at < K, other=0.0).to(tl.float32)
        shift = tl.load(SHIFT + at, mask=at < K, other=0.0).to(tl.float32)
        x = apart * tl.rsqrt(tl.sum(apart * apart, 0) / K + EPS) * scale + shift
        x = x.to(OUT.dtype.element_ty).to(tl.float32)
    total = tl.sum(w.to(tl.float32) * x[None, :], 1)
    if BIASED:
        total += tl.load(BIAS + n, mask=real, other=0.0).to(tl.float32)
    if GELU:
        total, _ = _activated(total, "gelu-tanh")
    if ADD:
        total += tl.load(RESIDUAL + row * rs + n, mask=real, other=0.0).to(tl.float32)
    tl.store(OUT + row * columns + n, total.to(OUT.dtype.element_ty), mask=real)


WEIGHTS, LEAST_PROGRAMS = 8192, 192  # weights per program, unless that leaves too few programs


def row_times(
    x: Tensor, weight: Tensor, bias: Tensor | None, norm: tuple[Tensor, Tensor, float] | None = None,
    gelu: bool = False, residual: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """R K, few rows, times N K: [residual +] [gelu] ([norm](x) Wᵀ + b), R N. `norm` is scale, shift and eps."""
    (rows, inner), columns = x.shape, weight.size(0)
    out = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
    block = 1 << (inner - 1).bit_length()
    together = max(1, WEIGHTS // block)
    while together > 1 and columns < together * LEAST_PROGRAMS:
        together //= 2
    scale, shift, eps = norm or (x, x, 0.0)
    _row_times[(triton.cdiv(columns, together), rows)](
        x, weight, weight if bias is None else bias, scale, shift, x if residual is None else residual, out,
        x.stride(0), 0 if residual is None else residual.stride(0), columns, EPS=eps, K=inner, NORM=norm is not None,
        BIASED=bias is not None, GELU=gelu, ADD=residual is not None, N=together, BLOCK=block, num_warps=4,
        **early(),
    )  # fmt: skip
    return out


@triton.jit
def _norm_row(
    X, SCALE, SHIFT, BIAS, Y, MOVED, columns, EPS: tl.constexpr, EARLY: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """One row: its norm, and the row with a bias added."""
    at = tl.arange(0, BLOCK)
    valid = at < columns
    scale = tl.load(SCALE + at, mask=valid, other=0.0).to(tl.float32)
    shift = tl.load(SHIFT + at, mask=valid, other=0.0).to(tl.float32)
    bias = tl.load(BIAS + at, mask=valid, other=0.0).to(tl.float32)
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    offsets = tl.program_id(0).to(tl.int64) * columns + at
    x = tl.load(X + offsets, mask=valid, other=0.0).to(tl.float32)
    apart = tl.where(valid, x - tl.sum(x, 0) / columns, 0.0)
    y = apart * tl.rsqrt(tl.sum(apart * apart, 0) / columns + EPS) * scale + shift
    tl.store(Y + offsets, y.to(Y.dtype.element_ty), mask=valid)
    tl.store(MOVED + offsets, (x + bias).to(MOVED.dtype.element_ty), mask=valid)


def norm_row(x: Tensor, scale: Tensor, shift: Tensor, eps: float, bias: Tensor) -> tuple[Tensor, Tensor]:
    """R C: the layer norm of x, and x + bias."""
    (rows, columns), y, moved = x.shape, torch.empty_like(x), torch.empty_like(x)
    block = 1 << (columns - 1).bit_length()
    _norm_row[(rows,)](x, scale, shift, bias, y, moved, columns, EPS=eps, BLOCK=block, num_warps=4, **early())
    return y, moved


@triton.jit
def _few_queries(
    Q, K, V, KEYS, VALUES, SLOTS, TABLE, OUT, queries, keys, qb, qh, qt, kb, kh, kt, vb, vh, vt, cb, ch, cs, eb, eh, es,
    tb, tq, WRITE: tl.constexpr, MASKED: tl.constexpr, EARLY: tl.constexpr, WIDTH: tl.constexpr, N: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One row and one head: write the new keys and values, then an online softmax over all keys up to them."""
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    n, d = tl.arange(0, N), tl.arange(0, WIDTH)
    real = (n < queries)[:, None]
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    stop = keys
    if WRITE:
        slot = tl.load(SLOTS + n, mask=n < queries, other=0)
        new = b * cb + h * ch + slot[:, None] * cs + d[None, :]
        tl.store(KEYS + new, tl.load(K + b * kb + h * kh + n[:, None] * kt + d[None, :], mask=real), mask=real)
        new = b * eb + h * eh + slot[:, None] * es + d[None, :]
        tl.store(VALUES + new, tl.load(V + b * vb + h * vh + n[:, None] * vt + d[None, :], mask=real), mask=real)
        stop = tl.load(SLOTS + queries - 1) + 1
        tl.debug_barrier()
    q = tl.load(Q + b * qb + h * qh + n[:, None] * qt + d[None, :], mask=real, other=0.0)
    top, total = tl.full((N,), -1e30, tl.float32), tl.zeros((N,), tl.float32)
    mixed = tl.zeros((N, WIDTH), tl.float32)
    for start in range(0, stop, BLOCK):
        s = start + tl.arange(0, BLOCK)
        valid = (s < stop)[:, None]
        k = tl.load(KEYS + b * cb + h * ch + s[:, None] * cs + d[None, :], mask=valid, other=0.0)
        v = tl.load(VALUES + b * eb + h * eh + s[:, None] * es + d[None, :], mask=valid, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * (1.0 / tl.sqrt(tl.full((1,), WIDTH, tl.float32)))
        seen = (n < queries)[:, None] & (s < stop)[None, :]
        if MASKED:
            seen = seen & (tl.load(TABLE + b * tb + n[:, None] * tq + s[None, :], mask=seen, other=0) != 0)
        scores = tl.where(seen, scores, -1e30)
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights, old = tl.where(seen, tl.exp(scores - new_top[:, None]), 0.0), tl.exp(top - new_top)
        mixed = mixed * old[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        total = total * old + tl.sum(weights, 1)
        top = new_top
    mixed = mixed / tl.maximum(total, 1e-30)[:, None]
    offsets = ((b * queries + n[:, None]) * tl.num_programs(1) + h) * WIDTH + d[None, :]
    tl.store(OUT + offsets, mixed.to(OUT.dtype.element_ty), mask=real)


MOST_QUERIES = 16


def few_queries(
    q: Tensor, keys: Tensor, values: Tensor, table: Tensor | None = None,
    new: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Tensor:  # fmt: skip
    """B H T K queries, at most 16 a row, over B H S K keys and values: B H T K.

    `table`, B T S, is the mask; None: no mask. `new` holds these tokens' keys and values, B H T K, and the increasing
    slots, T, they are written to first; no later slot is read.
    """
    B, H, T, width = q.shape
    out = torch.empty(B, T, H, width, dtype=q.dtype, device=q.device)
    k, v, slots = new or (q, q, q)
    marks = q if table is None else table.view(torch.uint8)
    _few_queries[(B, H)](
        q, k, v, keys, values, slots, marks, out, T, keys.size(2), *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
        *keys.stride()[:3], *values.stride()[:3], *marks.stride()[:2], WRITE=new is not None, MASKED=table is not None,
        WIDTH=width, N=MOST_QUERIES, BLOCK=64, num_warps=4, **early(),
    )  # fmt: skip
    return out.transpose(1, 2)


@triton.jit
def _block_heads(
    LOGITS, SUMS, HEADS, words, eos, pad, blocks, WORDS: tl.constexpr, CHUNK: tl.constexpr, EARLY: tl.constexpr
):  # fmt: skip
    """A row's log-sum-exp, and the largest logit of every WORDS tokens, except eos and pad."""
    row, lanes = tl.program_id(0).to(tl.int64), tl.arange(0, CHUNK)
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    top, total = tl.full((CHUNK,), -1e30, tl.float32), tl.zeros((CHUNK,), tl.float32)
    for start in range(0, words, CHUNK):
        at = start + lanes
        x = tl.load(LOGITS + row * words + at, mask=at < words, other=-1e30).to(tl.float32)
        higher = tl.maximum(top, x)
        total = total * tl.exp(top - higher) + tl.exp(x - higher)
        top = higher
        x = tl.where((at == eos) | (at == pad), float("-inf"), x)
        heads = tl.max(tl.reshape(x, (CHUNK // WORDS, WORDS)), 1)
        block = start // WORDS + tl.arange(0, CHUNK // WORDS)
        tl.store(HEADS + row * blocks + block, heads, mask=block < blocks)
    highest = tl.max(top, 0)
    total = tl.where(top > -1e30, total, 0.0)  # lanes beyond the vocabulary
    tl.store(SUMS + row, highest + tl.log(tl.sum(total * tl.exp(top - highest), 0)))


@triton.jit
def _best_words(
    LOGITS, SUMS, HEADS, SCORES, BEST, FLAT, words, eos, pad, blocks, N: tl.constexpr, TOP: tl.constexpr,
    LANES: tl.constexpr, WORDS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """One sentence: the TOP best continuations of its N hypotheses, except by eos and pad. They lie in the TOP blocks
    with the largest maxima."""
    NEVER: tl.constexpr = -1e30
    b, lanes, k = tl.program_id(0).to(tl.int64), tl.arange(0, LANES), tl.arange(0, TOP)
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    valid = lanes < N * blocks
    row = b * N + lanes // blocks
    base = tl.load(SCORES + row, mask=valid, other=0.0) - tl.load(SUMS + row, mask=valid, other=0.0)
    heads = tl.maximum(tl.load(HEADS + b * N * blocks + lanes, mask=valid, other=0.0) + base, NEVER)
    heads = tl.where(valid, heads, float("-inf"))  # so are blocks already chosen
    chosen = tl.zeros((TOP,), tl.int32)
    for i in tl.static_range(TOP):
        best = tl.argmax(heads, 0)
        chosen = tl.where(k == i, best, chosen)
        heads = tl.where(lanes == best, float("-inf"), heads)
    chosen = tl.sort(chosen)  # ties go to the smaller index
    word = (chosen % blocks)[:, None] * WORDS + tl.arange(0, WORDS)[None, :]
    row = (b * N + chosen // blocks)[:, None] + tl.zeros((TOP, WORDS), tl.int64)
    real = (word < words) & (word != eos) & (word != pad) & (chosen < N * blocks)[:, None]
    x = tl.load(LOGITS + row * words + word, mask=real, other=0.0).to(tl.float32)
    x += tl.load(SCORES + row, mask=real, other=0.0) - tl.load(SUMS + row, mask=real, other=0.0)
    x = tl.where(real, tl.maximum(x, NEVER), NEVER)
    flat = tl.reshape(tl.where(real, (row - b * N) * words + word, 0), (TOP * WORDS,))
    x, place = tl.reshape(x, (TOP * WORDS,)), tl.arange(0, TOP * WORDS)
    for i in tl.static_range(TOP):
        best, value = tl.argmax(x, 0), tl.max(x, 0)
        tl.store(BEST + b * TOP + i, tl.where(value > NEVER, value, float("-inf")))
        tl.store(FLAT + b * TOP + i, tl.sum(tl.where(place == best, flat, 0), 0))
        x = tl.where(place == best, float("-inf"), x)


def best_words(logits: Tensor, scores: Tensor, eos: int, pad: int) -> tuple[Tensor, Tensor, Tensor]:
    """One step of beam search, from B N V logits and the N hypotheses' scores, B N. Returns the 2N best sums of a score
    and a token's log-probability, except of `eos` and `pad`, B 2N; their indices, n V + token; and the
    log-probabilities of `eos`, B N. 2N must be a power of two."""
    B, N, words = logits.shape
    logits, blocks = logits.contiguous(), triton.cdiv(words, 64)
    sums, heads = torch.empty(B * N, device=logits.device), torch.empty(B * N, blocks, device=logits.device)
    chunk = min(4096, max(64, 1 << (words - 1).bit_length()))
    _block_heads[(B * N,)](
        logits, sums, heads, words, eos, pad, blocks, WORDS=64, CHUNK=chunk, num_warps=max(1, chunk // 512), **early()
    )
    best = torch.empty(B, 2 * N, device=logits.device)
    flat = torch.empty(B, 2 * N, device=logits.device, dtype=torch.long)
    _best_words[(B,)](
        logits, sums, heads, scores.contiguous(), best, flat, words, eos, pad, blocks, N=N, TOP=2 * N,
        LANES=max(2 * N, 1 << (N * blocks - 1).bit_length()), WORDS=64, num_warps=8, **early(),
    )  # fmt: skip
    return best, flat, logits[..., eos].float() - sums.view(B, N)
