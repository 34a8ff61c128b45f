"""ModernBERT: an encoder for long texts, built like a current decoder (Warner et al. 2024)."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.config import at_least
from regard.errors import ConfigError
from regard.models.base import padded
from regard.models.bert import LABELLED, Bert, BertConfig
from regard.nn.attention import SelfAttention
from regard.nn.blocks import Block, ExactGeGLU, Norm, compute_dtype, dropout
from regard.nn.init import bert_
from regard.nn.masks import Mask, Window
from regard.nn.positions import Rotary, reach_
from regard.shapes import check

HEADS = ("none", "masked", *LABELLED)


@dataclass(frozen=True, kw_only=True)
class ModernBertConfig(BertConfig):
    """The defaults are those of the base size."""

    layers: int = 22
    ffn: int = 1152
    max_length: int = 8192
    types: int = 0
    dropout: float = 0.0
    attention_dropout: float = 0.0
    eps: float = 1e-5
    head: str = "none"
    family: str = "modernbert"
    window: int = 128  # tokens a local layer attends to, half of them on either side
    global_every: int = 3  # the first of this many layers is global
    theta: float = 160_000.0  # rotary base of the global layers
    local_theta: float = 10_000.0

    def __post_init__(self):
        super().__post_init__()
        at_least(self, "model.", theta=1.0, local_theta=1.0)
        only = {"types": (0,), "activation": ("gelu",), "family": ("modernbert",), "head": HEADS}
        for name, values in only.items():
            if getattr(self, name) not in values:
                raise ConfigError(f"model.{name} is {getattr(self, name)!r}; ModernBERT has {values[0]!r}")
        if self.width // self.heads % 2:
            raise ConfigError(f"rotary positions need heads of even width, got {self.width // self.heads}")


class ModernHead(nn.Module):
    """One more layer before the token or class logits."""

    def __init__(self, c: ModernBertConfig):
        super().__init__()
        self.dense, self.act = nn.Linear(c.width, c.width, bias=False), nn.GELU()
        self.norm = Norm(c.width, c.eps, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.act(self.dense(x)))


class WordBias(nn.Module):
    """The bias of the masked-word head. Its layer is the pooler, so that fine-tuning starts from it."""

    def __init__(self, words: int):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(words))


class ModernBert(Bert):
    """Normed embeddings, then pre-norm layers with rotary positions and GeGLU, without biases. Heads as in `Bert`."""

    def __init__(self, c: ModernBertConfig):
        nn.Module.__init__(self)
        self.config = c
        self.token = nn.Embedding(padded(c.vocab), c.width)
        self.norm, self.drop = Norm(c.width, c.eps, bias=False), dropout(c.dropout)
        self.rotary = Rotary(c.max_length, c.width // c.heads, c.theta)
        self.local_rotary = Rotary(c.max_length, c.width // c.heads, c.local_theta)
        self.layers = cast("Any", nn.ModuleList(self.block(c, number) for number in range(c.layers)))
        self.final_norm = Norm(c.width, c.eps, bias=False)
        self.window, self.global_every = c.window, c.global_every
        self.place = self.sentence = self.next = cast("Any", None)
        self.pooler = cast("Any", None if c.head == "none" else ModernHead(c))
        self.masked = cast("Any", WordBias(padded(c.vocab)) if c.head == "masked" else None)
        self.classifier = nn.Linear(c.width, len(c.labels)) if c.labels else None
        bert_(self)
        with torch.no_grad():
            self.token.weight[c.vocab :] = 0.0

    @staticmethod
    def block(c: ModernBertConfig, number: int) -> Block:
        """The first layer has no norm: the embeddings are already normed."""
        size = c.width // c.heads
        attention = SelfAttention(c.width, c.heads, size, size, bias=False, dropout=c.attention_dropout)
        first = Norm(c.width, c.eps, bias=False) if number else nn.Identity()
        return Block(first, attention, Norm(c.width, c.eps, bias=False), ExactGeGLU(c.width, c.ffn), c.dropout)

    def forward(
        self,
        ids: Tensor,
        lengths: Tensor | None = None,
        sentences: Tensor | None = None,
        starts: Tensor | None = None,
        kept: list[Tensor] | None = None,
    ) -> Tensor:
        """As `Bert.forward`; `sentences` are ignored."""
        check(ids, "B T")
        where, mask = self.places(ids, lengths, starts)
        reach_(self, ids.size(1))
        far, near = (mask, self.rotary(where)), (self.nearby(mask, where), self.local_rotary(where))
        x = self.drop(self.norm(compute_dtype(self.token(ids))))  # B T D
        for number, layer in enumerate(self.layers):
            if kept is not None:
                kept.append(x)
            mask, rotation = near if number % self.global_every else far
            x = layer(x, mask, None, rotation)  # B T D
        x = self.final_norm(x)
        if kept is not None:
            kept.append(x)
        return x

    def words(self, hidden: Tensor) -> Tensor:
        self.needed(self.masked, "masked-word head")
        return self.pooled(hidden)

    def nearby(self, mask: Mask, where: Tensor) -> Mask:
        """The mask of local layers."""
        reach = self.window // 2 + 1
        return Window(mask, where, where, reach) if reach < len(where) else mask
