"""Llama: the decoder of today (Touvron et al. 2023), with shared keys and values (Ainslie et al. 2023)."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from regard.config import at_least
from regard.errors import ConfigError
from regard.models.base import Decoder, clear_padding_, padded
from regard.models.checks import check_model
from regard.nn.attention import SelfAttention
from regard.nn.blocks import Block, RMSNorm, SwiGLU, compute_dtype, dropout
from regard.nn.cache import Past, Step, at_once
from regard.nn.init import gpt2_
from regard.nn.positions import Rotary, reach_


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
    tied: bool = True  # one table for words in and words out
    dropout: float = 0.0

    def __post_init__(self):
        check_model(self, {"head_width": 2}, split="")
        at_least(self, "model.", theta=1.0)
        if self.heads % self.kv_heads:
            raise ConfigError(
                f"{self.heads} heads cannot share {self.kv_heads} heads of keys evenly; "
                f"try --set model.heads={max(self.heads // self.kv_heads, 1) * self.kv_heads}"
            )
        if self.head_width % 2:
            raise ConfigError(f"rotations turn pairs, so model.head_width must be even, got {self.head_width}")


class Llama(Decoder):
    """RMS norms, rotated queries and keys, SwiGLU, no biases; heads share keys and values in groups."""

    def __init__(self, c: LlamaConfig):
        super().__init__()
        self.config = c
        self.token = nn.Embedding(padded(c.vocab), c.width)
        self.rotary = Rotary(c.context, c.head_width, c.theta)
        self.drop = dropout(c.dropout)
        self.blocks = cast("list[Block]", nn.ModuleList(self.block(c) for _ in range(c.layers)))
        self.norm = RMSNorm(c.width, c.eps)
        self.output = None if c.tied else nn.Parameter(torch.empty(padded(c.vocab), c.width))
        gpt2_(self, c.layers)
        clear_padding_(self)

    @staticmethod
    def block(c: LlamaConfig) -> Block:
        attention = SelfAttention(c.width, c.heads, c.head_width, c.head_width, c.kv_heads, bias=False)
        return Block(RMSNorm(c.width, c.eps), attention, RMSNorm(c.width, c.eps), SwiGLU(c.width, c.ffn), c.dropout)

    def forward(self, ids: Tensor, documents: Tensor | None = None, step: Step | None = None) -> Tensor:
        if step is None:
            self.check_length(ids.size(1))
            reach_(self, ids.size(1))
            step = at_once(ids, documents, len(self.blocks))
        x = self.drop(compute_dtype(self.token(ids)))  # B T D
        rotation = self.rotary(step.where)
        for block, cache in zip(self.blocks, step.caches, strict=True):
            x = block(x, step.mask, cache, rotation)  # B T D
        return self.norm(x)

    @property
    def head(self) -> Tensor:
        return self.token.weight if self.output is None else self.output

    def begin(self, rows: int, capacity: int) -> Past:
        c = self.config
        return self.new_past(c.layers, rows, c.kv_heads, c.head_width, capacity)
