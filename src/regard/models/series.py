"""Series of measurements to classes: tokens of (time, value, error, band), an encoder or a recurrent cell, a class.

Sampling may be irregular: a token encodes its time, and gaps need no filling. Vaswani et al. 2017's encoder as used
for light curves by Allam and McEwen 2021 and Moreno-Cartagena et al. 2023.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.models.checks import check_model
from regard.nn.blocks import Norm, PreNormEncoderLayer, compute_dtype, dropout
from regard.nn.init import glorot_, recurrent_
from regard.nn.masks import Everything, Lengths, pooled
from regard.nn.positions import TIMES
from regard.nn.recurrent import GATES, run_stack, stack
from regard.shapes import check

POOLINGS = ("mean", "cls")
ORIGINS = ("first", "peak")


@dataclass(frozen=True, kw_only=True)
class SeriesFields:
    """Settings of both models; the first five are filled in from the data."""

    labels: tuple[str, ...] = ("0", "1")  # (): a model that fills in hidden values
    bands: tuple[str, ...] = ("value",)
    known: tuple[str, ...] = ()  # names of numbers known of each object in addition to its series
    tick: float = 1.0  # the typical time between points
    span: float = 1024.0  # the duration of the longest series
    width: int = 64
    layers: int = 2
    dropout: float = 0.1
    patch: int = 1  # points per token
    stride: int = 1  # points from one token to the next
    time: str = "waves"
    origin: str = "first"  # of times: the first point, or the time of the maximum ("peak")

    def __post_init__(self):
        check_model(self, full=("bands",), time=TIMES, origin=ORIGINS)
        if not 0 < self.tick <= self.span:
            raise ConfigError(f"model.tick is {self.tick} and model.span {self.span}; expected 0 < tick <= span")


@dataclass(frozen=True, kw_only=True)
class SeriesTransformerConfig(SeriesFields):
    heads: int = 4
    ffn: int = 128
    pooling: str = "mean"  # of all tokens, or the first ("cls")

    def __post_init__(self):
        super().__post_init__()
        check_model(self, pooling=POOLINGS)


@dataclass(frozen=True, kw_only=True)
class SeriesRecurrentConfig(SeriesFields):
    cell: str = "lstm"

    def __post_init__(self):
        super().__post_init__()
        check_model(self, cell=GATES)


class SeriesTokens(nn.Module):
    """Points to tokens. Each band is centred and all are divided by their common spread, so that the shape counts. The
    level and spread of the series and of each band go into a first token, with the `known` numbers. A point also has
    its distance from its band's level in units of its error."""

    usual: Tensor

    def __init__(self, c: SeriesFields):
        super().__init__()
        self.config = c
        whole = 2 + 2 * len(c.bands) + len(c.known)
        self.register_buffer("usual", torch.stack((torch.zeros(whole), torch.ones(whole))))  # mean and spread
        self.points = nn.Linear((3 + len(c.bands)) * c.patch, c.width)
        self.whole = nn.Linear(whole, c.width)
        self.time = TIMES[c.time](c.width, 2 * c.tick, 2 * c.span)

    def forward(
        self,
        times: Tensor,
        values: Tensor,
        errors: Tensor | None = None,
        bands: Tensor | None = None,
        lengths: Tensor | None = None,
        known: Tensor | None = None,
        hidden: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Points, B T each, to B 1+N D tokens and how many of them are real, B.

        The first `lengths` points of a series are real (None: all). Those `hidden`, B T, keep their time and band but
        not their value, and do not count for the norm. `known` is B K; NaN becomes its mean in training.
        """
        check(times, "B T")
        check(values, "B T", B=times.size(0), T=times.size(1))
        c, real = self.config, real_points(times, lengths)
        seen = real if hidden is None else real & ~hidden
        kinds = self.kinds(values, bands) * real[..., None]  # B T bands
        normed, spread, whole = norm(values, kinds, seen)
        rise = normed if errors is None else normed * spread / known_errors(errors, seen, spread)
        sure = torch.zeros_like(values) if errors is None else torch.asinh(rise)
        each = torch.stack((normed, sure, torch.ones_like(normed)), -1) * seen[..., None]  # B T 3
        passed = (times - times[:, :1]) * real
        passed = passed if c.origin == "first" else (passed - peak(passed, rise * seen)) * real
        x = self.joined(torch.cat((each, kinds), -1), passed)
        whole = whole if known is None else torch.cat((whole, known), 1)
        whole = torch.where(whole.isnan(), self.usual[0], whole)
        first = self.whole((whole - self.usual[0]) / self.usual[1])  # B D
        tokens = None if lengths is None else 1 + ((lengths - c.patch) // c.stride + 1).clamp(1, x.size(1))
        return torch.cat((first[:, None], x), 1), tokens

    def kinds(self, values: Tensor, bands: Tensor | None) -> Tensor:
        """B T bands: the one-hot band of each point."""
        which = torch.zeros_like(values, dtype=torch.long) if bands is None else bands
        return F.one_hot(which, len(self.config.bands))

    def summary(self, times: Any, values: Any, errors: Any, bands: Any, lengths: Any, known: Any) -> Tensor:
        """The input of the first token, before it is normalised by `usual`."""
        real = real_points(times, lengths)
        whole = norm(values, self.kinds(values, bands) * real[..., None], real)[2]
        return whole if known is None else torch.cat((whole, known), 1)

    def joined(self, each: Tensor, times: Tensor) -> Tensor:
        """`patch` points to a token, at their mean time: B T F -> B N D. An incomplete last patch is dropped, but a
        series shorter than a patch is one token."""
        c = self.config
        short = max(0, c.patch - each.size(1))
        each, times = F.pad(each, (0, 0, 0, short)), F.pad(times, (0, short))
        x = self.points(each.unfold(1, c.patch, c.stride).flatten(2))  # B N F·P -> B N D
        return self.time(x, times.unfold(1, c.patch, c.stride).mean(-1))


def real_points(times: Tensor, lengths: Tensor | None) -> Tensor:
    """B T: True where a point is not padding."""
    if lengths is None:
        return torch.ones_like(times, dtype=torch.bool)
    return torch.arange(times.size(1), device=times.device) < lengths[:, None]


def known_errors(errors: Tensor, seen: Tensor, spread: Tensor) -> Tensor:
    """Replace errors of 0, which mean unknown, by the mean of the others, or by the spread if there are none."""
    count = (seen & (errors > 0)).sum(1, keepdim=True)
    usual = torch.where(count > 0, (errors * seen).sum(1, keepdim=True) / count.clamp(min=1), spread)
    return torch.where(errors > 0, errors, usual)


def peak(times: Tensor, rise: Tensor) -> Tensor:
    """The mean time of the points at least half as high as the highest, B 1, so that a burst is encoded the same
    whenever it was observed."""
    high = torch.where(2 * rise >= rise.amax(1, keepdim=True), rise, 0.0).clamp(min=0)
    return (high * times).sum(1, keepdim=True) / high.sum(1, keepdim=True).clamp(min=1e-6)


def norm(values: Tensor, kinds: Tensor, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Values centred by band and divided by their common spread, B T; that spread, B 1; and a summary: level and
    spread, then those of each band, B 2+2·bands. Only points `seen` count.

    `kinds`, B T bands, is the one-hot band of each point. A constant series has a spread of nearly 0.
    """
    weight = kinds * seen[..., None].to(values)  # B T bands
    count, total = weight.sum(1), weight.sum((1, 2))[:, None].clamp(min=1)  # B bands, B 1
    safe = torch.where(seen, values, 0.0)
    level = safe.sum(1, keepdim=True) / total
    levels = torch.where(count > 0, (weight * safe[..., None]).sum(1) / count.clamp(min=1), level)  # B bands
    centred = values - (kinds * levels[:, None]).sum(-1)
    square = (weight * centred[..., None].square()).sum(1)  # B bands
    spread = (square.sum(1, keepdim=True) / total).sqrt() + 1e-6 * (1 + level.abs())
    spreads = torch.where(count > 0, (square / count.clamp(min=1)).sqrt() + 1e-3 * spread, spread)
    parts = (torch.asinh(level), spread.log(), torch.asinh(levels - level), (spreads / spread).log())
    return centred / spread, spread, torch.cat(parts, 1)


class SeriesModel(nn.Module):
    """`forward` gives one vector per series, for `scores`, the class logits; `states` gives all tokens, for `filled`,
    the predicted values of hidden points."""

    config: Any  # SeriesFields

    def __init__(self, c: SeriesFields):
        super().__init__()
        self.config = c
        self.tokens = SeriesTokens(c)
        self.drop = dropout(c.dropout)
        self.classifier = nn.Linear(c.width, len(c.labels)) if c.labels else None
        self.value = None if c.labels else nn.Linear(c.width, c.patch)

    def states(self, *points: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """What `SeriesTokens` takes -> B 1+N D, and how many of them are real, B."""
        raise NotImplementedError

    def forward(self, *points: Tensor | None) -> Tensor:
        """What `SeriesTokens` takes -> B D."""
        x, tokens = self.states(*points)
        return pooled(x, tokens, "mean")

    def scores(self, hidden: Tensor) -> Tensor:
        """Class logits: B D -> B labels."""
        if self.classifier is None:
            raise ConfigError("this model fills in hidden values and has no classes; fine-tune it: regard finetune")
        return self.classifier(self.drop(hidden))

    def filled(self, states: Tensor) -> Tensor:
        """The normed values of the points of each token: B 1+N D -> B N P."""
        if self.value is None:
            raise ConfigError("this model predicts classes and cannot fill in values")
        return self.value(states[:, 1:])


class SeriesTransformer(SeriesModel):
    """All tokens attend to all others; padding is masked."""

    def __init__(self, c: SeriesTransformerConfig):
        super().__init__(c)
        layer = (PreNormEncoderLayer(c.width, c.heads, c.ffn, c.dropout, "gelu") for _ in range(c.layers))
        self.layers = cast("list[PreNormEncoderLayer]", nn.ModuleList(layer))
        self.norm = Norm(c.width)
        glorot_(self)

    def states(self, *points: Tensor | None) -> tuple[Tensor, Tensor | None]:
        x, tokens = self.tokens(*points)
        mask = Everything() if tokens is None else Lengths(tokens, x.size(1))
        x = self.drop(compute_dtype(x))
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x), tokens

    def forward(self, *points: Tensor | None) -> Tensor:
        x, tokens = self.states(*points)
        return pooled(x, tokens, self.config.pooling)


class SeriesRecurrent(SeriesModel):
    """A recurrent cell over the same tokens; padding comes last, so it changes nothing."""

    def __init__(self, c: SeriesRecurrentConfig):
        super().__init__(c)
        self.cells = stack(c.cell, c.width, c.width, c.layers)
        recurrent_(self)

    def states(self, *points: Tensor | None) -> tuple[Tensor, Tensor | None]:
        x, tokens = self.tokens(*points)
        drop = self.config.dropout if self.training else 0.0
        return run_stack(self.cells, self.drop(compute_dtype(x)), drop=drop)[0], tokens
