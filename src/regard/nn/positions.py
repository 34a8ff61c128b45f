"""Where a token stands, as a vector added to its embedding. Each class maps positions (… of long) to (… D)."""

import math

import torch
from torch import Tensor, nn


class NoPositions(nn.Module):
    """A set, not a sequence: without positions an encoder cannot tell word orders apart."""

    def __init__(self, places: int, width: int):
        super().__init__()
        self.width = width

    def forward(self, where: Tensor) -> Tensor:
        return torch.zeros(*where.shape, self.width, device=where.device)


class Sinusoidal(nn.Module):
    """Vaswani et al. 2017, section 3.5, all sines first and then all cosines: the layout of Marian's files.

    The same numbers as `Interleaved` in another order of columns, which the layers above cannot tell apart.
    """

    table: Tensor

    def __init__(self, places: int, width: int):
        super().__init__()
        self.register_buffer("table", self.layout(*waves(places, width)).float(), persistent=False)

    @staticmethod
    def layout(sines: Tensor, cosines: Tensor) -> Tensor:
        return torch.cat((sines, cosines), dim=-1)

    def forward(self, where: Tensor) -> Tensor:
        return self.table[where]


class Interleaved(Sinusoidal):
    """Vaswani et al. 2017, section 3.5, as printed: sine in column 2i, cosine in column 2i + 1."""

    @staticmethod
    def layout(sines: Tensor, cosines: Tensor) -> Tensor:
        table = torch.empty(sines.size(0), sines.size(1) + cosines.size(1), dtype=sines.dtype)
        table[:, 0::2], table[:, 1::2] = sines, cosines
        return table


class Learned(nn.Module):
    """One trained vector per position, as in GPT and BERT."""

    def __init__(self, places: int, width: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(places, width) * width**-0.5)

    def forward(self, where: Tensor) -> Tensor:
        return self.table[where]


def waves(places: int, width: int) -> tuple[Tensor, Tensor]:
    """sin(p / 10000^(2i/D)) and its cosine, in float64: P ⌈D/2⌉ and P ⌊D/2⌋."""
    position = torch.arange(places, dtype=torch.float64)[:, None]
    rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
    angle = position * rate
    return angle.sin(), angle[:, : width // 2].cos()


POSITIONS: dict[str, type[nn.Module]] = {
    "none": NoPositions,
    "sinusoidal": Sinusoidal,
    "interleaved": Interleaved,
    "learned": Learned,
}
