"""A forecaster starts as the linear map of the past that it is compared with, and is not kept if it becomes worse."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

from regard import checkpoint
from regard.data.history import HistoryConfig, read_parts
from regard.data.loader import FixedSize, in_order
from regard.metrics.forecast import LinearForecast
from regard.objectives.forecast import ForecastLoss
from regard.tasks import assemble, default_run, train_run
from regard.training.loop import train
from regard.training.settings import Optim, Schedule

close = torch.testing.assert_close
LOOKBACK, HORIZON = 12, 4


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Two columns in different units; one drifts, the other has gaps of its own, and a day is missing."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    rng, days = np.random.default_rng(0), np.arange(400)
    high = 100 * (np.sin(days / 2) + 0.02 * days) + 20 * rng.normal(size=400)
    low = np.cumsum(rng.normal(size=400))
    cells = [f"{x:.5f}" if d % 23 else "" for d, x in enumerate(low)]
    first = np.datetime64("2020-01-01")
    lines = [f"{first + d},{high[d]:.3f},{cells[d]}" for d in days if d != 150]
    (tmp_path / "table.csv").write_text("\n".join(["date,high,low", *lines]))
    data = HistoryConfig(path="table.csv", lookback=LOOKBACK, horizon=HORIZON, season=1)
    return dataclasses.replace(default_run("forecast", data=data).with_model(patch=4, stride=2, dropout=0.0), steps=6)


def test_a_forecaster_starts_as_the_baseline(run):
    parts, data = assemble(run, say=lambda _: None), read_parts(run.data, lambda _: None)
    model, linear = parts.model.double().eval(), LinearForecast(data.train, data.valid, data.spread)
    linear.map = linear.map.double()
    assert not model.straight.weight.requires_grad
    for windows in (data.train, data.test):
        for batch in in_order(windows, FixedSize(256)):
            past = batch.inputs[0].double()
            forecast, expected = model(past).detach(), linear(past)
            close((forecast[..., 0] - expected) / model.spread, torch.zeros_like(expected), rtol=0, atol=1e-6)
            low, middle, high = forecast[..., 1:].unbind(-1)
            assert (low < middle).all() and (middle < high).all()
    anything = torch.randn(5, LOOKBACK, 2, generator=torch.Generator().manual_seed(1)).double() * 50 - 7
    close(model(anything)[..., 0].detach(), linear(anything), rtol=1e-6, atol=1e-4)


def test_the_first_quantiles_are_those_of_the_errors_in_training(run):
    parts, data = assemble(run, say=lambda _: None), read_parts(run.data, lambda _: None)
    batch = data.train.batch(np.arange(len(data.train)))
    assert batch.targets.isnan().any()
    forecast = parts.model.train()(*batch.inputs).detach()
    there = ~batch.targets.isnan()
    for i, q in enumerate((0.1, 0.5, 0.9)):
        below = (batch.targets < forecast[..., 1 + i]) & there
        close(below.sum((0, 2)) / there.sum((0, 2)), torch.full((HORIZON,), q), rtol=0, atol=0.01)


def test_drift_is_neither_learned_nor_forecast(run):
    """No constant lowers the training loss: its derivative is zero. Forecasts have no constant either."""
    run = run.with_model(quantiles=())
    parts, data = assemble(run, say=lambda _: None), read_parts(run.data, lambda _: None)
    model = parts.model.double()
    whole = data.train.batch(np.arange(len(data.train)))
    batch = dataclasses.replace(whole, inputs=(whole.inputs[0].double(),), targets=whole.targets.double())
    ForecastLoss().loss_sum(model.train(), batch).backward()
    slope = model.head.bias.grad.clone()
    model.zero_grad()
    ForecastLoss().loss_sum(model.eval(), batch).backward()
    assert slope.abs().max() < 1e-3 * model.head.bias.grad.abs().max()
    flat = torch.full((1, LOOKBACK, 2), 3.0).double()
    close(model.eval()(flat).detach(), torch.full((1, HORIZON, 2, 1), 3.0).double())


def test_a_model_worse_than_the_baseline_is_not_kept(run, tmp_path, capsys):
    spoilt = dataclasses.replace(run, optim=Optim(name="adamw", lr=10.0), schedule=Schedule(warmup=1), eval_every=3)
    result = train_run(spoilt, tmp_path / "run")
    assert result.kept == "step 0"
    said = capsys.readouterr().err
    assert "NO BETTER THAN THE BASELINE" in said and "kept as it started" in said and "train longer" not in said
    linear = next(b for b in assemble(run, say=lambda _: None).baselines if "linear" in b.name)
    assert result.best["held_out_loss"] == pytest.approx(linear.value, rel=1e-4)
    events = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    losses = {e["step"]: e["held_out_loss"] for e in events if "held_out_loss" in e and not e.get("final")}
    assert list(losses) == [0, 3, 6] and min(losses, key=losses.__getitem__) == 0


def test_training_leaves_the_linear_map_alone(run, tmp_path):
    parts = assemble(run, say=lambda _: None)
    before = {name: p.detach().clone() for name, p in parts.model.named_parameters()}
    learned = dataclasses.replace(run, data=parts.run.data, steps=40, eval_every=40, schedule=Schedule(warmup=1))
    train(dataclasses.replace(parts, run=learned), tmp_path / "run", quiet=True)
    tensors, _ = checkpoint.load_state(tmp_path / "run/state.safetensors")
    assert torch.equal(tensors["model.straight.weight"], before["straight.weight"])
    assert not torch.equal(tensors["model.head.weight"], before["head.weight"])
    assert math.isfinite(float(tensors["model.head.weight"].sum()))
