"""What is asked of models of series alone, and of the forecaster."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from regard.data.batch import Samples
from regard.errors import ConfigError, ShapeError
from regard.models import build
from regard.models.forecaster import ForecasterConfig
from regard.models.series import SeriesRecurrentConfig, SeriesTransformerConfig
from regard.objectives.classify import ClassifySamples
from regard.objectives.fill_series import FillSeriesLoss
from regard.objectives.forecast import ForecastLoss

from .case import LABELS
from .series_cases import FORECASTER, POINTS, SERIES
from .series_cases import REAL_POINTS as REAL

close = torch.testing.assert_close


class NothingCopied(TorchFunctionMode):
    """A GPU would be waited for by what makes a tensor of the host's numbers, or numbers of a tensor."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        assert func.__name__ not in ("tensor", "new_tensor", "item", "tolist", "cpu", "__bool__", "__int__"), func
        return func(*args, **(kwargs or {}))


@pytest.fixture(params=SERIES)
def config(request):
    return SERIES[request.param]


@pytest.fixture
def model(config, shake):
    return shake(build(config), 2.0).double().eval()


@pytest.fixture
def points():
    return POINTS


def scores(model, points):
    return model.scores(model(*points))


def test_what_padding_holds_changes_nothing(model, points):
    noisy = [x.masked_fill(~REAL, 1) if x.shape == REAL.shape else x for x in points]
    close(scores(model, noisy), scores(model, points), rtol=0, atol=0)


def test_when_time_begins_is_of_no_matter_but_its_pace_is(model, points):
    times, *rest = points
    before = scores(model, points)
    close(scores(model, (times + 1234.5, *rest)), before)
    assert (scores(model, (times * 3, *rest)) - before).abs().max() > 1e-4


def test_level_and_spread_are_heard_in_the_first_token_alone(model, points):
    """Another unit of measurement: values and errors times 2, and shifted. Of the tokens only the first one moves."""
    times, values, errors, *rest = points
    before, _ = model.tokens(times, values, errors, *rest)
    after, _ = model.tokens(times, values * 2 + 3, errors * 2, *rest)
    close(before[:, 1:], after[:, 1:], rtol=1e-4, atol=1e-4)
    assert (before[:, 0] - after[:, 0]).abs().max() > 1e-2


def test_everything_that_is_known_matters(model, points):
    before = scores(model, points)
    for i, change in ((1, -1.0), (2, 2.0), (5, 3.0)):
        other = list(points)
        other[i] = torch.cat((other[i][:, :1] * change + 1, other[i][:, 1:]), 1)
        assert (scores(model, other) - before).abs().max() > 1e-4, i
    other = list(points)
    other[3] = 1 - other[3]
    assert (scores(model, other) - before).abs().max() > 1e-4


def test_missing_numbers_become_the_training_mean(model, points):
    *rest, known = points
    model.tokens.usual[0, -1] = 3.0
    usual, missing = known.clone(), known.clone()
    usual[1], missing[1] = 3.0, math.nan
    close(scores(model, (*rest, missing)), scores(model, (*rest, usual)))


def test_what_is_usual_is_measured_on_what_is_known(config):
    from regard.data.series import Curves
    from regard.data.series_batch import SeriesSource
    from regard.tasks.series import standardise_

    curves = Curves(["a", "b", "c"], np.array([0, 2, 4, 6]), np.arange(6.0), np.arange(6.0) ** 2, None,
                    np.arange(6) % 2, ("g", "r"), ["a", "b", "c"], np.array([[1.0], [np.nan], [5.0]]))  # fmt: skip
    tokens = build(config).tokens
    standardise_(tokens, SeriesSource(curves, LABELS, 10))
    close(tokens.usual[:, -1], torch.tensor([3.0, math.sqrt(8 / 3)]))
    assert tokens.usual.isfinite().all()


def test_a_step_never_waits_for_the_device(model, points):
    batch = Samples(points, torch.arange(3), np.arange(3))
    with NothingCopied():
        loss = ClassifySamples().loss_sum(model.train(), batch)
        loss.backward()
    assert loss.isfinite()


def test_a_hidden_value_is_not_seen_but_its_time_is(config, points, shake):
    import dataclasses

    model = shake(build(dataclasses.replace(config, labels=())), 2.0).double().eval()
    hidden = torch.zeros(3, 9, dtype=torch.bool)
    hidden[0, 2] = hidden[1, 3] = True
    before, _ = model.states(*points, hidden)
    other = list(points)
    other[1] = other[1].masked_fill(hidden, 77.0)
    other[2] = other[2].masked_fill(hidden, 7.0)
    close(model.states(*other, hidden)[0], before, rtol=0, atol=0)
    other = list(points)
    other[0] = other[0] + hidden * 0.3
    assert (model.states(*other, hidden)[0] - before).abs().max() > 1e-4
    told = model.filled(before)
    assert told.shape == (3, before.size(1) - 1, config.patch)
    told.square().sum().backward()
    idle = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not idle
    with pytest.raises(ConfigError, match="has no classes"):
        model.scores(before[:, 0])


