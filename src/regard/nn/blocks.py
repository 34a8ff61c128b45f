"""Attention and feed-forward, with residuals and norms: the grey boxes of figure 1 in Vaswani et al. 2017."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.attention import CrossAttention, SelfAttention
from regard.nn.cache import LayerCache
from regard.nn.dropout import Dropout
from regard.nn.fused import (
    add_norm,
    add_then_norm,
    add_times_,
    decodes,
    feed_forward,
    few,
    linear_act,
    norm_moved,
    row_times,
    times,
)
from regard.nn.linear import FusedLinear, Linear
from regard.nn.masks import Mask
from regard.nn.positions import Rotation
from regard.nn.taps import Tap


class QuickGELU(nn.Module):
    """Hendrycks and Gimpel 2016, section 2: the cheaper form, used by CLIP."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "swish": nn.SiLU,
    "gelu": nn.GELU,
    "gelu-tanh": partial(nn.GELU, approximate="tanh"),  # GPT-2's
    "quick-gelu": QuickGELU,
}


class FeedForward(nn.Module):
    """Section 3.3: the same two-layer network for every position."""

    def __init__(self, width: int, ffn: int, activation: str, bias: bool = True):
        super().__init__()
        self.up, self.down = Linear(width, ffn, bias), Linear(ffn, width, bias)
        self.act = ACTIVATIONS[activation]()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return feed_forward(x, self.up, self.act, self.down, self.activation)


class Norm(nn.LayerNorm):
    """Ba et al. 2016. Computed in fp32, returned in the input's dtype: under bf16 the residual stream stays bf16."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).to(x.dtype)


class RMSNorm(nn.RMSNorm):
    """Zhang and Sennrich 2019: no mean subtracted, no bias. Precision as in `Norm`."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)


class SwiGLU(nn.Module):
    """Shazeer 2020: one projection, through swish, gates the other."""

    def __init__(self, width: int, ffn: int, bias: bool = False):
        super().__init__()
        self.up, self.down = FusedLinear(width, [ffn, ffn], bias), Linear(ffn, width, bias)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.up(x).chunk(2, -1)
        return self.down(self.act(gate) * up)

    def act(self, gate: Tensor) -> Tensor:
        return F.silu(gate)


class GeGLU(SwiGLU):
    """The same with GELU, in T5's and Gemma's tanh approximation."""

    def act(self, gate: Tensor) -> Tensor:
        return F.gelu(gate, approximate="tanh")


class ExactGeGLU(SwiGLU):
    """The same with exact GELU, as in ModernBERT."""

    def act(self, gate: Tensor) -> Tensor:
        return F.gelu(gate)


def dropout(p: float) -> nn.Module:
    return Dropout(p) if p else nn.Identity()


def compute_dtype(x: Tensor) -> Tensor:
    """The sum of embeddings in the dtype of the layers that follow."""
    device_type = x.device.type
    return x.to(torch.get_autocast_dtype(device_type)) if torch.is_autocast_enabled(device_type) else x


class Block(nn.Module):
    """One pre-norm layer of a decoder-only model, from its parts; the residual stream itself is never normed."""

    def __init__(self, norm1: nn.Module, attention: SelfAttention, norm2: nn.Module, mlp: nn.Module, drop: float):
        super().__init__()
        self.norm1, self.attention, self.norm2 = norm1, attention, norm2
        self.mlp: Any = mlp
        self.drop, self.out = dropout(drop), Tap()
        self.is_gpt2 = isinstance(norm1, nn.LayerNorm) and getattr(mlp, "activation", "") == "gelu-tanh"

    def few(self, x: Tensor, mask: Mask, cache: LayerCache | None, rotation: Rotation | None) -> Tensor:
        """`forward` for the few rows of decoding, in five kernels instead of eleven."""
        qkv = row_times(x, self.attention.qkv, self.norm1)
        x = row_times(self.attention.mix(qkv, mask, cache, rotation), self.attention.out, residual=x)
        hidden = row_times(x, self.mlp.up, self.norm2, gelu=True)
        x = row_times(hidden, self.mlp.down, residual=x)
        self.out.see(x)
        return x

    def many(self, x: Tensor, mask: Mask, cache: LayerCache | None, rotation: Rotation | None) -> Tensor:
        """`forward` for more rows, in seven kernels: the residual sum or GELU is the product's epilogue."""
        y, x = norm_moved(x, self.norm1, self.attention.out.bias)
        heads = self.attention.mix(times(y, self.attention.qkv), mask, cache, rotation)
        x = add_times_(x, heads, self.attention.out.weight)
        y, x = norm_moved(x, self.norm2, self.mlp.down.bias)
        x = add_times_(x, linear_act(y, self.mlp.up, "gelu-tanh"), self.mlp.down.weight)
        self.out.see(x)
        return x

    def forward(self, x: Tensor, mask: Mask, cache: LayerCache | None, rotation: Rotation | None) -> Tensor:
        if (
            self.is_gpt2
            and not self.training
            and decodes(x, self.attention.qkv, self.attention.out, self.mlp.up, self.mlp.down)
        ):
            return (self.few if few(x) else self.many)(x, mask, cache, rotation)
        x, y = add_then_norm(x, self.attention(self.norm1(x), mask, cache, rotation), self.drop, self.norm2)
        x = x + self.drop(self.mlp(y))
        self.out.see(x)
        return x


