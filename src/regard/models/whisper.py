"""Whisper (Radford et al. 2022): the encoder-decoder of 2017, whose source is 30 seconds of audio."""

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.models.checks import check_model
from regard.models.transformer import Transformer
from regard.nn.audio import AudioStem
from regard.nn.blocks import DecoderLayer, Norm, PreNormDecoderLayer, PreNormEncoderLayer, compute_dtype
from regard.nn.dropout import Dropout
from regard.nn.init import glorot_
from regard.nn.masks import Everything, Mask
from regard.nn.positions import Learned
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
    places: int = 1500  # encoder positions, two frames each: 30 seconds
    max_length: int = 448  # tokens of the text

    def __post_init__(self):
        check_model(self, {"width": 4, "max_length": 2})
        if self.width % 2:
            raise ConfigError(f"width {self.width} is odd; must be even, for half sines and half cosines")

    @property
    def frames(self) -> int:
        """Frames of the spectrogram of one window."""
        return 2 * self.places


class Whisper(Transformer):
    """Figure 1: convolutions and encoder blocks over the audio, decoder blocks over the text, tied embeddings.

    Every window is padded with silence to the same length, so there is nothing to mask.
    """

    places: Tensor

    def __init__(self, c: WhisperConfig):
        super(Transformer, self).__init__()  # builds none of its parts: the encoder differs
        self.config, self.bias, self.scale = c, None, 1.0
        self.stem = AudioStem(c.mels, c.width)
        self.register_buffer("places", sines_then_cosines(c.places, c.width))  # published files hold it, rounded
        parts = (c.width, c.heads, c.ffn, c.dropout, "gelu")
        self.encoder = nn.ModuleList(PreNormEncoderLayer(*parts) for _ in range(c.encoder_layers))
        self.encoder_norm = Norm(c.width)
        self.token = nn.Embedding(c.vocab, c.width)
        self.decoder_place = Learned(c.max_length, c.width)
        layers = nn.ModuleList(PreNormDecoderLayer(*parts) for _ in range(c.decoder_layers))
        self.decoder = cast("list[DecoderLayer]", layers)
        self.decoder_norm = Norm(c.width)
        self.drop = Dropout(c.dropout)
        glorot_(self)

    def encode(self, source: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Mask]:
        """B mels F -> B S D, where S is half of F, and no mask."""
        check(source, "B mels F", mels=self.config.mels, F=self.config.frames)
        x = self.drop(compute_dtype(self.stem(source) + self.places))
        for layer in self.encoder:
            x = layer(x, Everything())
        return self.encoder_norm(x), Everything()


def sines_then_cosines(places: int, width: int) -> Tensor:
    """P D. Unlike in 2017, the lowest frequency is exactly 10,000 times lower than the highest."""
    rates = torch.exp(-math.log(10000) / (width // 2 - 1) * torch.arange(width // 2))
    angles = torch.arange(places)[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), 1)
