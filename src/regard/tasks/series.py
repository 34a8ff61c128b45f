"""Series: a classifier of curves, from nothing or from a model that learned to fill in hidden values."""

import dataclasses
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.batch import Samples
from regard.data.folders import Say
from regard.data.loader import FixedSize, Loader, class_odds, in_order
from regard.data.series import Curves, SeriesConfig, read_parts
from regard.data.series_batch import HiddenSource, SeriesSource
from regard.errors import ConfigError
from regard.evaluate.series import balanced_accuracy, nearest, weighted_log_loss
from regard.models import build, config_for
from regard.models.published import load_model, read_config
from regard.models.series import SeriesFields, SeriesTokens
from regard.objectives.classify import ClassifySamples
from regard.objectives.fill_series import FillSeries
from regard.tasks.common import Parts, class_scores, model_card, write_folder
from regard.train.optim import Optim
from regard.train.run import Run
from regard.train.schedule import Schedule

UNKNOWN = ("LABEL_0", "LABEL_1")  # until the data is read
COLUMNS = ("id", "time", "value", "error", "band", "label")


def default_run(task: str, arch: str, size: str, data: SeriesConfig, device: str) -> Run:
    if not (data.name or data.path):
        label = " --label class" if task == "series" else ""
        raise ConfigError(f"train on what? type: regard train {task} --data curves.csv{label}")
    cpu = device == "cpu"
    labels = UNKNOWN if task == "series" else ()
    return Run(
        task=task,
        model=config_for(arch, size or ("tiny" if cpu else "small"), task=task, labels=labels),
        data=data,
        optim=Optim(name="adamw", lr=1e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.01),
        schedule=Schedule(kind="linear", warmup=50),
        minutes=3.0,
        batch=32 if cpu else 128,
        precision="fp32" if cpu else "bf16",
        smoothing=0.0,
        average=False,
        keep=1,
    )


def finetune_run(task: str, start: Path, data: SeriesConfig, device: str, lora: int) -> Run:
    config = read_config(start)
    if not isinstance(config, SeriesFields):
        raise ConfigError(
            f"{start} knows no series; train one that fills in: regard train fill-series --data curves.csv"
        )
    if lora:
        raise ConfigError("a model of series is small: fine-tune all of it, without --lora")
    run = default_run(task, "transformer", "", data, device)
    labels = UNKNOWN if task == "series" else ()
    optim = dataclasses.replace(run.optim, lr=run.optim.lr / 2)
    model: Any = dataclasses.replace(config, labels=labels)
    return dataclasses.replace(run, model=model, start=str(start.absolute()), optim=optim)


def make_objective(run: Run, labels: tuple[str, ...] = (), say: Say | None = None) -> Any:
    if run.task == "fill-series":
        return FillSeries()

    def more(true: np.ndarray, guessed: np.ndarray) -> dict[str, float]:
        return {"balanced_accuracy": balanced_accuracy(true, guessed)}

    return ClassifySamples(run.smoothing, scores=class_scores(run, labels, say, more))


def assemble(run: Run, device: str, say: Say) -> Parts:
    data = run.data
    assert isinstance(data, SeriesConfig)
    parts = read_parts(data, say, labelled=run.task == "series")
    train, valid, labels = parts.train, parts.valid, tuple(sorted({*parts.train.labels} - {""}))
    if data.balanced and (not labels or "" in train.labels):
        raise ConfigError("data.balanced goes by the labels, and not all of these series have one; leave it out")
    told(train, valid, data, say)
    run = dataclasses.replace(run, model=fitted(run, train, labels))
    kind = HiddenSource if run.task == "fill-series" else SeriesSource
    source = kind(train, labels, data.max_length, data.window, data.jitter, data.hide, data.thin)
    held = kind(valid, labels, data.max_length)
    torch.manual_seed(run.seed)
    model: Any = build(run.model)
    measure_(model.tokens, SeriesSource(train, labels, data.max_length))
    if run.start:
        say(f"new, drawn by chance: {', '.join(begin_from_(model, load_model(Path(run.start)))) or 'nothing'}")
    model = model.to(device)
    odds = class_odds(source.targets) if data.balanced else None
    content = zlib.crc32(train.values.tobytes(), zlib.crc32("\t".join([*train.ids, *train.labels]).encode()))
    loader = Loader(source, FixedSize(run.batch, odds), run.seed, content=content)
    metric = None
    if run.task == "series":
        say(f"to beat on the held-out part: {baseline(train, valid)}")
        if data.weights:
            metric = weighted(data, labels, held, run.batch, device)
    return Parts(
        run=run,
        model=model,
        objective=make_objective(run, labels, say),
        loader=loader,
        valid_batches=lambda: (batch.to(device) for batch in in_order(held, FixedSize(run.batch))),
        metric=metric,
        save_model=lambda folder, model: write_model(folder, model, run),
    )


def told(train: Curves, valid: Curves, data: SeriesConfig, say: Say) -> None:
    common = Counter(label for label in train.labels if label).most_common()
    shown = [f"{label} {n:,} ({n / len(train):.1%})" for label, n in common]
    shown = shown if len(shown) <= 14 else [*shown[:14], f"and {len(shown) - 14} more"]
    points = f"{int(train.lengths.min())} to {int(train.lengths.max())} points, {len(train.band_names)} bands"
    say(f"{len(train):,} series to train on, {len(valid):,} for validation; {points}")
    say(
        f"{len(common)} labels: {', '.join(shown)}"
        if common
        else "no labels: the held-out part is drawn from all alike"
    )
    if cut := int((train.lengths > data.max_length).sum()):
        say(f"cut {cut:,}: longer than {data.max_length} points (--set data.max_length=…)")