class EncoderLayer(nn.Module):
    def __init__(
        self,
        width: int,
        heads: int,
        ffn: int,
        dropout: float,
        activation: str = "relu",
        eps: float = 1e-5,
        attention_dropout: float = 0.0,
    ):
        super().__init__()
        self.attention = SelfAttention(width, heads, width // heads, width // heads, dropout=attention_dropout)
        self.norm1 = Norm(width, eps)
        self.mlp: Any = FeedForward(width, ffn, activation)
        self.norm2 = Norm(width, eps)
        self.drop, self.out = Dropout(dropout), Tap()


class PostNormEncoderLayer(EncoderLayer):
    """As printed in 2017: norm after each residual sum. BERT's too."""

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        x = add_norm(x, self.attention(x, mask), self.drop, self.norm1)
        x = add_norm(x, self.mlp(x), self.drop, self.norm2)
        self.out.see(x)
        return x


class PreNormEncoderLayer(EncoderLayer):
    """Norm before each sub-layer; the residual stream itself is never normed (GPT-2, ViT)."""

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        x, y = add_then_norm(x, self.attention(self.norm1(x), mask), self.drop, self.norm2)
        x = x + self.drop(self.mlp(y))
        self.out.see(x)
        return x


class DecoderLayer(nn.Module):
    def __init__(self, width: int, heads: int, ffn: int, dropout: float, activation: str = "relu"):
        super().__init__()
        self.attention = SelfAttention(width, heads, width // heads, width // heads)
        self.norm1: nn.Module = Norm(width)
        self.cross = CrossAttention(width, heads, width // heads, width // heads)
        self.norm2: nn.Module = Norm(width)
        self.mlp: nn.Module = FeedForward(width, ffn, activation)
        self.norm3: nn.Module = Norm(width)
        self.drop = Dropout(dropout)


class PostNormDecoderLayer(DecoderLayer):
    def forward(
        self, x: Tensor, mask: Mask, kv: tuple[Tensor, Tensor], memory_mask: Mask, cache: LayerCache | None
    ) -> Tensor:
        x = add_norm(x, self.attention(x, mask, cache), self.drop, self.norm1)
        x = add_norm(x, self.cross(x, kv, memory_mask), self.drop, self.norm2)
        return add_norm(x, self.mlp(x), self.drop, self.norm3)


class PreNormDecoderLayer(DecoderLayer):
    def forward(
        self, x: Tensor, mask: Mask, kv: tuple[Tensor, Tensor], memory_mask: Mask, cache: LayerCache | None
    ) -> Tensor:
        x, y = add_then_norm(x, self.attention(self.norm1(x), mask, cache), self.drop, self.norm2)
        x, y = add_then_norm(x, self.cross(y, kv, memory_mask), self.drop, self.norm3)
        return x + self.drop(self.mlp(y))


ENCODER_LAYERS = {"post": PostNormEncoderLayer, "pre": PreNormEncoderLayer}
DECODER_LAYERS = {"post": PostNormDecoderLayer, "pre": PreNormDecoderLayer}
