"""Classes of rows: a table of numbers and categories, and an MLP."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.batch import Samples
from regard.data.features import RowSource, TableConfig, TableData, load_table, write_columns
from regard.data.folders import Say
from regard.data.loader import FixedSize, Loader, class_odds, in_order
from regard.errors import ConfigError
from regard.models import build, config_for
from regard.models.plain import MLPConfig
from regard.objectives.classify import ClassifySamples
from regard.tasks.common import Parts, class_scores, model_card, write_folder
from regard.train.optim import Optim
from regard.train.run import Run
from regard.train.schedule import Schedule

ARCH = "mlp"
INPUTS = 32  # until the table is read
VALID_BATCH = 1024


def default_run(arch: str, size: str, data: TableConfig, _device: str) -> Run:
    if not data.path:
        raise ConfigError("train on what? type: regard train classify --data students.csv --label passed --arch mlp")
    settings: dict[str, Any] = {} if size else {"width": 64, "layers": 2}
    return Run(
        task="table",
        model=config_for(arch, size or "tiny", task="table", shape=(INPUTS,), dropout=0.2, **settings),
        data=data,
        optim=Optim(name="adamw", lr=2e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.01),
        schedule=Schedule(kind="linear", warmup=20),
        epochs=40.0,
        batch=32,
        smoothing=0.0,
        average=False,
        keep=1,
    )


def follows(_run: Run) -> dict[str, Any]:
    """Of the model's settings none is known before the table is read."""
    return {}


def make_objective(run: Run, labels: tuple[str, ...] = (), say: Say | None = None) -> ClassifySamples:
    return ClassifySamples(run.smoothing, scores=class_scores(run, labels, say))


def assemble(run: Run, device: str, say: Say) -> Parts:
    config = run.data
    assert isinstance(config, TableConfig) and isinstance(run.model, MLPConfig)
    data = load_table(config)
    say(data.report())
    mean, std = data.spread()
    shape = (data.train.features.shape[1],)
    run = dataclasses.replace(
        run, model=dataclasses.replace(run.model, shape=shape, labels=data.labels, mean=mean, std=std)
    )
    torch.manual_seed(run.seed)
    model: Any = build(run.model).to(device)
    counts = np.bincount(data.train.labels, minlength=len(data.labels))
    odds = class_odds(data.train.labels) if config.balanced else None
    common = float((data.valid.labels == counts.argmax()).mean())
    say(f"to beat on the held-out part: accuracy {common:.1%} of the commonest class")
    return Parts(
        run=run,
        model=model,
        objective=make_objective(run, data.labels, say),
        loader=Loader(RowSource(data.train), FixedSize(run.batch, odds), run.seed, content=data.content),
        valid_batches=lambda: (batch.to(device) for batch in in_order(RowSource(data.valid), FixedSize(VALID_BATCH))),
        metric=None,
        save_model=lambda folder, model: write_model(folder, model, run, data),
    )


def example(run: Run) -> Samples:
    assert isinstance(run.model, MLPConfig)
    return Samples((torch.zeros(run.batch, *run.model.shape),), torch.zeros(run.batch).long(), np.arange(run.batch))


def write_model(folder: Path, model: Any, run: Run, data: TableData) -> None:
    config = run.data
    assert isinstance(config, TableConfig)
    card = model_card(
        run, model, pipeline="tabular-classification", what="A classifier of rows", verb="classify", data=config.path
    )
    write_folder(folder, run, model, {"label": data.label}, {}, card)
    write_columns(folder, data.label, data.columns)
