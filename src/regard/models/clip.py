"""CLIP: an image and its caption become vectors that are close together (Radford et al. 2021)."""

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.models.checks import check_model, check_pixels
from regard.models.vit import PatchStem, Scale
from regard.nn.blocks import ACTIVATIONS, Norm, PreNormEncoderLayer, compute_dtype
from regard.nn.init import glorot_
from regard.nn.masks import Causal, Everything, Mask
from regard.nn.positions import Learned
from regard.shapes import check


@dataclass(frozen=True, kw_only=True)
class CLIPConfig:
    vocab: int
    context: int = 77  # the longest text
    text_width: int = 512
    text_layers: int = 12
    text_heads: int = 8
    text_ffn: int = 2048
    image: int = 224  # pixels a side
    channels: int = 3
    patch: int = 32  # pixels a side, too
    width: int = 768
    layers: int = 12
    heads: int = 12
    ffn: int = 3072
    shared: int = 512  # width of the vectors that are compared
    activation: str = "quick-gelu"
    eps: float = 1e-5
    mean: tuple[float, ...] = (0.48145466, 0.4578275, 0.40821073)  # of the pixels, between 0 and 1
    std: tuple[float, ...] = (0.26862954, 0.26130258, 0.27577711)

    def __post_init__(self):
        check_model(self, activation=ACTIVATIONS)
        check_pixels(self)
        if self.text_width % self.text_heads:
            raise ConfigError(f"text_width {self.text_width} is not divisible by {self.text_heads} heads")
        if self.image % self.patch:
            raise ConfigError(f"an image of {self.image} pixels a side cannot be cut into patches of {self.patch}")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one image: C P P."""
        return self.channels, self.image, self.image


class Tower(nn.Module):
    """The pre-norm layers of one of the two encoders."""

    def __init__(self, width: int, layers: int, heads: int, ffn: int, c: CLIPConfig):
        super().__init__()
        parts = (PreNormEncoderLayer(width, heads, ffn, 0.0, c.activation, c.eps) for _ in range(layers))
        self.layers = cast("list[PreNormEncoderLayer]", nn.ModuleList(parts))

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        for layer in self.layers:
            x = layer(x, mask)  # B T D
        return x


class CLIP(nn.Module):
    """Figure 1: two towers and the similarity of their vectors. `forward` gives the scores of all pairs."""

    def __init__(self, c: CLIPConfig):
        super().__init__()
        self.config = c
        self.scale = Scale(c.mean, c.std)
        self.stem = PatchStem(c, bias=False)
        self.first = nn.Parameter(torch.zeros(c.width))
        self.place = Learned((c.image // c.patch) ** 2 + 1, c.width)
        self.before = Norm(c.width, c.eps)
        self.image_tower = Tower(c.width, c.layers, c.heads, c.ffn, c)
        self.image_norm, self.image_map = Norm(c.width, c.eps), nn.Linear(c.width, c.shared, bias=False)
        self.token = nn.Embedding(c.vocab, c.text_width)
        self.text_place = Learned(c.context, c.text_width)
        self.text_tower = Tower(c.text_width, c.text_layers, c.text_heads, c.text_ffn, c)
        self.text_norm, self.text_map = Norm(c.text_width, c.eps), nn.Linear(c.text_width, c.shared, bias=False)
        self.sharpness = nn.Parameter(torch.tensor(2.6592))  # log of the factor of the cosines: initially 1/0.07
        glorot_(self)

    def images(self, pixels: Tensor) -> Tensor:
        """B C P P pixels -> B E, unit vectors. Bytes are scaled; floats are used as they are."""
        check(pixels, "B C P P", C=self.config.channels, P=self.config.image)
        x = self.stem(compute_dtype(self.scale(pixels)))  # B N D
        x = torch.cat((self.first.to(x.dtype).expand(x.size(0), 1, -1), x), 1)
        x = self.before(x + self.place(torch.arange(x.size(1), device=x.device)))
        x = self.image_tower(x, Everything())[:, 0]  # B D
        return F.normalize(self.image_map(self.image_norm(x)), dim=-1)

    def texts(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """B T ids, the first `lengths` real and the last of these the end-of-text token -> B E, unit vectors."""
        check(ids, "B T")
        if ids.size(1) > self.config.context:
            raise ConfigError(f"a text of {ids.size(1)} tokens, this model reads at most {self.config.context}")
        x = self.token(ids) + self.text_place(torch.arange(ids.size(1), device=ids.device))
        x = self.text_tower(compute_dtype(x), Causal(ids.size(1), ids.device))
        ends = x[torch.arange(x.size(0), device=x.device), lengths - 1]  # B D: it has seen the whole text
        return F.normalize(self.text_map(self.text_norm(ends)), dim=-1)

    def compare(self, images: Tensor, texts: Tensor) -> Tensor:
        """B E and N E vectors -> B N scores; their softmax is the probability that a text belongs to an image."""
        return self.sharpness.exp() * images @ texts.T

    def forward(self, pixels: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        return self.compare(self.images(pixels), self.texts(ids, lengths))
