"""ViT: an image is a sentence of patches (Dosovitskiy et al. 2021)."""

import itertools
import math
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import ConfigError, ShapeError
from regard.models.checks import check_model, check_pixels
from regard.nn.blocks import Norm, PreNormEncoderLayer, SwiGLU, compute_dtype, dropout
from regard.nn.init import glorot_
from regard.nn.masks import Everything, Mask
from regard.nn.positions import Learned, Sine2d
from regard.shapes import check

POOLS = ("token", "mean", "both")
DISTILLED = ("", "token", "head")
FORWARD = ("gelu", "swiglu")
PLACES = {"learned": Learned, "sine": Sine2d}


@dataclass(frozen=True, kw_only=True)
class ViTConfig:
    image: int = 224  # pixels a side
    channels: int = 3
    patch: int = 16  # pixels a side, too
    width: int = 768
    layers: int = 12
    heads: int = 12
    ffn: int = 3072
    dropout: float = 0.0
    eps: float = 1e-6
    stem: str = "patch"  # or "conv"
    pool: str = "token"  # an image "token", the "mean" of all patches, or "both"
    distilled: str = ""  # DeiT's second "token", trained by a teacher, or also its own "head"
    layer_scale: float = 0.0  # DINOv2: initial scale of the residual branches; 0: none
    forward: str = "gelu"  # the feed-forward network; "swiglu" in DINOv2's largest
    positions: str = "learned"  # or "sine", in two dimensions
    labels: tuple[str, ...] = ("0", "1")  # (): an encoder without a head
    mean: tuple[float, ...] = (0.5,)  # of the pixels in [0, 1]: one number, or one per channel
    std: tuple[float, ...] = (0.5,)

    def __post_init__(self):
        check_model(self, stem=STEMS, pool=POOLS, positions=PLACES, distilled=DISTILLED, forward=FORWARD)
        check_pixels(self)
        if self.forward == "swiglu" and not self.layer_scale:
            raise ConfigError("forward swiglu needs a layer_scale; try --set model.layer_scale=1.0")
        if self.distilled and (self.pool != "token" or self.positions != "learned"):
            raise ConfigError("a distilled ViT needs pool token and positions learned; set both, or omit distilled")
        if self.image % self.patch:
            fitting = [p for p in range(1, min(self.image, 4096) + 1) if self.image % p == 0]
            near = min(fitting, key=lambda p: abs(p - self.patch))
            raise ConfigError(
                f"an image of {self.image} pixels a side cannot be cut into patches of {self.patch}; "
                f"try --set model.patch={near}"
            )
        if self.positions == "sine" and self.width % 4:
            raise ConfigError(f"sine positions need a width divisible by 4, got {self.width}; try positions learned")
        if self.stem == "conv" and (self.patch & (self.patch - 1) or self.width % self.patch):
            raise ConfigError(
                f"the conv stem halves the image repeatedly, so patch {self.patch} must be a power of 2 that "
                f"divides the width {self.width}; or set stem patch"
            )

    @property
    def grid(self) -> int:
        """Patches a side."""
        return self.image // self.patch

    @property
    def tokens(self) -> int:
        """How many tokens precede the patches: the image token, and the distillation token."""
        return (self.pool != "mean") + bool(self.distilled)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one image: C P P."""
        return self.channels, self.image, self.image


class Scale(nn.Module):
    """Normalise bytes by `mean` and `std` of pixels in [0, 1], one number or one per channel.

    Floats are already normalised and pass through.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]):
        super().__init__()
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)  # C 1 1

    def forward(self, pixels: Tensor) -> Tensor:
        return (pixels / 255 - self.mean) / self.std if pixels.dtype == torch.uint8 else pixels


class PatchStem(nn.Linear):
    """Section 3.1: cut into patches, flatten each, one linear layer for all of them."""

    def __init__(self, c: Any, bias: bool = True):
        super().__init__(c.channels * c.patch**2, c.width, bias)
        self.patch = c.patch

    def forward(self, pixels: Tensor) -> Tensor:
        p = self.patch
        x = pixels.unflatten(3, (-1, p)).unflatten(2, (-1, p))  # B C h p w p
        return super().forward(x.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2))  # B N C·p·p -> B N D


