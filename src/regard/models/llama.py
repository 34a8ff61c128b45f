"""Llama (Touvron et al. 2023), with grouped-query attention (Ainslie et al. 2023).

Mistral (a window), Qwen2 (biases of q, k and v) and Qwen3 (norms of q and k) are Llama with one more setting.
"""

from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.config import at_least
from regard.errors import ConfigError
from regard.models.base import Decoder, clear_padding_, padded
from regard.models.checks import check_model
from regard.nn.attention import SelfAttention
from regard.nn.blocks import Block, RMSNorm, SwiGLU, compute_dtype, dropout
from regard.nn.cache import Step
from regard.nn.init import gpt2_
from regard.nn.positions import Rotary, Rotation, Stretch, StretchedRotary


@dataclass(frozen=True, kw_only=True)
class LlamaConfig:
    vocab: int
    width: int = 576
    layers: int = 30
    heads: int = 9
    kv_heads: int = 3
    head_width: int = 64
    ffn: int = 1536
    context: int = 2048
    theta: float = 10000.0  # the longest wave of the rotations is about 2π·theta tokens long
    eps: float = 1e-5
    tied: bool = True  # whether the head is the embedding table
    dropout: float = 0.0
    window: int = 0  # tokens attended to, including the token itself; 0: all
    qkv_bias: bool = False
    qk_norm: bool = False
    stretch: Stretch = field(default_factory=Stretch)

    def __post_init__(self):
        check_model(self, {"head_width": 2, "window": 0}, split="")
        at_least(self, "model.", theta=1.0)
        if self.heads % self.kv_heads:
            raise ConfigError(
                f"{self.heads} heads cannot share {self.kv_heads} key-value heads evenly; "
                f"try --set model.heads={max(self.heads // self.kv_heads, 1) * self.kv_heads}"
            )
        if self.head_width % 2:
            raise ConfigError(f"model.head_width is {self.head_width}; rotary positions need an even one")
        at_least(self.stretch, "model.stretch.", factor=1.0, context=1)
        if not 0 < self.stretch.low < self.stretch.high:
            raise ConfigError(
                f"model.stretch.low is {self.stretch.low} and high is {self.stretch.high}; must be 0 < low < high"
            )


class NormedAttention(SelfAttention):
    """Every head's queries and keys are normed before the rotation (Henry et al. 2020; Qwen3, Gemma 3)."""

    def __init__(self, c: Any, bias: bool = False):
        super().__init__(c.width, c.heads, c.head_width, c.head_width, c.kv_heads, bias=bias, out_bias=False)
        self.q_norm, self.k_norm = RMSNorm(c.head_width, c.eps), RMSNorm(c.head_width, c.eps)

    def placed(self, q: Tensor, k: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor]:
        return super().placed(self.q_norm(q), self.k_norm(k), rotation)


class Llama(Decoder):
    """RMS norms, rotary positions, SwiGLU; groups of heads share keys and values."""

    def __init__(self, c: LlamaConfig):
        super().__init__()
        self.config = c
        self.token = nn.Embedding(padded(c.vocab), c.width)
        stretched = c.stretch.factor > 1
        where = c.context, c.head_width, c.theta
        self.rotary = StretchedRotary(*where, c.stretch) if stretched else Rotary(*where)
        self.drop = dropout(c.dropout)
        self.blocks = cast("list[Block]", nn.ModuleList(self.block(c) for _ in range(c.layers)))
        self.norm = RMSNorm(c.width, c.eps)
        self.output = None if c.tied else nn.Parameter(torch.empty(padded(c.vocab), c.width))
        gpt2_(self, c.layers)
        clear_padding_(self)

    @staticmethod
    def block(c: LlamaConfig) -> Block:
        size = c.width, c.heads, c.head_width, c.head_width, c.kv_heads
        if c.qk_norm:
            attention: SelfAttention = NormedAttention(c, c.qkv_bias)
        else:
            attention = SelfAttention(*size, bias=c.qkv_bias, out_bias=False)
        return Block(RMSNorm(c.width, c.eps), attention, RMSNorm(c.width, c.eps), SwiGLU(c.width, c.ffn), c.dropout)

    def forward(self, ids: Tensor, documents: Tensor | None = None, step: Step | None = None) -> Tensor:
        step = step or self.at_once(ids, documents)
        x = self.drop(compute_dtype(self.token(ids)))  # B T D
        rotation, mask = self.rotary(step.where), step.within(self.config.window)
        for block, cache in zip(self.blocks, step.caches, strict=True):
            x = block(x, mask, cache, rotation)  # B T D
        return self.norm(x)

    @property
    def head(self) -> Tensor:
        return self.token.weight if self.output is None else self.output
