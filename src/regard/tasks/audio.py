"""Classes of short clips of sound."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.batch import Samples
from regard.data.clips import AudioConfig, ClipSource, load_clips
from regard.data.folders import Say
from regard.data.loader import FixedSize, Loader, class_odds, in_order
from regard.errors import ConfigError
from regard.models import build, config_for
from regard.models.sound_classifier import SoundClassifierConfig
from regard.objectives.classify import ClassifySamples
from regard.tasks.common import Parts, Preset, class_scores, model_card, write_folder
from regard.train.optim import Optim
from regard.train.run import Run
from regard.train.schedule import Schedule

ARCH = "transformer"
UNKNOWN = ("LABEL_0", "LABEL_1")  # until the data is read
VALID_BATCH = 64
FRAMES = 100  # of a clip, when memory is estimated

PRESETS = {
    "cpu": Preset(
        size="tiny",
        settings={},
        minutes=4.0,
        batch=32,
        precision="fp32",
        dropout=0.1,
        optim=Optim(name="adamw", lr=1e-3, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.05),
        schedule=Schedule(kind="linear", warmup=100),
    ),
    "cuda": Preset(
        size="small",
        settings={},
        minutes=3.0,
        batch=64,
        precision="bf16",
        dropout=0.1,
        optim=Optim(name="adamw", lr=1e-3, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.05),
        schedule=Schedule(kind="linear", warmup=200),
    ),
}


def default_run(arch: str, size: str, data: AudioConfig, device: str) -> Run:
    if not (data.name or data.path):
        raise ConfigError("train on what? type: regard train audio --data clips/, with a folder for each class")
    preset = PRESETS[device]
    settings = {"dropout": preset.dropout, "labels": UNKNOWN, "mels": data.mels, "frames": data.frames}
    return Run(
        task="audio",
        model=config_for(arch, size or preset.size, task="audio", **settings),
        data=data,
        optim=preset.optim,
        schedule=preset.schedule,
        minutes=preset.minutes,
        batch=preset.batch,
        precision=preset.precision,
        smoothing=0.0,
        average=False,
        keep=1,
    )


def follows(run: Run) -> dict[str, Any]:
    """The settings of the model that are the data's."""
    data = run.data
    assert isinstance(data, AudioConfig)
    return {"mels": data.mels, "frames": data.frames}


def make_objective(run: Run, labels: tuple[str, ...] = (), say: Say | None = None) -> ClassifySamples:
    return ClassifySamples(run.smoothing, scores=class_scores(run, labels, say))


def assemble(run: Run, device: str, say: Say) -> Parts:
    config = run.data
    assert isinstance(config, AudioConfig)
    data = load_clips(config, say)
    say(data.report())
    assert isinstance(run.model, SoundClassifierConfig)
    run = dataclasses.replace(run, model=dataclasses.replace(run.model, labels=data.labels))
    torch.manual_seed(run.seed)
    model = build(run.model).to(device)
    source, valid = ClipSource(data.train, config.masks, config.widest), ClipSource(data.valid)
    odds = class_odds(data.train.labels) if config.balanced else None
    loader = Loader(source, FixedSize(run.batch, odds), run.seed, files=data.files)
    common = np.bincount(data.train.labels).argmax()
    say(
        f"an epoch is {loader.batches_per_epoch:,} batches; to beat: accuracy "
        f"{(data.valid.labels == common).mean():.1%} of the commonest class"
    )
    return Parts(
        run=run,
        model=model,
        objective=make_objective(run, data.labels, say),
        loader=loader,
        valid_batches=lambda: (batch.to(device) for batch in in_order(valid, FixedSize(VALID_BATCH))),
        metric=None,
        save_model=lambda folder, model: write_model(folder, model, run),
    )


def example(run: Run) -> Samples:
    data = run.data
    assert isinstance(data, AudioConfig)
    frames = min(FRAMES, data.frames)
    pictures = torch.zeros(run.batch, data.mels, frames)
    lengths = torch.full((run.batch,), frames)
    return Samples((pictures, lengths), torch.zeros(run.batch, dtype=torch.long), np.arange(run.batch))


def write_model(folder: Path, model: Any, run: Run) -> None:
    data = run.data
    assert isinstance(data, AudioConfig)
    what = dict(pipeline="audio-classification", what="A classifier of clips of sound", verb="classify")
    card = model_card(run, model, **what, data=data.name or data.path)
    write_folder(folder, run, model, {"name": data.name}, {}, card)
