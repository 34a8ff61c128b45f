"""The baseline networks: a multi-layer perceptron (`mlp`) and a convolutional network (`conv`)."""

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.models.checks import check_model, check_pixels
from regard.models.vit import Scale
from regard.nn.blocks import compute_dtype, dropout
from regard.nn.init import glorot_
from regard.shapes import check


@dataclass(frozen=True, kw_only=True)
class MLPConfig:
    shape: tuple[int, ...] = (784,)  # of one example: the columns of a table, or channels, rows and columns of an image
    width: int = 256
    layers: int = 2
    dropout: float = 0.0
    labels: tuple[str, ...] = ("0", "1")
    mean: tuple[float, ...] = (0.0,)  # of the inputs, pixels in [0, 1]: one number, or one per input
    std: tuple[float, ...] = (1.0,)

    def __post_init__(self):
        check_model(self, {"layers": 0}, full=("labels",))
        if not self.shape or min(self.shape) < 1:
            raise ConfigError(f"model.shape is {self.shape}; expected the size of an input, such as 784")
        if not {len(self.mean), len(self.std)} <= {1, self.inputs}:
            raise ConfigError(f"model.mean and std have {len(self.mean)} and {len(self.std)} numbers; expected 1, or 1 "
                              f"for each of the {self.inputs} inputs")  # fmt: skip

    @property
    def inputs(self) -> int:
        return math.prod(self.shape)


class MLP(nn.Module):
    """Fully connected layers: every input is connected to every unit, wherever it stands."""

    mean: Tensor
    std: Tensor

    def __init__(self, c: MLPConfig):
        super().__init__()
        self.config = c
        for name in ("mean", "std"):
            self.register_buffer(name, torch.tensor(getattr(c, name)), persistent=False)
        widths = [c.inputs] + [c.width] * c.layers
        maps = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
        self.layers = nn.Sequential(*(nn.Sequential(m, nn.ReLU(), dropout(c.dropout)) for m in maps))
        self.classifier = nn.Linear(widths[-1], len(c.labels))
        glorot_(self)

    def forward(self, x: Tensor) -> Tensor:
        """B … floats, or bytes of pixels -> B D."""
        x = x.flatten(1)
        check(x, "B D", D=self.config.inputs)
        x = (x / 255 if x.dtype == torch.uint8 else x) - self.mean
        return self.layers(compute_dtype(x / self.std))

    def scores(self, hidden: Tensor) -> Tensor:
        """Class logits: B D -> B labels."""
        return self.classifier(hidden)


@dataclass(frozen=True, kw_only=True)
class ConvConfig:
    image: int = 28  # pixels a side
    channels: int = 1
    width: int = 32  # filters of the first layer; each layer has twice as many as the one before
    layers: int = 2
    kernel: int = 3  # pixels a side of a filter
    dropout: float = 0.0
    labels: tuple[str, ...] = ("0", "1")
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)

    def __post_init__(self):
        check_model(self, full=("labels",))
        check_pixels(self)
        if self.kernel % 2 == 0:
            raise ConfigError(f"model.kernel is {self.kernel}; must be odd")
        if self.image >> self.layers == 0:
            most = int(math.log2(self.image))
            raise ConfigError(
                f"{self.layers} layers halve an image of {self.image} pixels to nothing; try layers {most}"
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one image: C P P."""
        return self.channels, self.image, self.image

    @property
    def reach(self) -> int:
        """The receptive field of one output of the last layer, in pixels a side."""
        return 1 + self.kernel * (2**self.layers - 1)  # layer i adds (k - 1) + 1 by filter and pooling, times 2^i


class Conv(nn.Module):
    """LeCun et al. 1998: convolutions, each followed by 2 x 2 max-pooling."""

    def __init__(self, c: ConvConfig):
        super().__init__()
        self.config = c
        self.scale = Scale(c.mean, c.std)
        widths = [c.channels, *(c.width * 2**i for i in range(c.layers))]
        self.layers = nn.Sequential(
            *(
                nn.Sequential(nn.Conv2d(a, b, c.kernel, padding=c.kernel // 2), nn.ReLU(), nn.MaxPool2d(2))
                for a, b in itertools.pairwise(widths)
            )
        )
        self.drop = dropout(c.dropout)
        self.classifier = nn.Linear(widths[-1] * (c.image >> c.layers) ** 2, len(c.labels))
        glorot_(self)

    def forward(self, pixels: Tensor) -> Tensor:
        """B C P P pixels -> B D."""
        check(pixels, "B C P P", C=self.config.channels, P=self.config.image)
        return self.layers(compute_dtype(self.scale(pixels))).flatten(1)

    def scores(self, hidden: Tensor) -> Tensor:
        """Class logits: B D -> B labels."""
        return self.classifier(self.drop(hidden))
