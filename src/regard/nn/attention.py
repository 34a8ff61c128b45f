"""Attention: a soft look-up, in a plain form and a fast one.

q · kᵀ / √d  →  softmax  →  weighted sum of v                      (Vaswani et al. 2017, section 3.2)
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.cache import LayerCache
from regard.nn.dropout import dropped, takes_bits
from regard.nn.fp8 import heads8, takes_heads8
from regard.nn.gpu import TRITON
from regard.nn.linear import FusedLinear, Linear
from regard.nn.masks import Everything, Mask, Packed, TableMask
from regard.nn.positions import Rotation, rotate
from regard.nn.taps import Tap


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None, bias: Tensor | None = None) -> Tensor:
    """The weights of the keys for each query: B H T S. Rows sum to 1, or to 0 where everything is masked."""
    scores = q @ k.mT / math.sqrt(q.size(-1))  # section 3.2.1: unscaled, large q·k saturate the softmax
    if bias is not None:
        scores = scores + bias
    if mask is None:
        return scores.softmax(-1)
    low = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, low).softmax(-1).masked_fill(~mask, 0.0)


def plain_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float = 0.0) -> Tensor:
    """The equation, line by line: B H T K. With fewer key heads than query heads, neighbouring heads share one."""
    k, v = (shared.repeat_interleave(q.size(1) // k.size(1), 1) for shared in (k, v))
    weights = attention_weights(q, k, mask.dense(), mask.bias())
    return (dropped(weights, dropout) if dropout else weights) @ v


def fast_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float = 0.0) -> Tensor:
    """The same values from torch's fused kernels, which never write the T x S scores to memory.

    `dropout` is the fraction of the weights that is dropped; for training only.
    """
    if isinstance(mask, Packed) and not dropout and mask.has_kernel(q):
        return packed_attention(q, k, v, mask)
    if takes_bits(q, dropout):  # torch has no fused kernel for a CPU that drops weights
        return plain_attention(q, k, v, mask, dropout)
    if not dropout and takes_products(q, k, mask):
        return product_attention(q, k, v, mask.dense())
    grouped = q.size(1) != k.size(1)
    if grouped and q.is_cuda and q.size(2) == 1:  # heads that share keys become queries of one head, without a copy
        few = q.view(q.size(0), k.size(1), -1, q.size(3))  # B G H/G K
        return F.scaled_dot_product_attention(few, k, v, **mask.sdpa(q.dtype)).view(*q.shape[:3], v.size(3))
    return F.scaled_dot_product_attention(q, k, v, **mask.sdpa(q.dtype), dropout_p=dropout, enable_gqa=grouped)


LOG2, SAFE = math.log(2), 96.0  # 2 to this power, summed over so many keys, does not overflow
CACHED = 1 << 20  # scores computed at a time


def takes_products(q: Tensor, k: Tensor, mask: Mask) -> bool:
    """Whether `product_attention` is faster: on a CPU, for short texts, or for the few queries of many beams.

    torch's fused kernel calls the same products head by head, which is slow if they are small, and slower with several
    threads.
    """
    if q.device.type != "cpu" or q.dtype != torch.float or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    alone, heads, queries, keys = torch.get_num_threads() == 1, q.size(0) * q.size(1), q.size(2), k.size(2)
    longest = 128 if not alone else 64 if queries <= 8 else 32
    short = 1 < queries <= longest and keys <= longest and heads >= (64 if alone else 12)
    return short and q.size(1) == k.size(1) and mask.bias() is None


def product_attention(q: Tensor, k: Tensor, v: Tensor, table: Tensor | None) -> Tensor:
    """The plain form as products of all heads at once, with powers of 2, and without the maximum: no score may be so
    large that its power overflows, and if one is, the plain form itself is taken.

    19 texts of 26 tokens with 12 heads take 0.30 instead of 0.74 ms on two cores of an AMD EPYC. A step of 250
    sentences with 5 hypotheses takes 0.28 instead of 0.66 ms on one core with 10 keys, 0.42 instead of 0.56 with 20 and
    0.67 instead of 0.85 with 40.
    """
    B, H, T, K = q.shape
    texts = max(1, CACHED // (H * T * k.size(2)))
    if texts < B:
        parts = [slice(start, start + texts) for start in range(0, B, texts)]
        tables = [table if table is None or table.ndim < 4 or table.size(0) == 1 else table[part] for part in parts]
        return torch.cat([product_attention(q[p], k[p], v[p], own) for p, own in zip(parts, tables, strict=True)])
    flat_q, flat_k, flat_v = (x.flatten(0, 1) for x in (q, k, v))
    scores = torch.baddbmm(flat_q[:1, :1, :1], flat_q, flat_k.mT, beta=0, alpha=1 / (math.sqrt(K) * LOG2))  # B·H T S
    least, most = scores.aminmax()
    if not (least.item() > -SAFE and most.item() < SAFE):
        return attention_weights(q, k, table) @ v
    weights = scores.exp2_()
    if table is not None:
        weights.view(B, H, T, -1).mul_(table)
    y = torch.bmm(weights, flat_v)
    return y.div_(weights.sum(-1, keepdim=True).clamp_min_(torch.finfo(y.dtype).tiny)).view(B, H, T, -1)


def packed_attention(q: Tensor, k: Tensor, v: Tensor, mask: Packed) -> Tensor:
    """Attention within each document of a packed row, 1 H T K, at the square of its own length (Dao 2023).

    Needs 16-bit tensors on a GPU; no dropout.
    """
    from torch.nn.attention.varlen import varlen_attn

    q, k, v = (x.squeeze(0).transpose(0, 1) for x in (q, k, v))  # T H K: a view, and so is the gradient
    y: Any = varlen_attn(q, k, v, mask.starts, mask.starts, mask.longest, mask.longest)
    return y.transpose(0, 1)[None]  # 1 H T K


def packs(device: torch.device) -> bool:
    """Whether `packed_attention` runs on this device."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def has_kernel(q: Tensor) -> bool:
    """Whether we have a decoding kernel for this few queries per row, B H T K."""
    few = TRITON and q.is_cuda and q.size(2) <= 16 and q.size(3) in (16, 32, 64, 128)
    return few and not torch.is_grad_enabled()


