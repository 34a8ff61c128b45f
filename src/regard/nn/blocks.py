"""Attention and feed-forward, with residuals and norms: the grey boxes of figure 1 in Vaswani et al. 2017."""

from torch import Tensor, nn

from regard.nn.attention import CrossAttention, SelfAttention
from regard.nn.cache import LayerCache
from regard.nn.masks import Mask

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "swish": nn.SiLU, "gelu": nn.GELU}


class FeedForward(nn.Module):
    """Section 3.3: the same two-layer network for every position."""

    def __init__(self, width: int, ffn: int, activation: str):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(width, ffn), ACTIVATIONS[activation](), nn.Linear(ffn, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.act(self.up(x)))


class Norm(nn.LayerNorm):
    """Ba et al. 2016. Computed in fp32, handed on as it came: under bf16 the residual stream stays bf16."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).to(x.dtype)


class EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int, ffn: int, dropout: float, activation: str = "relu"):
        super().__init__()
        self.attention = SelfAttention(width, heads, width // heads, width // heads)
        self.norm1 = Norm(width)
        self.mlp = FeedForward(width, ffn, activation)
        self.norm2 = Norm(width)
        self.drop = nn.Dropout(dropout)


class PostNormEncoderLayer(EncoderLayer):
    """As printed in 2017: norm after each residual sum."""

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        x = self.norm1(x + self.drop(self.attention(x, mask)))
        return self.norm2(x + self.drop(self.mlp(x)))


class PreNormEncoderLayer(EncoderLayer):
    """Norm before each sub-layer; the residual stream itself is never normed (GPT-2, ViT)."""

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        x = x + self.drop(self.attention(self.norm1(x), mask))
        return x + self.drop(self.mlp(self.norm2(x)))


class DecoderLayer(nn.Module):
    def __init__(self, width: int, heads: int, ffn: int, dropout: float, activation: str = "relu"):
        super().__init__()
        self.attention = SelfAttention(width, heads, width // heads, width // heads)
        self.norm1 = Norm(width)
        self.cross = CrossAttention(width, heads, width // heads, width // heads)
        self.norm2 = Norm(width)
        self.mlp = FeedForward(width, ffn, activation)
        self.norm3 = Norm(width)
        self.drop = nn.Dropout(dropout)


class PostNormDecoderLayer(DecoderLayer):
    def forward(
        self, x: Tensor, mask: Mask, kv: tuple[Tensor, Tensor], memory_mask: Mask, cache: LayerCache | None
    ) -> Tensor:
        x = self.norm1(x + self.drop(self.attention(x, mask, cache)))
        x = self.norm2(x + self.drop(self.cross(x, kv, memory_mask)))
        return self.norm3(x + self.drop(self.mlp(x)))


class PreNormDecoderLayer(DecoderLayer):
    def forward(
        self, x: Tensor, mask: Mask, kv: tuple[Tensor, Tensor], memory_mask: Mask, cache: LayerCache | None
    ) -> Tensor:
        x = x + self.drop(self.attention(self.norm1(x), mask, cache))
        x = x + self.drop(self.cross(self.norm2(x), kv, memory_mask))
        return x + self.drop(self.mlp(self.norm3(x)))


ENCODER_LAYERS = {"post": PostNormEncoderLayer, "pre": PreNormEncoderLayer}
DECODER_LAYERS = {"post": PostNormDecoderLayer, "pre": PreNormDecoderLayer}
