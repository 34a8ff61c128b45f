"""BART: BERT's encoder and GPT's decoder, pre-trained to restore corrupted texts (Lewis et al. 2020)."""

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from regard.models.checks import check_model
from regard.models.transformer import Transformer
from regard.nn.blocks import ACTIVATIONS, DecoderLayer, Norm, PostNormDecoderLayer, PostNormEncoderLayer
from regard.nn.dropout import Dropout
from regard.nn.init import bert_
from regard.nn.positions import Learned


@dataclass(frozen=True, kw_only=True)
class BartConfig:
    """The defaults are those of the base size."""

    vocab: int = 50265
    width: int = 768
    encoder_layers: int = 6
    decoder_layers: int = 6
    heads: int = 12
    ffn: int = 3072
    dropout: float = 0.1
    activation: str = "gelu"
    max_length: int = 1024
    scaled: bool = False  # whether embeddings are multiplied by √width
    output_bias: bool = False
    start: int = 2  # the decoder's first id, which also ends a text

    def __post_init__(self):
        check_model(self, {"start": 0}, activation=ACTIVATIONS)


class Bart(Transformer):
    """The Transformer of 2017 with learned positions and a norm after the embeddings."""

    def __init__(self, c: BartConfig):
        super(Transformer, self).__init__()  # builds none of its parts
        self.config, self.scale = c, math.sqrt(c.width) if c.scaled else 1.0
        self.token = nn.Embedding(c.vocab, c.width)
        self.encoder_place: nn.Module = Learned(c.max_length, c.width)
        self.decoder_place: nn.Module = Learned(c.max_length, c.width)
        self.encoder_first_norm, self.decoder_first_norm = Norm(c.width), Norm(c.width)
        parts = (c.width, c.heads, c.ffn, c.dropout, c.activation)
        self.encoder = nn.ModuleList(PostNormEncoderLayer(*parts) for _ in range(c.encoder_layers))
        layers = nn.ModuleList(PostNormDecoderLayer(*parts) for _ in range(c.decoder_layers))
        self.decoder = cast("list[DecoderLayer]", layers)
        self.encoder_norm: nn.Module = nn.Identity()
        self.decoder_norm: nn.Module = nn.Identity()
        self.drop = Dropout(c.dropout)
        self.bias = nn.Parameter(torch.zeros(c.vocab)) if c.output_bias else None
        bert_(self)

    def placed(self, ids: Tensor, place: nn.Module, where: Tensor) -> Tensor:
        norm = self.encoder_first_norm if place is self.encoder_place else self.decoder_first_norm
        return norm(super().placed(ids, place, where))