def cached_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask, cache: LayerCache) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of new tokens to the cache and to each other, B H T K, and all keys and values so far, B H S K."""
    slots = cache.slots
    if isinstance(slots, Tensor) and has_kernel(q) and not mask.restricts:
        from regard.nn.decoding import few_queries, look_back

        seen = cache.keys[:, :, : cache.stop], cache.values[:, :, : cache.stop]
        if slots.ndim == 2 and q.size(2) == 1:
            return look_back(q, k, v, cache.keys, cache.values, slots), *seen
        if slots.ndim == 1 and q.size(1) == k.size(1) and isinstance(mask, TableMask):
            return few_queries(q, cache.keys, cache.values, mask.rows(q), (k, v, slots)), *seen
    k, v = cache.extend(k, v)
    return fast_attention(q, k, v, mask), k, v


@dataclass(frozen=True)
class Look:
    """What a watched attention records: references to q, k, v and the mask. Weights are computed on demand."""

    q: Tensor  # B H T K
    k: Tensor  # B H S K, or fewer heads, shared
    v: Tensor  # as k
    mask: Mask

    def weights(self) -> Tensor:
        k = self.k.repeat_interleave(self.q.size(1) // self.k.size(1), 1)
        return attention_weights(self.q.float(), k.float(), self.mask.dense(), self.mask.bias())  # B H T S


def split_heads(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)  # B T H·K -> B H T K


def merge_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)  # B H T K -> B T H·K


class SelfAttention(nn.Module):
    """Multi-head self-attention. Key and value widths are free; the usual choice is width/heads.

    With fewer `kv_heads` than `heads`, neighbouring heads share keys and values (Ainslie et al. 2023). A `rotation`
    rotates queries and keys by their positions (`positions.Rotary`). `out_bias` defaults to `bias`.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        key_width: int,
        value_width: int,
        kv_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        out_bias: bool | None = None,
    ):
        super().__init__()
        self.heads, self.kv_heads = heads, heads if kv_heads is None else kv_heads
        self.dropout = dropout
        self.widths = [heads * key_width, self.kv_heads * key_width, self.kv_heads * value_width]
        self.qkv = FusedLinear(width, self.widths, bias)
        self.out = Linear(heads * value_width, width, bias if out_bias is None else out_bias)
        self.look = Tap()

    def forward(
        self, x: Tensor, mask: Mask, cache: LayerCache | None = None, rotation: Rotation | None = None
    ) -> Tensor:
        width = self.widths[0] // self.heads
        if type(self.qkv) is FusedLinear and takes_heads8(self.qkv, width):
            q, k, v = heads8(x, self.qkv, width)
            return self.out(self.attend(q, k, v, mask, cache, rotation))
        return self.out(self.mix(self.qkv(x), mask, cache, rotation))  # B T D

    def mix(self, qkv: Tensor, mask: Mask, cache: LayerCache | None, rotation: Rotation | None) -> Tensor:
        """The heads' outputs, concatenated: queries, keys and values of B T -> B T H·K."""
        q, k, v = qkv.split(self.widths, -1)
        q, k, v = split_heads(q, self.heads), split_heads(k, self.kv_heads), split_heads(v, self.kv_heads)  # B H T K
        return self.attend(q, k, v, mask, cache, rotation)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, cache: LayerCache | None, rotation: Rotation | None
    ) -> Tensor:
        """`mix` for q, k and v already split into heads, B H T K."""
        q, k = self.placed(q, k, rotation)
        if cache is None:
            y = fast_attention(q, k, v, mask, self.dropout if self.training else 0.0)
        else:
            y, k, v = cached_attention(q, k, v, mask, cache)
        self.look.see(Look(q, k, v, mask))
        return merge_heads(y)

    def placed(self, q: Tensor, k: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor]:
        """Queries and keys, B H T K, rotated by their positions."""
        return (q, k) if rotation is None else (rotate(q, rotation), rotate(k, rotation))


