"""The cases of series: classified, filled in and forecast."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from regard.models.forecaster import ForecasterConfig
from regard.models.series import SeriesRecurrentConfig, SeriesTransformerConfig
from regard.objectives.classify import ClassifySamples
from regard.objectives.fill_series import FillSeriesLoss
from regard.objectives.forecast import ForecastLoss

from .case import LABELS, Case, Inputs, generator, row, samples, scores

both = dict(labels=LABELS, bands=("g", "r"), known=("z",), tick=0.5, span=20.0, width=16, layers=2, dropout=0.1)
SERIES = {
    "series-mean": SeriesTransformerConfig(**both, heads=2, ffn=24),
    "series-cls": SeriesTransformerConfig(**both, heads=4, ffn=24, pooling="cls"),
    "series-modulation": SeriesTransformerConfig(**both, heads=2, ffn=24, time="modulation"),
    "series-peak": SeriesTransformerConfig(**both, heads=2, ffn=24, origin="peak"),
    "series-patches": SeriesTransformerConfig(**both, heads=2, ffn=24, patch=3, stride=2),
    "series-peak-patches": SeriesTransformerConfig(**both, heads=2, ffn=24, origin="peak", patch=5, stride=2),
    "series-lstm": SeriesRecurrentConfig(**both),
    "series-gru-patches": SeriesRecurrentConfig(**both, cell="gru", patch=2, stride=2),
}
POINT_LENGTHS = torch.tensor([9, 4, 7])
REAL_POINTS = torch.arange(9) < POINT_LENGTHS[:, None]
FORECASTER = ForecasterConfig(
    columns=("x", "y"), lookback=13, horizon=5, patch=4, stride=2, width=16, layers=2, heads=4, ffn=24, dropout=0.1
)
PAST = torch.randn(3, 13, 2, generator=generator(2)).double().cumsum(1)
FUTURE = torch.randn(3, 5, 2, generator=generator(4)).double()


def ragged_points() -> Inputs:
    """Times, values, errors, bands, lengths, known: three ragged series."""
    g = generator(1)
    times = torch.rand(3, 9, generator=g).double().cumsum(1) * 2 + 100
    values, errors = torch.randn(3, 9, generator=g).double() * 3 + 7, torch.rand(3, 9, generator=g).double()
    bands = torch.arange(27).view(3, 9) % 2
    known = torch.randn(3, 1, generator=g).double()
    return *(x.masked_fill(~REAL_POINTS, 0) for x in (times, values, errors, bands)), POINT_LENGTHS, known


POINTS = ragged_points()
HIDDEN = (torch.arange(27).view(3, 9) % 3 == 1) & REAL_POINTS


def points_alone(x: Inputs, b: int) -> Inputs:
    n = int(POINT_LENGTHS[b])
    return *(row(part, b, n) for part in x[:4]), None, row(x[5], b), *(row(part, b, n) for part in x[6:])


def usual(model: nn.Module) -> None:
    """A mean and a spread that differ from those at first, so that a file must hold them."""
    model.tokens.usual.add_(0.3)


def series(config: Any) -> Case:
    attends = isinstance(config, SeriesTransformerConfig)
    return Case(
        config,
        POINTS,
        scores,
        (3, 3),
        ClassifySamples(0.1),
        samples(*POINTS),
        alone=points_alone,
        classes=3,
        looks=2 * attends,
        hidden=(1, 5) if config.patch == 1 else None,
        prepare=usual,
    )


def filler(config: Any) -> Case:
    return replace(
        series(replace(config, labels=())),
        inputs=(*POINTS, HIDDEN),
        forward=lambda model, *x: model.filled(model.states(*x)[0]),
        shape=(3, 9, 1),
        objective=FillSeriesLoss(),
        batch=samples(*POINTS, HIDDEN, targets=HIDDEN.sum(1)),
        lengths=tuple(map(slice, POINT_LENGTHS.tolist())),
        classes=0,
    )


def straight_line(model: nn.Module) -> None:
    """It starts at zero, where nothing is seen of it."""
    with torch.no_grad():
        model.straight.weight.normal_(generator=generator(5))
        model.spread[0] = 3.0


SERIES_CASES: dict[str, Case] = {
    **{name: series(config) for name, config in SERIES.items()},
    "series-fill": filler(SERIES["series-mean"]),
    "forecaster": Case(
        FORECASTER, (PAST,), lambda model, past: model(past), (3, 5, 2, 4), ForecastLoss(),
        samples(PAST, targets=FUTURE), looks=2, prepare=straight_line,
    ),
}  # fmt: skip
