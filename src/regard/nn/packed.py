"""Models for inference on a CPU: the same values, faster.

Weights are packed once for the CPU's kernels, not at every call, and a layer takes fewer calls for one short text.
"""

import copy
import math
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from regard.nn.attention import SelfAttention
from regard.nn.blocks import FeedForward, PostNormEncoderLayer
from regard.nn.half import HalfLinear
from regard.nn.linear import OPS, PLAIN, by_onednn, head_of
from regard.nn.masks import Everything, Mask
from regard.nn.quantised import Int8Linear

M = TypeVar("M", bound=nn.Module)
SHORT = 64  # tokens of a text whose attention is faster by plain products


class PackedLinear(nn.Module):
    """x Wᵀ + b, for inference; `then`, "gelu" or "relu", is computed with it. Holds no parameters."""

    def __init__(self, weight: Tensor, bias: Tensor | None, then: str = "none"):
        super().__init__()
        self.then, self.bias = then, None if bias is None else bias.detach()
        self.parts = [len(weight)]  # as a FusedLinear has
        self.weight: Any = OPS._reorder_linear_weight(weight.detach().contiguous())

    @classmethod
    def of(cls, linear: nn.Linear, then: str = "none") -> "PackedLinear":
        made = cls(linear.weight, linear.bias, then)
        made.parts = getattr(linear, "parts", made.parts)
        return made

    def forward(self, x: Tensor) -> Tensor:
        return by_onednn(x, self.weight, self.bias, self.then)


class PackedLayer(nn.Module):
    """A `PostNormEncoderLayer` for inference: for one short text, its ops and nothing else.

    MiniLM then takes 10 % less time for a sentence.
    """

    def __init__(self, layer: PostNormEncoderLayer):
        super().__init__()
        self.plain, self.heads = layer, layer.attention.heads
        parts: Any = layer.attention.qkv, layer.attention.out, layer.mlp.up, layer.mlp.act, layer.mlp.down
        self.qkv, self.mixed, self.up, self.act, self.down = (part.forward for part in parts)
        self.norm1, self.norm2 = ((n.normalized_shape, n.weight, n.bias, n.eps) for n in (layer.norm1, layer.norm2))

    @staticmethod
    def takes(layer: nn.Module) -> bool:
        if type(layer) is not PostNormEncoderLayer or type(layer.attention) is not SelfAttention:
            return False
        return type(layer.mlp) is FeedForward and len(set(layer.attention.widths)) == 1

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        if len(x) > 1 or x.size(1) > SHORT or not isinstance(mask, Everything):
            return self.plain(x, mask)
        y = short_attention(self.qkv(x), self.heads)
        x = torch.layer_norm(self.mixed(y).add_(x), *self.norm1)
        y = self.down(self.act(self.up(x)))
        return torch.layer_norm(y.add_(x), *self.norm2)


def short_attention(qkv: Tensor, heads: int) -> Tensor:
    """Attention of a text to itself, 1 T 3·D -> 1 T D. For few tokens torch's fused kernel takes longer."""
    q, k, v = qkv[0].unflatten(-1, (3, heads, -1)).permute(1, 2, 0, 3)  # H T K
    weights = torch.baddbmm(q[:1, :1, :1], q, k.mT, beta=0, alpha=1 / math.sqrt(q.size(-1))).softmax(-1)
    return torch.bmm(weights, v).transpose(0, 1).flatten(1)[None]


def packed(model: M) -> M:
    """A copy of `model` for inference. It shares all but the linear layers, and does not see later changes to those."""
    shared: dict[int, Any] = {id(t): t for t in (*model.parameters(), *model.buffers())}
    shared |= {id(m): m for m in model.modules() if isinstance(m, HalfLinear | Int8Linear)}
    twin = copy.deepcopy(model, shared)
    pack_(twin)
    return twin


def pack_(model: nn.Module) -> None:
    """Pack the linear layers of `model` in place, and the head of a text generator, for inference only: it can no
    longer be trained or saved."""
    for part in list(model.modules()):
        if isinstance(part, FeedForward) and isinstance(part.up, nn.Linear) and (then := fused(part.act)):
            part.set_submodule("up", PackedLinear.of(part.up, then))
            part.set_submodule("act", nn.Identity())
    linears = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    for name, linear in linears.items():
        if type(linear).forward in PLAIN:
            model.set_submodule(name, PackedLinear.of(linear))
    for name, layer in list(model.named_modules()):
        if name and PackedLayer.takes(layer):
            model.set_submodule(name, PackedLayer(layer))  # pyrefly: ignore[bad-argument-type]
    lm: Any = model
    if getattr(model, "stored_head", model) is None:
        lm.stored_head = PackedLinear(*head_of(lm))


def fused(act: nn.Module) -> str:
    """The name of an activation that oneDNN computes with the product before it, or ""."""
    if isinstance(act, nn.GELU):
        return "gelu" if act.approximate == "none" else ""
    return "relu" if isinstance(act, nn.ReLU) else ""