class CrossAttention(nn.Module):
    """Multi-head attention of a sequence (queries) to another one, the memory (keys and values)."""

    def __init__(self, width: int, heads: int, key_width: int, value_width: int, bias: bool = True):
        super().__init__()
        self.heads = heads
        self.query = Linear(width, heads * key_width, bias)
        self.kv = FusedLinear(width, [heads * key_width, heads * value_width], bias)
        self.out = Linear(heads * value_width, width, bias)
        self.look = Tap()

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """B H S K each: computed once per source, however many tokens are decoded from it."""
        k, v = (split_heads(part, self.heads) for part in self.kv(memory).split(self.kv.parts, -1))
        return k, v

    def forward(self, x: Tensor, kv: tuple[Tensor, Tensor], mask: Mask) -> Tensor:
        q = split_heads(self.query(x), self.heads)  # B H T K
        self.look.see(Look(q, *kv, mask))
        return self.out(merge_heads(self.attend(q, *kv, mask)))  # B T D

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        if not has_kernel(q) or mask.restricts or not isinstance(mask, TableMask | Everything):
            return fast_attention(q, k, v, mask)
        from regard.nn.decoding import few_queries

        return few_queries(q, k, v, mask.rows(q) if isinstance(mask, TableMask) else None)


@dataclass(frozen=True)
class AdditiveLook:
    """`Look` for additive attention, which has a single head and its own scores."""

    q: Tensor  # B T A: W s
    k: Tensor  # B S A: U h
    v: Tensor  # B S M: the memory
    scores: Tensor  # B T S; the dtype's minimum where masked

    def weights(self) -> Tensor:
        return self.scores.float().softmax(-1)[:, None]  # B 1 T S


class AdditiveAttention(nn.Module):
    """Bahdanau et al. 2015: score(s, h) = vᵀ tanh(W s + U h), a small network instead of a dot product."""

    def __init__(self, query_width: int, memory_width: int, width: int):
        super().__init__()
        self.W = nn.Linear(query_width, width, bias=False)
        self.U = nn.Linear(memory_width, width)
        self.v = nn.Linear(width, 1, bias=False)
        self.look = Tap()

    def keys_for(self, memory: Tensor) -> Tensor:
        return self.U(memory)  # B S A, once per sentence

    def forward(self, query: Tensor, keys: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        """B T Q queries and B S A keys to the weighted sum of the memory for each query, B T M. `mask` is B 1 S."""
        q = self.W(query)  # B T A
        scores = self.v(torch.tanh(q[:, :, None] + keys[:, None])).squeeze(-1)  # B T S
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)  # B T S
        self.look.see(AdditiveLook(q, keys, memory, scores))
        return weights @ memory
