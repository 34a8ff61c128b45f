"""T5: every task is text to text (Raffel et al. 2020). An encoder-decoder with relative positions only."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from regard.models.base import EncoderDecoder, new_cache
from regard.models.checks import check_model
from regard.models.transformer import TransformerState
from regard.nn.attention import CrossAttention, SelfAttention
from regard.nn.blocks import Block, FeedForward, GeGLU, PreNormDecoderLayer, RMSNorm, compute_dtype, dropout
from regard.nn.dropout import Dropout
from regard.nn.init import gpt2_
from regard.nn.masks import Causal, Everything, Lengths, Mask
from regard.nn.positions import RelativeBias
from regard.shapes import check

FORWARD = ("relu", "gated-gelu")


@dataclass(frozen=True, kw_only=True)
class T5Config:
    vocab: int
    width: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    heads: int = 8
    head_width: int = 64
    ffn: int = 2048
    forward: str = "relu"  # the feed-forward network; gated in T5 1.1 and FLAN-T5
    dropout: float = 0.1
    buckets: int = 32  # distinct relative distances
    furthest: int = 128  # from here on all distances share a bucket
    eps: float = 1e-6
    tied: bool = True  # whether the head is the embedding table; not in T5 1.1 and FLAN-T5

    def __post_init__(self):
        check_model(self, {"buckets": 4}, split="", forward=FORWARD)


def feed_forward(c: T5Config) -> nn.Module:
    return GeGLU(c.width, c.ffn) if c.forward == "gated-gelu" else FeedForward(c.width, c.ffn, "relu", bias=False)


class T5DecoderLayer(PreNormDecoderLayer):
    """RMS norms, and no biases."""

    def __init__(self, c: T5Config):
        nn.Module.__init__(self)
        size = c.width, c.heads, c.head_width, c.head_width
        self.attention, self.norm1 = SelfAttention(*size, bias=False), RMSNorm(c.width, c.eps)
        self.cross, self.norm2 = CrossAttention(*size, bias=False), RMSNorm(c.width, c.eps)
        self.mlp, self.norm3 = feed_forward(c), RMSNorm(c.width, c.eps)
        self.drop = Dropout(c.dropout)


class T5(EncoderDecoder):
    """Section 2.1: pre-norm layers without biases; a bias for each distance, shared by all layers of a side."""

    bias = None

    def __init__(self, c: T5Config):
        super().__init__()
        self.config = c
        self.token = nn.Embedding(c.vocab, c.width)
        self.encoder_bias = RelativeBias(c.heads, c.buckets, c.furthest, both_ways=True)
        self.decoder_bias = RelativeBias(c.heads, c.buckets, c.furthest, both_ways=False)
        self.encoder = nn.ModuleList(self.encoder_layer(c) for _ in range(c.encoder_layers))
        layers = nn.ModuleList(T5DecoderLayer(c) for _ in range(c.decoder_layers))
        self.decoder = cast("list[T5DecoderLayer]", layers)
        self.encoder_norm, self.decoder_norm = RMSNorm(c.width, c.eps), RMSNorm(c.width, c.eps)
        self.drop = dropout(c.dropout)
        self.output = None if c.tied else nn.Parameter(torch.empty(c.vocab, c.width))
        self.scale = c.width**-0.5 if c.tied else 1.0  # of the head's input
        gpt2_(self, c.encoder_layers + c.decoder_layers)

    @staticmethod
    def encoder_layer(c: T5Config) -> Block:
        attention = SelfAttention(c.width, c.heads, c.head_width, c.head_width, bias=False)
        return Block(RMSNorm(c.width, c.eps), attention, RMSNorm(c.width, c.eps), feed_forward(c), c.dropout)

    @property
    def head(self) -> Tensor:
        return self.token.weight if self.output is None else self.output  # V D

    def forward(self, source: Tensor, lengths: Tensor | None, inputs: Tensor) -> Tensor:
        memory, memory_mask = self.encode(source, lengths)
        x = self.drop(compute_dtype(self.token(inputs)))  # B T D
        where = torch.arange(inputs.size(1), device=inputs.device)
        mask = self.decoder_bias(Causal(inputs.size(1), inputs.device), where, where)
        for layer in self.decoder:
            x = layer(x, mask, layer.cross.keys_values(memory), memory_mask, None)  # B T D
        return self.scale * self.drop(self.decoder_norm(x))

    def encode(self, source: Tensor, lengths: Tensor | None) -> tuple[Tensor, Mask]:
        check(source, "B S")
        real = Everything() if lengths is None else Lengths(lengths, source.size(1))
        where = torch.arange(source.size(1), device=source.device)
        mask = self.encoder_bias(real, where, where)
        x = self.drop(compute_dtype(self.token(source)))  # B S D
        for layer in self.encoder:
            x = layer(x, mask, None, None)
        return self.drop(self.encoder_norm(x)), real

    def begin(self, source: Tensor, lengths: Tensor | None, beams: int, capacity: int) -> "T5State":
        memory, mask = self.encode(source, lengths)
        cross = [layer.cross.keys_values(memory) for layer in self.decoder]
        c = self.config
        cache = new_cache(c.decoder_layers, source.size(0), c.heads, capacity * beams, c.head_width, memory)
        return T5State(cache, cross, mask)

    def step(self, ids: Tensor, state: "T5State") -> Tensor:
        slots, mask = state.grow()
        mask = self.decoder_bias(mask, state.time, state.places[: state.stop])
        x = self.drop(compute_dtype(self.token(ids)))  # B N D
        for i, layer in enumerate(self.decoder):
            x = layer(x, mask, state.cross[i], state.mask, state.cache.layer(i, slots, state.stop))
        state.time += 1
        return self.scale * self.drop(self.decoder_norm(x))


class T5State(TransformerState):
    """A `TransformerState` that also keeps the position of each key."""

    def __init__(self, *parts):
        super().__init__(*parts)
        self.places = torch.zeros_like(self.ancestors[0, 0], dtype=torch.long)  # S

    def grow(self) -> tuple[Tensor | slice, Mask]:
        slots, mask = super().grow()
        self.places[slots] = self.time
        return slots, mask