def fitted(run: Run, train: Curves, labels: tuple[str, ...]) -> Any:
    """The model's settings with what the data tells: its classes, bands, and the measure of its times."""
    data, model = run.data, run.model
    assert isinstance(data, SeriesConfig) and isinstance(model, SeriesFields)
    spans = train.times[train.offsets[1:] - 1] - train.times[train.offsets[:-1]]
    span, tick = float(spans.max()), float(np.median(spans / np.maximum(1, train.lengths - 1)))
    if not span:  # one point each
        span = tick = 1.0
    if run.start:  # a model that was trained keeps its measure of time
        tick, span = model.tick, model.span
    known = dict(bands=train.band_names, known=data.known, tick=tick or span, span=span)
    return dataclasses.replace(model, labels=labels if run.task == "series" else (), **known)


def measure_(tokens: SeriesTokens, source: SeriesSource) -> None:
    """Tell the first token what is usual: mean and spread of what it reads, over the training part."""
    found = []
    for batch in in_order(source, FixedSize(256)):
        found.append(tokens.told(*batch.inputs))
    every = torch.cat(found)
    mean = every.nanmean(0).nan_to_num(0.0)  # of a number known of no object, whatever
    spread = torch.where(every.isnan(), mean, every).std(0, correction=0)
    tokens.usual.copy_(torch.stack((mean, torch.where(spread > 1e-6, spread, 1.0))))


def begin_from_(model: Any, started: Any) -> list[str]:
    """Copy what both have in the same shape; the parts that begin by chance."""
    theirs, mine = started.state_dict(), model.state_dict()
    fits = {name: t for name, t in theirs.items() if name in mine and mine[name].shape == t.shape}
    model.load_state_dict(mine | fits)
    return sorted({name.split(".")[0] for name in mine if name not in fits})


@dataclass(frozen=True)
class Baseline:
    """What neighbours by summaries get right, and what always naming the commonest label would; and how many of each
    class the former find, on average."""

    nearest: float
    balanced: float
    majority: float

    def __str__(self) -> str:
        return (
            f"accuracy {self.nearest:.1%} (balanced {self.balanced:.1%}) of the nearest by summary, "
            f"{self.majority:.1%} of the commonest label"
        )


def baseline(train: Curves, test: Curves) -> Baseline:
    true, found = np.array(test.labels), np.array(nearest(train, test))
    common = max(sorted(set(train.labels)), key=train.labels.count)
    return Baseline(float((true == found).mean()), balanced_accuracy(true, found), float((true == common).mean()))


def class_weights(data: SeriesConfig, labels: tuple[str, ...]) -> list[float]:
    given = {name: float(weight) for name, weight in (pair.rsplit("=", 1) for pair in data.weights)}
    if strange := set(given) - set(labels):
        raise ConfigError(f"data.weights names {', '.join(sorted(strange))}; the classes are: {', '.join(labels)}")
    return [given.get(label, 1.0) for label in labels]


def weighted(data: SeriesConfig, labels: tuple[str, ...], held: SeriesSource, batch: int, device: str) -> Any:
    weights = class_weights(data, labels)

    def metric(model: Any) -> dict[str, float]:
        likely = probabilities(model, held, batch, device)
        return {"weighted_loss": weighted_log_loss(likely, held.targets, weights)}

    return metric


@torch.no_grad()
def probabilities(model: Any, source: SeriesSource, batch: int, device: str) -> np.ndarray:
    """N L of the classes."""
    found = [
        model.scores(model(*b.to(device).inputs)).double().softmax(-1).cpu() for b in in_order(source, FixedSize(batch))
    ]
    return torch.cat(found).numpy()


def example(run: Run) -> Samples:
    data, model = run.data, run.model
    assert isinstance(data, SeriesConfig) and isinstance(model, SeriesFields)
    points = torch.zeros(run.batch, min(data.window or data.max_length, data.max_length))
    known = torch.zeros(run.batch, len(data.known)) if data.known else None
    whole = (points, points, None, None, None, known)
    hidden = (torch.ones_like(points, dtype=torch.bool),) if run.task == "fill-series" else ()
    return Samples((*whole, *hidden), torch.zeros(run.batch, dtype=torch.long), np.arange(run.batch))


def write_model(folder: Path, model: Any, run: Run) -> None:
    data = run.data
    assert isinstance(data, SeriesConfig)
    fills = run.task == "fill-series"
    verb, what = ("finetune", "A model of series") if fills else ("classify", "A classifier of series")
    card = model_card(run, model, pipeline="time-series", what=what, verb=verb, data=data.name or data.path)
    columns = {name: value for name in COLUMNS if (value := getattr(data, name))}
    known = {"name": data.name, "max_length": data.max_length, **columns}
    write_folder(folder, run, model, known, {}, card)


@dataclass(frozen=True)
class Kit:
    """A task as `regard.tasks` asks for it."""

    task: str
    ARCH = "transformer"

    def default_run(self, arch: str, size: str, data: SeriesConfig, device: str) -> Run:
        return default_run(self.task, arch, size, data, device)

    def follows(self, run: Run) -> dict[str, Any]:
        """What the model takes from the settings of its data; the rest is known when it is read."""
        return {}

    finetune_run = staticmethod(finetune_run)
    assemble = staticmethod(assemble)
    make_objective = staticmethod(make_objective)
    example = staticmethod(example)


KITS = {task: Kit(task) for task in ("series", "fill-series")}