def test_filling_in_counts_hidden_points_alone(points, shake):
    """By hand: Huber's loss of each hidden point, in the measure of what is seen of its own band."""
    import dataclasses

    model = shake(build(dataclasses.replace(SERIES["series-mean"], labels=())), 2.0).double().eval()
    hidden = torch.zeros(3, 9, dtype=torch.bool)
    hidden[0, 2] = hidden[0, 5] = hidden[2, 6] = True
    hidden[1, 8] = True  # padding
    batch = Samples((*points, hidden), (hidden & REAL).sum(1), np.arange(3))
    _, values, _, bands, lengths, _ = points
    told, total = model.filled(model.states(*points, hidden)[0]).detach(), 0.0
    for b, t in ((0, 2), (0, 5), (2, 6)):
        seen = [i for i in range(int(lengths[b])) if not hidden[b, i]]
        levels = {k: np.mean([float(values[b, i]) for i in seen if bands[b, i] == k]) for k in (0, 1)}
        spread = math.sqrt(np.mean([(float(values[b, i]) - levels[int(bands[b, i])]) ** 2 for i in seen]))
        miss = abs(float(told[b, t, 0]) - (float(values[b, t]) - levels[int(bands[b, t])]) / spread)
        total += miss**2 / 2 if miss < 1 else miss - 0.5
    task = FillSeriesLoss()
    assert task.count(batch) == 3
    assert float(task.loss_sum(model, batch).detach()) == pytest.approx(total, rel=1e-3)
    assert task.held_out(model, [batch])["loss"] == pytest.approx(total / 3, rel=1e-3)


def test_a_hidden_point_counts_once_however_many_patches_it_is_in(config, points, shake):
    import dataclasses

    model = shake(build(dataclasses.replace(config, labels=())), 2.0).double().eval()
    hidden = (torch.arange(27).view(3, 9) % 3 == 1) & REAL
    batch, task = Samples((*points, hidden), hidden.sum(1), np.arange(3)), FillSeriesLoss()
    mean = float(task.loss_sum(model, batch).detach()) / task.count(batch)
    assert task.held_out(model, [batch])["loss"] == pytest.approx(mean)


def test_constant_and_single_point_series_are_accepted(model):
    flat = torch.full((2, 4), 5.0).double()
    times = torch.arange(4.0).double().expand(2, 4)
    out = scores(model, (times, flat, None, None, torch.tensor([4, 1]), torch.zeros(2, 1).double()))
    assert out.isfinite().all()
    out.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_settings_that_cannot_be_are_refused(points):
    for settings, says in (
        (dict(width=15), "15 is not divisible by 4 heads"),
        (dict(time="clock"), "no time 'clock'; there are: waves, modulation"),
        (dict(origin="last"), "no origin 'last'; there are: first, peak"),
        (dict(pooling="max"), "no pooling 'max'"),
        (dict(patch=0), "model.patch is 0"),
        (dict(tick=2.0, span=1.0), "model.tick is 2.0"),
    ):
        with pytest.raises(ConfigError, match=says):
            SeriesTransformerConfig(**settings)
    with pytest.raises(ConfigError, match="no cell 'cnn'"):
        SeriesRecurrentConfig(cell="cnn")
    with pytest.raises(ShapeError, match="B=3"):
        build(SERIES["series-mean"])(points[0], points[1][:2])


# -- forecasts ----------------------------------------------------------------------------------------------------


@pytest.fixture
def forecaster(shake):
    model = shake(build(FORECASTER), 2.0)
    with torch.no_grad():  # it starts at zero, where nothing is seen of it
        model.straight.weight.normal_(generator=torch.Generator().manual_seed(5))
    return model.double().eval()


@pytest.fixture
def past():
    return torch.randn(3, 13, 2, generator=torch.Generator().manual_seed(2)).double().cumsum(1)


def test_forecasts_follow_level_and_scale(forecaster, past):
    """Reversible: another unit in, the same forecast in that unit out."""
    told = forecaster(past)
    assert told.shape == (3, 5, 2, 4)
    close(forecaster(past * 10 - 3), told * 10 - 3, rtol=1e-3, atol=1e-3)


def test_columns_know_nothing_of_each_other_and_share_all_weights(forecaster, past):
    told = forecaster(past)
    other = past.clone()
    other[:, :, 1] = 0
    close(forecaster(other)[:, :, 0], told[:, :, 0], rtol=0, atol=0)
    close(forecaster(past.flip(2)), told.flip(2))


