"""Gemma 3: a decoder with sliding-window layers, every sixth global (Gemma Team 2025)."""

import math
from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from regard.config import at_least
from regard.errors import ConfigError
from regard.models.base import Decoder, clear_padding_, padded
from regard.models.checks import check_model
from regard.models.llama import NormedAttention
from regard.nn.blocks import Block, GeGLU, RMSNorm, compute_dtype
from regard.nn.cache import LayerCache, Step
from regard.nn.init import gpt2_
from regard.nn.masks import Mask
from regard.nn.positions import Rotary, Rotation


@dataclass(frozen=True, kw_only=True)
class GemmaConfig:
    """The defaults are those of Gemma 3 270M."""

    vocab: int
    width: int = 640
    layers: int = 18
    heads: int = 4
    kv_heads: int = 1
    head_width: int = 256
    ffn: int = 2048
    context: int = 32768
    window: int = 512  # tokens a local layer attends to, including the token itself
    global_every: int = 6  # the last of this many layers is global
    theta: float = 1_000_000.0  # rotary base of the global layers
    local_theta: float = 10_000.0
    eps: float = 1e-6
    dropout: float = 0.0

    def __post_init__(self):
        check_model(self, {"head_width": 2}, split="")
        at_least(self, "model.", theta=1.0, local_theta=1.0)
        if self.heads % self.kv_heads:
            raise ConfigError(f"{self.heads} heads cannot share {self.kv_heads} key-value heads evenly")
        if self.head_width % 2:
            raise ConfigError(f"model.head_width is {self.head_width}; rotary positions need an even one")


class SandwichBlock(Block):
    """A norm before and after attention, and before and after the feed-forward network."""

    def __init__(self, c: GemmaConfig):
        before, after = ((RMSNorm(c.width, c.eps), RMSNorm(c.width, c.eps)) for _ in range(2))
        super().__init__(before[0], NormedAttention(c), before[1], GeGLU(c.width, c.ffn), c.dropout)
        self.norm1_after, self.norm2_after = after

    def forward(self, x: Tensor, mask: Mask, cache: LayerCache | None, rotation: Rotation | None) -> Tensor:
        x = x + self.drop(self.norm1_after(self.attention(self.norm1(x), mask, cache, rotation)))
        x = x + self.drop(self.norm2_after(self.mlp(self.norm2(x))))
        self.out.see(x)
        return x


class Gemma(Decoder):
    """Scaled embeddings, tied to the head; local layers have a smaller rotary base than global ones."""

    def __init__(self, c: GemmaConfig):
        super().__init__()
        self.config, self.scale = c, math.sqrt(c.width)
        self.token = nn.Embedding(padded(c.vocab), c.width)
        self.rotary = Rotary(c.context, c.head_width, c.theta)
        self.local_rotary = Rotary(c.context, c.head_width, c.local_theta)
        self.blocks = cast("list[Block]", nn.ModuleList(SandwichBlock(c) for _ in range(c.layers)))
        self.norm = RMSNorm(c.width, c.eps)
        gpt2_(self, c.layers)
        clear_padding_(self)

    def forward(self, ids: Tensor, documents: Tensor | None = None, step: Step | None = None) -> Tensor:
        step = step or self.at_once(ids, documents)
        x = compute_dtype(self.token(ids) * self.scale)  # B T D
        far = step.mask, self.rotary(step.where)
        near = step.within(self.config.window), self.local_rotary(step.where)
        for number, (block, cache) in enumerate(zip(self.blocks, step.caches, strict=True), 1):
            mask, rotation = near if number % self.config.global_every else far
            x = block(x, mask, cache, rotation)  # B T D
        return self.norm(x)
