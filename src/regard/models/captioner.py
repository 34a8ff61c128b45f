"""From an image to a sentence: the encoder reads patches instead of tokens, the decoders are those of translation."""

import math
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.models.base import EncoderDecoder
from regard.models.checks import check_model
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Transformer, without_last
from regard.models.vit import ViT, ViTConfig
from regard.nn.attention import AdditiveAttention
from regard.nn.blocks import DecoderLayer, Norm, PostNormDecoderLayer, PreNormDecoderLayer
from regard.nn.dropout import Dropout
from regard.nn.init import glorot_
from regard.nn.masks import Everything, Mask
from regard.nn.positions import Learned, Sinusoidal
from regard.nn.recurrent import FAST_CELLS


def vision(c: Any, width: int, dropout: float, pool: str = "token") -> ViTConfig:
    """The encoder of a captioner."""
    shared = {name: getattr(c, name) for name in ("image", "channels", "patch", "stem", "heads", "ffn", "mean", "std")}
    return ViTConfig(**shared, width=width, layers=c.encoder_layers, dropout=dropout, pool=pool, labels=())


@dataclass(frozen=True, kw_only=True)
class CaptionerConfig:
    vocab: int
    image: int = 96
    channels: int = 3
    patch: int = 8
    stem: str = "patch"
    width: int = 256
    encoder_layers: int = 6
    decoder_layers: int = 3
    heads: int = 4
    ffn: int = 1024
    dropout: float = 0.1
    max_length: int = 64  # tokens of a caption
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)

    def __post_init__(self):
        check_model(self)
        self.encoder  # noqa: B018 - whose own checks cover the rest

    @property
    def encoder(self) -> ViTConfig:
        return vision(self, self.width, self.dropout)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.encoder.shape


class Captioner(Transformer):
    """A ViT and the decoder of 2017, every layer of which attends to all patches."""

    def __init__(self, c: CaptionerConfig):
        super(Transformer, self).__init__()  # builds none of its parts: the encoder differs
        self.config = c
        self.scale = math.sqrt(c.width)
        self.vision = ViT(c.encoder)
        self.token = nn.Embedding(c.vocab, c.width, padding_idx=c.vocab - 1)
        self.decoder_place = Sinusoidal(c.max_length, c.width)
        layers = nn.ModuleList(
            PostNormDecoderLayer(c.width, c.heads, c.ffn, c.dropout) for _ in range(c.decoder_layers)
        )
        self.decoder = cast("list[DecoderLayer]", layers)
        self.decoder_norm: nn.Module = nn.Identity()
        self.drop, self.bias = Dropout(c.dropout), None
        glorot_(self)
        self.token.weight.register_hook(without_last)

    def encode(self, source: Tensor, lengths: Tensor | None) -> tuple[Tensor, Mask]:
        """B C P P pixels -> B T D, and no mask."""
        return self.vision(source), Everything()


@dataclass(frozen=True, kw_only=True)
class GPTCaptionerConfig(CaptionerConfig):
    """`vocab` counts one token more than GPT-2's table: padding, which the decoder reads first."""

    start: int  # the token before a caption: GPT-2's end of text
    eps: float = 1e-12  # of the encoder's norms
    max_length: int = 1024

    @property
    def encoder(self) -> ViTConfig:
        return replace(super().encoder, eps=self.eps)


class StartEmbedding(nn.Embedding):
    """Looks up padding, the last token, as the start token."""

    def __init__(self, words: int, width: int, start: int):
        super().__init__(words, width)
        self.start = start

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.masked_fill(input == self.num_embeddings - 1, self.start))


class GPTCaptioner(Captioner):
    """A ViT and GPT-2's layers, each with cross-attention to all patches, as in published captioners."""

    def __init__(self, c: GPTCaptionerConfig):
        super(Transformer, self).__init__()  # as above
        self.config, self.scale = c, 1.0
        self.vision = ViT(c.encoder)
        self.token = StartEmbedding(c.vocab, c.width, c.start)
        self.decoder_place = Learned(c.max_length, c.width)
        parts = (c.width, c.heads, c.ffn, c.dropout, "gelu-tanh")
        self.decoder = cast(
            "list[DecoderLayer]", nn.ModuleList(PreNormDecoderLayer(*parts) for _ in range(c.decoder_layers))
        )
        self.decoder_norm: nn.Module = Norm(c.width)
        self.drop = Dropout(c.dropout)
        never = torch.zeros(c.vocab).index_fill(0, torch.tensor([c.vocab - 1]), -1e9)  # never generate padding
        self.register_buffer("bias", never, persistent=False)
        glorot_(self)


@dataclass(frozen=True, kw_only=True)
class ShowAttendTellConfig:
    vocab: int
    image: int = 96
    channels: int = 3
    patch: int = 8
    stem: str = "conv"
    regions: int = 256  # width of the encoder
    encoder_layers: int = 4
    heads: int = 4
    ffn: int = 512
    cell: str = "lstm"
    embedding: int = 256
    width: int = 512
    dropout: float = 0.3
    max_length: int = 64
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)

    def __post_init__(self):
        check_model(self, split="regions", cell=FAST_CELLS)
        self.encoder  # noqa: B018 - whose own checks cover the rest

    @property
    def encoder(self) -> ViTConfig:
        return vision(self, self.regions, 0.1, pool="mean")

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.encoder.shape


class ShowAttendTell(Seq2Seq):
    """Xu et al. 2015: before each token an LSTM attends to the regions of the image, by Bahdanau's attention.

    Unlike the paper, the regions come from layers trained here, not from a network pre-trained on ImageNet.
    """

    def __init__(self, c: ShowAttendTellConfig):
        super(Seq2Seq, self).__init__()  # as above
        self.config = c
        self.vision = ViT(c.encoder)
        self.token = nn.Embedding(c.vocab, c.embedding)
        self.bridge = nn.Linear(c.regions, c.width)
        self.attention = AdditiveAttention(c.width, c.regions, c.width)
        self.cell = FAST_CELLS[c.cell](c.embedding + c.regions, c.width)
        self.readout = nn.Linear(c.width + c.regions + c.embedding, c.embedding)
        self.drop, self.bias = Dropout(c.dropout), None
        glorot_(self)

    def encode(self, source: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor, None]:
        """B C P P pixels -> the regions B S D, their mean B 1 D (section 3.1.2: where the LSTM starts), no padding."""
        memory = self.drop(self.vision(source))
        return memory, memory.mean(1, keepdim=True), None


def grid_of(model: EncoderDecoder, weights: Tensor) -> Tensor:
    """Attention weights, … S, as a square of patches … h w, without the token for the whole image."""
    side = model.config.encoder.grid
    return torch.unflatten(weights[..., -(side**2) :], -1, (side, side))
