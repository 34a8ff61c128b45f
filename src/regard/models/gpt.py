"""GPT-2: masked self-attention that predicts the next token (Radford et al. 2019)."""

from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from regard.errors import ConfigError
from regard.models.base import Decoder, clear_padding_, padded
from regard.models.checks import check_model
from regard.nn.attention import SelfAttention
from regard.nn.blocks import Block, FeedForward, Norm, compute_dtype, dropout
from regard.nn.cache import Step
from regard.nn.init import gpt2_
from regard.nn.positions import ADDED, Alibi, Rotary

POSITIONS = ("learned", "none", "sinusoidal", "interleaved", "rotary", "alibi")


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    vocab: int
    width: int = 768
    layers: int = 12
    heads: int = 12
    ffn: int = 3072
    context: int = 1024
    dropout: float = 0.0
    positions: str = "learned"

    def __post_init__(self):
        check_model(self, positions=POSITIONS)
        if self.positions == "rotary" and self.head_width % 2:
            raise ConfigError(f"rotary positions need heads of even width, got {self.head_width}; change model.heads")

    @property
    def head_width(self) -> int:
        return self.width // self.heads


class GPT(Decoder):
    """Pre-norm layers and a norm at the end, GELU, tied embeddings."""

    def __init__(self, c: GPTConfig):
        super().__init__()
        self.config = c
        self.token = nn.Embedding(padded(c.vocab), c.width)
        self.place = ADDED[c.positions](c.context, c.width) if c.positions in ADDED else None
        self.rotary = Rotary(c.context, c.head_width) if c.positions == "rotary" else None
        self.alibi = Alibi(c.heads) if c.positions == "alibi" else None
        self.drop = dropout(c.dropout)
        self.blocks = cast("list[Block]", nn.ModuleList(self.block(c) for _ in range(c.layers)))
        self.norm = Norm(c.width)
        gpt2_(self, c.layers)
        clear_padding_(self)

    @staticmethod
    def block(c: GPTConfig) -> Block:
        attention = SelfAttention(c.width, c.heads, c.head_width, c.head_width, dropout=c.dropout)
        mlp = FeedForward(c.width, c.ffn, "gelu-tanh")
        return Block(Norm(c.width), attention, Norm(c.width), mlp, c.dropout)

    def forward(self, ids: Tensor, documents: Tensor | None = None, step: Step | None = None) -> Tensor:
        step = step or self.at_once(ids, documents)
        x = self.token(ids)  # B T D
        if self.place is not None:
            x = x + self.place(step.where)
        x = self.drop(compute_dtype(x))
        rotation = None if self.rotary is None else self.rotary(step.where)
        mask = step.mask if self.alibi is None else self.alibi(step.mask, step.where, step.keys)
        for block, cache in zip(self.blocks, step.caches, strict=True):
            x = block(x, mask, cache, rotation)  # B T D
        return self.norm(x)
