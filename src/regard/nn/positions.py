"""Positional encodings: a vector added to the embedding, a rotation of queries and keys, a bias of the scores, or
real-valued time."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.masks import Leaning, Mask

Rotation = tuple[Tensor, Tensor]  # cosines and signed sines, T K or B 1 T K
FIRST = 1 << 14  # positions of a new table, and the step it is extended by


class Waves(nn.Module):
    """Tables of sines and cosines for up to `places` positions, extended on demand by `reach`.

    A config may declare any context; only a text that long is worth the memory.
    """

    def __init__(self, places: int):
        super().__init__()
        self.places, self.size = places, 0

    def widths(self) -> dict[str, int]:
        """The number of columns of each table, by name."""
        raise NotImplementedError

    def rows(self, start: int, stop: int) -> dict[str, Tensor]:
        """The rows of each table for the positions from `start` to `stop`, by name."""
        raise NotImplementedError

    def reach(self, places: int) -> None:
        """Extend the tables to at least `places` positions; called where the host knows the length of a text."""
        if places <= self.size:
            return
        self.size = size = min(self.places, max(FIRST, 1 << (places - 1).bit_length()))
        with torch.inference_mode(False):  # a table built while decoding must also work in training
            if torch.get_default_device().type == "meta":  # its `arange` imports torch's compiler: seconds
                tables = {name: torch.empty(size, width) for name, width in self.widths().items()}
            else:
                pieces = [self.rows(start, min(start + FIRST, size)) for start in range(0, size, FIRST)]
                tables = {name: torch.cat([piece[name] for piece in pieces]).float() for name in pieces[0]}
            for name, table in tables.items():
                if name in self._buffers:
                    table = table.to(self.get_buffer(name))  # to the model's device and dtype
                self.register_buffer(name, table, persistent=False)


def reach_(model: nn.Module, places: int) -> None:
    """Extend all position tables of a model to `places` positions."""
    if places > FIRST:
        for part in model.children():
            if isinstance(part, Waves):
                part.reach(places)


class NoPositions(nn.Module):
    """A set, not a sequence: without positions an encoder cannot tell word orders apart."""

    def __init__(self, places: int, width: int):
        super().__init__()
        self.width = width

    def forward(self, where: Tensor) -> Tensor:
        return torch.zeros(*where.shape, self.width, device=where.device)


class Sinusoidal(Waves):
    """Vaswani et al. 2017, section 3.5, all sines first and then all cosines: the layout of Marian's files.

    The same values as `Interleaved` with the columns permuted, which makes no difference to a trained model.
    """

    table: Tensor

    def __init__(self, places: int, width: int):
        super().__init__(places)
        self.width = width
        self.reach(1)

    def widths(self) -> dict[str, int]:
        return {"table": self.width}

    def rows(self, start: int, stop: int) -> dict[str, Tensor]:
        return {"table": self.layout(*waves(stop, self.width, start=start))}

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
        self.table = nn.Parameter(torch.empty(places, width))
        nn.init.normal_(self.table, std=width**-0.5)

    @torch.no_grad()
    def start_as_waves(self) -> None:
        """Start from sinusoids, of which attention can tell at once how far apart two positions are."""
        if not self.table.is_meta:
            self.table.copy_(torch.cat(waves(*self.table.shape), -1))

    def forward(self, where: Tensor) -> Tensor:
        return F.embedding(where, self.table)


class Sine2d(nn.Module):
    """Positions in a square of patches: the row in the first half of the vector, the column in the second.

    One position more than the square has comes first, for a token without a place, and is all zeros.
    """

    line: Tensor

    def __init__(self, places: int, width: int):
        super().__init__()
        self.side = math.isqrt(places)
        self.more = places - self.side**2
        line = Sinusoidal.layout(*waves(self.side, width // 2)).float()  # P D/2
        self.register_buffer("line", line, persistent=False)

    def forward(self, where: Tensor) -> Tensor:
        place = (where - self.more).clamp(min=0)
        square = torch.cat((self.line[place // self.side], self.line[place % self.side]), -1)
        return square.masked_fill((where < self.more)[..., None], 0.0)


class Rotary(Waves):
    """Su et al. 2021: pairs rotated by an angle that grows with the position, so that q·k depends on distance only.

    Column i is paired with column i + K/2, the layout of published llama files; the paper pairs neighbours.
    """

    cosines: Tensor
    sines: Tensor

    def __init__(self, places: int, head_width: int, theta: float = 10000.0):
        super().__init__(places)
        self.head_width, self.theta = head_width, theta
        self.reach(1)

    def rates(self) -> Tensor:
        """The angle of each pair from one position to the next, in float64: K/2."""
        return rates(self.head_width, self.theta)

    def widths(self) -> dict[str, int]:
        return {"cosines": self.head_width, "sines": self.head_width}

    def rows(self, start: int, stop: int) -> dict[str, Tensor]:
        angle = torch.arange(start, stop, dtype=torch.float64)[:, None] * self.rates()
        sines, cosines = angle.sin(), angle.cos()
        return {"cosines": torch.cat((cosines, cosines), -1), "sines": torch.cat((-sines, sines), -1)}

    def forward(self, where: Tensor) -> Rotation:
        rotation = F.embedding(where, self.cosines), F.embedding(where, self.sines)  # T K
        return rotation if where.ndim == 1 else (rotation[0][:, None], rotation[1][:, None])  # B 1 T K


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """How low frequencies are lowered further, so that a model reads longer texts than it was first trained on."""

    factor: float = 1.0  # divides the frequency of waves with fewer than `low` turns; 1: changes nothing
    low: float = 1.0
    high: float = 4.0  # waves with more turns are unchanged; those in between change gradually
    context: int = 8192  # tokens of the original context, over which turns are counted


class StretchedRotary(Rotary):
    """Llama 3.1 (Grattafiori et al. 2024): near positions differ as before, far ones less."""

    def __init__(self, places: int, head_width: int, theta: float, stretch: Stretch):
        self.stretch = stretch
        super().__init__(places, head_width, theta)

    def rates(self) -> Tensor:
        s, plain = self.stretch, super().rates()
        turns = s.context * plain / (2 * math.pi)
        kept = ((turns - s.low) / (s.high - s.low)).clamp(0, 1)
        return plain * (kept + (1 - kept) / s.factor)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotate the pairs (x_i, x_{i+K/2}) of B H T K."""
    cosines, sines = rotation
    return torch.addcmul(x * cosines, x.roll(x.size(-1) // 2, -1), sines).to(x.dtype)


class Alibi(nn.Module):
    """Press et al. 2022: each head penalises distance by its own slope; no table, so no maximum length."""

    slopes: Tensor

    def __init__(self, heads: int):
        super().__init__()
        self.register_buffer("slopes", slopes(heads).float(), persistent=False)

    def forward(self, mask: Mask, queries: Tensor, keys: Tensor) -> Mask:
        """`mask`, biased by the distance of queries (positions, T or B T) to keys (S or B S)."""
        distance = (queries[..., :, None] - keys[..., None, :]).abs()  # T S or B T S
        distance = distance[None, None] if distance.ndim == 2 else distance[:, None]
        return Leaning(mask, -self.slopes[:, None, None] * distance)  # B H T S


class RelativeBias(nn.Module):
    """Raffel et al. 2020, section 2.1: a learned bias for each head and distance is added to the scores.

    Short distances have a bias each; longer ones share logarithmic buckets, and all from `furthest` on share one.
    """

    def __init__(self, heads: int, buckets: int, furthest: int, both_ways: bool):
        super().__init__()
        self.table = nn.Embedding(buckets, heads)
        self.furthest, self.both_ways = furthest, both_ways

    def forward(self, mask: Mask, queries: Tensor, keys: Tensor) -> Mask:
        """`mask`, biased by the distance of the keys, S positions, to the queries, T."""
        bias = self.table(self.bucket(keys[None, :] - queries[:, None]))  # T S H
        return Leaning(mask, bias.permute(2, 0, 1)[None])  # 1 H T S

    def bucket(self, ahead: Tensor) -> Tensor:
        """The bucket of keys that are `ahead` positions ahead."""
        buckets = self.table.num_embeddings // 2 if self.both_ways else self.table.num_embeddings
        far = ahead.abs() if self.both_ways else -ahead.clamp(max=0)
        exact = buckets // 2
        share = torch.log(far.float() / exact) / math.log(self.furthest / exact) * (buckets - exact)
        near = torch.where(far < exact, far, (exact + share.clamp(min=0).long()).clamp(max=buckets - 1))
        return near + buckets * (ahead > 0) if self.both_ways else near


def slopes(heads: int) -> Tensor:
    """2^-8/H, 2^-16/H, … 2^-8 for a power of two; otherwise the rest are every second slope of the next power."""
    power = 1 << heads.bit_length() - 1
    first = torch.exp2(-8 * torch.arange(1, power + 1, dtype=torch.float64) / power)
    return first if power == heads else torch.cat((first, slopes(2 * power)[0::2][: heads - power]))


def restarting(documents: Tensor) -> Tensor:
    """Positions that restart at 0 with each document of a row; `documents`, B T, numbers them."""
    where = torch.arange(documents.size(1), device=documents.device)
    new = F.pad(documents[:, 1:] != documents[:, :-1], (1, 0), value=True)
    first = torch.where(new, where, 0).cummax(1).values  # B T: the start of each token's document
    return where - first


def waves(places: int, width: int, theta: float = 10000.0, start: int = 0) -> tuple[Tensor, Tensor]:
    """sin(p / θ^(2i/D)) and its cosine, in float64, for p from `start` on: P ⌈D/2⌉ and P ⌊D/2⌋."""
    angle = torch.arange(start, places, dtype=torch.float64)[:, None] * rates(width, theta)
    return angle.sin(), angle[:, : width // 2].cos()


def rates(width: int, theta: float) -> Tensor:
    """1 / θ^(2i/D), in float64: ⌈D/2⌉."""
    return torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(theta) / width))


class TimeWaves(nn.Module):
    """Real time as sines and cosines, added: section 3.5 of Vaswani et al. 2017 with periods from `tick` to `span`.

    Each column has a learned gain, which starts low, so that time does not drown out the measurement.
    """

    rates: Tensor

    def __init__(self, width: int, tick: float, span: float):
        super().__init__()
        count = width - width // 2
        periods = torch.logspace(math.log2(tick), math.log2(span), count, base=2.0, dtype=torch.float64)
        self.register_buffer("rates", (2 * math.pi / periods).float(), persistent=False)
        self.gain = nn.Parameter(torch.full((width,), 0.2))

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        """B T D, and B T in the unit of `tick`."""
        angle = times[..., None] * self.rates  # B T D/2
        return x + self.gain * torch.cat((angle.sin(), angle.cos()), -1)[..., : len(self.gain)]


class Low(nn.Linear):
    """A linear layer with a low `gain` (`init.glorot_`)."""

    gain = 0.1


class TimeModulation(nn.Module):
    """Learned time modulation (Moreno-Cartagena et al. 2023): x · (1 + a(t)) + b(t), each a Fourier series over `span`.

    Every column of x has its own coefficients, which start low in a Transformer; `tick` bounds the frequencies.
    """

    rates: Tensor
    MOST = 64

    def __init__(self, width: int, tick: float, span: float):
        super().__init__()
        count = max(1, min(self.MOST, int(span / tick)))
        self.register_buffer("rates", 2 * math.pi * torch.arange(1, count + 1) / span, persistent=False)
        self.factor, self.summand = (Low(2 * count, width) for _ in range(2))

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        """B T D, and B T in the unit of `tick`."""
        angle = times[..., None] * self.rates  # B T W
        waves = torch.cat((angle.sin(), angle.cos()), -1)
        return x * (1 + self.factor(waves)) + self.summand(waves)


TIMES: dict[str, type[nn.Module]] = {"waves": TimeWaves, "modulation": TimeModulation}
ADDED: dict[str, type[nn.Module]] = {"sinusoidal": Sinusoidal, "interleaved": Interleaved, "learned": Learned}
POSITIONS: dict[str, type[nn.Module]] = {"none": NoPositions, **ADDED}