def test_the_patches_of_a_forecast_see_all_of_its_past(forecaster, past):
    torch.nn.init.zeros_(forecaster.straight.weight)
    patches = forecaster.patches(torch.arange(13.0)[None])[0]
    assert patches[-1].tolist() == [9, 10, 11, 12] and patches[0].tolist() == [0, 0, 1, 2], "the newest is always whole"
    past.requires_grad_()
    forecaster(past)[0, 0, 0, 0].backward()
    reach = past.grad.abs()
    assert (reach[0, :, 0] > 0).all() and reach[0, :, 1].sum() == 0 and reach[1:].sum() == 0


def test_the_loss_of_a_forecast_is_the_one_worked_out_by_hand(forecaster, past):
    from sklearn.metrics import mean_pinball_loss

    future = torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(4)).double()
    forecaster.spread.copy_(torch.tensor([2.0, 0.5]))
    batch, task = Samples((past,), future, np.arange(3)), ForecastLoss()
    told = forecaster(past).detach() / forecaster.spread[:, None]
    truth = future / forecaster.spread
    square = float((truth - told[..., 0]).square().sum())
    pinball = [
        mean_pinball_loss(truth.flatten(), told[..., 1 + i].flatten(), alpha=q) * truth.numel()
        for i, q in enumerate((0.1, 0.5, 0.9))
    ]
    loss = float(task.loss_sum(forecaster, batch).detach())
    assert task.count(batch) == 30 and loss == pytest.approx(square + sum(pinball))
    found = task.held_out(forecaster, [batch.part(slice(0, 1)), batch.part(slice(1, 3))])
    inside = ((told[..., 1] <= truth) & (truth <= told[..., 3])).double().mean()
    assert found["loss"] == pytest.approx(square / 30) and found["inside"] == pytest.approx(float(inside))
    assert found["mae"] == pytest.approx(float((truth - told[..., 0]).abs().mean()))


def test_a_step_of_forecasting_never_waits_for_the_device(forecaster, past):
    batch, task = Samples((past,), torch.zeros(3, 5, 2).double(), np.arange(3)), ForecastLoss()
    with NothingCopied():
        loss = task.loss_sum(forecaster, batch)
    assert loss.isfinite()


def test_settings_of_a_forecaster_that_cannot_be_are_refused(forecaster, past):
    for settings, says in (
        (dict(patch=400), "longer than the look-back of 336"),
        (dict(quantiles=(0.9, 0.1)), "must be increasing"),
        (dict(width=10), "10 is not divisible by 4 heads"),
        (dict(horizon=0), "model.horizon is 0"),
    ):
        with pytest.raises(ConfigError, match=says):
            ForecasterConfig(**settings)
    with pytest.raises(ShapeError, match="L=13"):
        forecaster(past[:, 1:])


def test_gaps_do_not_count_in_the_loss_of_a_forecast(forecaster, past):
    future = torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(4)).double()
    gaps = torch.zeros(3, 5, 2, dtype=torch.bool)
    gaps[0, 1:3] = gaps[2, :, 1] = True
    whole, task = Samples((past,), future, np.arange(3)), ForecastLoss()
    holed = Samples((past,), future.masked_fill(gaps, torch.nan), np.arange(3))
    assert task.count(holed) == 30 - 9
    perfect = Samples((past,), torch.where(gaps, forecaster(past)[..., 0].detach(), future), np.arange(3))
    miss = ((future - forecaster(past)[..., 0]) / forecaster.spread)[~gaps].detach()
    scores = task.held_out(forecaster, [holed])
    assert scores["loss"] == pytest.approx(float(miss.square().mean()))
    assert scores["mae"] == pytest.approx(float(miss.abs().mean()))
    assert task.loss_sum(forecaster, holed) < task.loss_sum(forecaster, whole)
    assert task.held_out(forecaster, [perfect])["loss"] == pytest.approx(float(miss.square().sum()) / 30)
    task.loss_sum(forecaster, holed).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in forecaster.parameters())


def test_a_future_covariate_moves_its_own_step_alone(shake, past):
    model = shake(build(dataclasses.replace(FORECASTER, covariates=("price", "holiday"))), 2.0).double().eval()
    with torch.no_grad():
        model.ahead[-1].weight.normal_(generator=torch.Generator().manual_seed(5))
        model.covariate_mean.copy_(torch.tensor([3.0, 0.1]))
    beside = torch.randn(3, 18, 2, generator=torch.Generator().manual_seed(6)).double()
    forecast, other = model(past, beside), beside.clone()
    other[:, 13 + 2, 1] += 1
    moved = (model(past, other) - forecast).abs().amax((0, 2, 3))
    assert moved[2] > 1e-3 and moved[[0, 1, 3, 4]].max() == 0
    other = beside.clone()
    other[:, 4, 0] += 1
    assert ((model(past, other) - forecast).abs().amax((0, 2, 3)) > 0).all(), "a past one moves all of them"
    missing, mean = beside.clone(), beside.clone()
    missing[:, 7, 0], mean[:, 7, 0] = torch.nan, 3.0
    close(model(past, missing), model(past, mean), rtol=0, atol=0)
    close(model(past.flip(2), beside), forecast.flip(2))
