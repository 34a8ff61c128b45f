"""Whisper (Radford et al. 2022): the encoder-decoder of 2017 whose source is 30 seconds of sound."""

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from regard.config import at_least, fraction
from regard.errors import ConfigError
from regard.models.base import EncoderDecoder, new_cache
from regard.models.transformer import TransformerState
from regard.nn.blocks import Norm, PreNormDecoderLayer, PreNormEncoderLayer, compute_dtype
from regard.nn.init import glorot_
from regard.nn.masks import Causal, Everything
from regard.nn.positions import Learned
from regard.nn.sound import SoundStem
from regard.shapes import check


@dataclass(frozen=True, kw_only=True)
class WhisperConfig:
    """The defaults are those of tiny.en."""

    vocab: int = 51864
    mels: int = 80
    width: int = 384
    encoder_layers: int = 4
    decoder_layers: int = 4
    heads: int = 6
    ffn: int = 1536
    dropout: float = 0.0
    places: int = 1500  # of the encoder, two frames each: 30 seconds
    max_length: int = 448  # pieces of the text

    def __post_init__(self):
        sizes = dict.fromkeys(("vocab", "mels", "encoder_layers", "decoder_layers", "heads", "ffn", "places"), 1)
        at_least(self, "model.", **sizes, width=4, max_length=2)
        fraction(self, "dropout", "model.")
        if self.width % self.heads or self.width % 2:
            raise ConfigError(f"width {self.width} cannot be shared by {self.heads} heads, or is odd")

    @property
    def frames(self) -> int:
        """Of the log-mel picture of one window."""
        return 2 * self.places


class Whisper(EncoderDecoder):
    """Figure 1: convolutions and encoder blocks over the sound, decoder blocks over the text, one table of words.

    Every window of sound is as long as any other, filled up with silence, so there are no lengths to mask.
    """

    places: Tensor

    def __init__(self, c: WhisperConfig):
        super().__init__()
        self.config, self.bias = c, None
        self.stem = SoundStem(c.mels, c.width)
        self.register_buffer("places", sines_then_cosines(c.places, c.width))  # published files hold it, rounded
        parts = (c.width, c.heads, c.ffn, c.dropout, "gelu")
        self.encoder = nn.ModuleList(PreNormEncoderLayer(*parts) for _ in range(c.encoder_layers))
        self.encoder_norm = Norm(c.width)
        self.token = nn.Embedding(c.vocab, c.width)
        self.decoder_place = Learned(c.max_length, c.width)
        layers = nn.ModuleList(PreNormDecoderLayer(*parts) for _ in range(c.decoder_layers))
        self.decoder = cast("list[PreNormDecoderLayer]", layers)
        self.decoder_norm = Norm(c.width)
        self.drop = nn.Dropout(c.dropout)
        glorot_(self)

    def forward(self, source: Tensor, lengths: Tensor | None, inputs: Tensor) -> Tensor:
        """B mels F frames and B T decoder inputs -> B T D."""
        memory = self.encode(source)
        self.check_length(inputs.size(1))
        where = torch.arange(inputs.size(1), device=inputs.device)
        x = self.drop(compute_dtype(self.token(inputs) + self.decoder_place(where)))  # B T D
        mask = Causal(inputs.size(1), inputs.device)
        for layer in self.decoder:
            x = layer(x, mask, layer.cross.keys_values(memory), Everything(), None)
        return self.decoder_norm(x)

    def encode(self, source: Tensor) -> Tensor:
        """B mels F -> B S D, where S is half of F."""
        check(source, "B mels F", mels=self.config.mels, F=self.config.frames)
        x = self.drop(compute_dtype(self.stem(source) + self.places))
        for layer in self.encoder:
            x = layer(x, Everything())
        return self.encoder_norm(x)

    def check_length(self, length: int) -> None:
        if length > self.config.max_length:
            raise ConfigError(f"a text of {length} pieces, but this model has {self.config.max_length} positions")

    def begin(self, source: Tensor, lengths: Tensor | None, beams: int, capacity: int) -> TransformerState:
        self.check_length(capacity)
        memory, c = self.encode(source), self.config
        cross = [layer.cross.keys_values(memory) for layer in self.decoder]
        cache = new_cache(c.decoder_layers, source.size(0), c.heads, capacity * beams, c.width // c.heads, memory)
        return TransformerState(cache, cross, Everything())

    def step(self, ids: Tensor, state: TransformerState) -> Tensor:
        slots, mask = state.grow()
        x = self.drop(self.token(ids) + self.decoder_place(state.time))  # B N D
        for i, layer in enumerate(self.decoder):
            x = layer(x, mask, state.cross[i], state.mask, state.cache.layer(i, slots, state.stop))
        state.time += 1
        return self.decoder_norm(x)


def sines_then_cosines(places: int, width: int) -> Tensor:
    """P D. Unlike those of 2017 the slowest wave is 10,000 times slower than the fastest, not nearly so."""
    rates = torch.exp(-math.log(10000) / (width // 2 - 1) * torch.arange(width // 2))
    angles = torch.arange(places)[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), 1)
