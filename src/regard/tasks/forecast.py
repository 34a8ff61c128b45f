"""Forecasting: a table over time, its windows, and the simple forecasts to beat."""

import dataclasses
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.batch import Samples
from regard.data.folders import Say
from regard.data.history import HistoryConfig, HistoryParts, Windows, read_parts
from regard.data.loader import FixedSize, Loader, in_order
from regard.errors import ConfigError
from regard.evaluate.forecast import Errors, season_of, to_beat
from regard.models import build, config_for
from regard.models.forecaster import ForecasterConfig
from regard.objectives.forecast import Forecast
from regard.tasks.common import Parts, model_card, write_folder
from regard.train.optim import Optim
from regard.train.run import Run
from regard.train.schedule import Schedule

ARCH = "transformer"


def default_run(arch: str, size: str, data: HistoryConfig, device: str) -> Run:
    if not (data.name or data.path):
        raise ConfigError("train on what? type: regard train forecast --data prices.csv --target close --horizon 96")
    windows = dict(lookback=data.lookback, horizon=data.horizon, patch=min(16, data.lookback))
    return Run(
        task="forecast",
        model=config_for(arch, size or "tiny", task="forecast", **windows),
        data=data,
        optim=Optim(name="adamw", lr=1e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.01),
        schedule=Schedule(kind="linear", warmup=100),
        minutes=3.0,
        batch=32 if device == "cpu" else 128,
        precision="fp32" if device == "cpu" else "bf16",
        smoothing=0.0,
        average=False,
        keep=1,
    )


def follows(run: Run) -> dict[str, Any]:
    """What the model takes from the settings of its data."""
    data, config = run.data, run.model
    assert isinstance(data, HistoryConfig) and isinstance(config, ForecasterConfig)
    patch = min(config.patch, data.lookback)
    return dict(lookback=data.lookback, horizon=data.horizon, columns=data.target or ("value",), patch=patch)


def make_objective(_: Run) -> Forecast:
    return Forecast()


def assemble(run: Run, device: str, say: Say) -> Parts:
    data, config = run.data, run.model
    assert isinstance(data, HistoryConfig) and isinstance(config, ForecasterConfig)
    parts = read_parts(data, say)
    known = dict(columns=parts.history.columns, lookback=data.lookback, horizon=data.horizon)
    config = dataclasses.replace(config, **known)
    run = dataclasses.replace(run, model=config)
    torch.manual_seed(run.seed)
    model: Any = build(config)
    model.spread.copy_(torch.from_numpy(parts.spread))
    model = model.to(device)
    content = zlib.crc32(np.ascontiguousarray(parts.history.values[: parts.rows]).tobytes())
    loader = Loader(parts.train, FixedSize(run.batch), run.seed, content=content)
    for row in beside(parts, parts.valid, data, parts.spread):
        say(f"to beat on the validation windows: {row.name}, squared error {row.mse:.4f}, absolute {row.mae:.4f}")
    return Parts(
        run=run,
        model=model,
        objective=make_objective(run),
        loader=loader,
        valid_batches=lambda: (batch.to(device) for batch in in_order(parts.valid, FixedSize(256))),
        metric=None,
        save_model=lambda folder, model: write_model(folder, model, run),
    )


def beside(parts: HistoryParts, windows: Windows, data: HistoryConfig, spread: np.ndarray) -> list[Errors]:
    """What simple forecasts get on the same windows, in units of `spread`."""
    season = data.season or season_of(parts.history.values[: parts.rows], data.lookback)
    return to_beat(parts.train, windows, spread, season)


def example(run: Run) -> Samples:
    c = run.model
    assert isinstance(c, ForecasterConfig)
    shape = (run.batch, c.lookback, len(c.columns))
    return Samples((torch.zeros(shape),), torch.zeros(run.batch, c.horizon, len(c.columns)), np.arange(run.batch))


def write_model(folder: Path, model: Any, run: Run) -> None:
    data = run.data
    assert isinstance(data, HistoryConfig)
    what = dict(pipeline="time-series-forecasting", what="A forecaster", verb="forecast")
    card = model_card(run, model, **what, data=data.name or data.path)
    write_folder(folder, run, model, {"name": data.name, "time": data.time}, {}, card)