class ConvStem(nn.Module):
    """Xiao et al. 2021: small convolutions, each but the first halving the image, until one pixel is a patch."""

    def __init__(self, c: ViTConfig):
        super().__init__()
        halvings = int(math.log2(c.patch))
        widths = [c.channels, *(c.width // 2 ** (halvings - i) for i in range(halvings + 1))]
        parts: list[nn.Module] = []
        for i, (before, after) in enumerate(itertools.pairwise(widths)):
            parts += [
                nn.Conv2d(before, after, 3, stride=2 if i else 1, padding=1, bias=False),
                nn.GroupNorm(math.gcd(after, 8), after),
                nn.GELU(),
            ]
        self.convs, self.map = nn.Sequential(*parts), nn.Linear(c.width, c.width)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.map(self.convs(pixels).flatten(2).mT)  # B D h w -> B N D


STEMS: dict[str, type[nn.Module]] = {"patch": PatchStem, "conv": ConvStem}


class LayerScale(nn.Module):
    """Touvron et al. 2021 (CaiT), equation 4: a learned scale for each channel of a residual branch."""

    def __init__(self, width: int, value: float):
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,), value))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class ScaledEncoderLayer(PreNormEncoderLayer):
    """DINOv2's layer."""

    def __init__(self, c: ViTConfig):
        super().__init__(c.width, c.heads, c.ffn, c.dropout, "gelu", c.eps)
        if c.forward == "swiglu":
            self.mlp = SwiGLU(c.width, c.ffn, bias=True)
        self.scale1, self.scale2 = LayerScale(c.width, c.layer_scale), LayerScale(c.width, c.layer_scale)

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        x = x + self.drop(self.scale1(self.attention(self.norm1(x), mask)))
        x = x + self.drop(self.scale2(self.mlp(self.norm2(x))))
        self.out.see(x)
        return x


class ViT(nn.Module):
    """Patches and their positions, pre-norm layers, a classifier. `forward` gives the states of all tokens, B T D.

    With `pool` "token" or "both" the first of them is the image token; with "mean" there is none.
    """

    def __init__(self, c: ViTConfig):
        super().__init__()
        self.config = c
        self.scale = Scale(c.mean, c.std)
        self.stem = STEMS[c.stem](c)
        self.first = nn.Parameter(torch.zeros(c.width)) if c.pool != "mean" else None
        self.second = nn.Parameter(torch.zeros(c.width)) if c.distilled else None
        self.place = PLACES[c.positions](c.grid**2 + c.tokens, c.width)
        self.drop = dropout(c.dropout)
        self.layers = cast("list[PreNormEncoderLayer]", nn.ModuleList(self.layer(c) for _ in range(c.layers)))
        self.norm = Norm(c.width, c.eps)
        summary = c.width * (2 if c.pool == "both" else 1)
        self.classifier = nn.Linear(summary, len(c.labels)) if c.labels else None
        self.teacher = nn.Linear(c.width, len(c.labels)) if c.labels and c.distilled == "head" else None
        glorot_(self)

    @staticmethod
    def layer(c: ViTConfig) -> PreNormEncoderLayer:
        if c.layer_scale:
            return ScaledEncoderLayer(c)
        return PreNormEncoderLayer(c.width, c.heads, c.ffn, c.dropout, "gelu", c.eps)

    def forward(self, pixels: Tensor) -> Tensor:
        """B C P P pixels -> B T D. Bytes are normalised; floats are used as they are."""
        check(pixels, "B C P P", C=self.config.channels)
        x = self.stem(compute_dtype(self.scale(pixels)))  # B N D
        tokens = [t.to(x.dtype).expand(x.size(0), 1, -1) for t in (self.first, self.second) if t is not None]
        x = torch.cat((*tokens, x), 1) if tokens else x
        x = self.drop(compute_dtype(x + self.places(pixels.size(-1))))
        mask = Everything()
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)

    def places(self, side: int) -> Tensor:
        """Position embeddings, T D, for images of `side` pixels; learned ones are interpolated to another size."""
        c = self.config
        if side == c.image:
            return self.place(torch.arange(c.grid**2 + c.tokens, device=self.norm.weight.device))
        if side % c.patch or c.positions != "learned":
            why = f"patches are {c.patch} pixels a side" if side % c.patch else "its positions are fixed"
            raise ShapeError(f"an image of {side} pixels a side for a model of {c.image}: {why}")
        return interpolated(cast("Learned", self.place).table, c.tokens, side // c.patch)

    def summary(self, hidden: Tensor) -> Tensor:
        """One vector per image: B T D -> B D, or B 2D for `pool` "both"."""
        if self.first is None:
            return hidden.mean(1)
        token = hidden[:, 0]
        return torch.cat((token, hidden[:, 1:].mean(1)), 1) if self.config.pool == "both" else token

    def scores(self, hidden: Tensor) -> Tensor:
        """Class logits: B T D -> B labels; the mean of two heads (Touvron et al. 2021, section 4)."""
        if self.classifier is None:
            raise ConfigError("this ViT is an encoder without classes; fine-tune it: regard finetune MODEL image")
        scores = self.classifier(self.summary(hidden))
        return scores if self.teacher is None else (scores + self.teacher(hidden[:, 1])) / 2


def interpolated(table: Tensor, tokens: int, grid: int) -> Tensor:
    """Learned positions for another number of patches: those of the `tokens` unchanged, the square of the others
    interpolated (Dosovitskiy et al. 2021, section 3.2)."""
    side = math.isqrt(len(table) - tokens)
    square = table[tokens:].unflatten(0, (side, side)).permute(2, 0, 1)[None]  # 1 D h w
    square = F.interpolate(square, (grid, grid), mode="bicubic", align_corners=False)[0]
    return torch.cat((table[:tokens], square.flatten(1).mT))
