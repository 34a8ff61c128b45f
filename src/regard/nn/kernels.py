"""A Triton kernel for the one step that has no good one elsewhere: a new token looks back at a cache, on a GPU.

Imported only where there is a GPU, and Triton with it. Its plain counterpart is `LayerCache.extend` and then
`attention.fast_attention`, which the tests compare it with.
"""

import torch
import triton  # pyrefly: ignore[missing-import]
import triton.language as tl  # pyrefly: ignore[missing-import]
from torch import Tensor

FEW, MANY = dict(BLOCK=256, num_warps=8), dict(BLOCK=64, num_warps=1)  # keys looked at together, and by how many warps
PROGRAMS = 128  # up to here the GPU is not full, and one program had better be quick; beyond, cheap


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
