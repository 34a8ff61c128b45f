"""Labels: a classifier of texts or pairs, or a tagger of words, from nothing or on top of a published encoder."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.batch import Labelled, collate_labelled
from regard.data.folders import Say
from regard.data.labelled import LabelledConfig, PreparedLabels, Rows, prepare_labels, read_parts
from regard.data.loader import Loader, in_order
from regard.data.sources import LabelledSource
from regard.errors import ConfigError
from regard.evaluate.labels import BagOfWords, entity_score, is_iob
from regard.models import build, config_for
from regard.models.bert import Bert, BertConfig
from regard.models.published import load_model, read_config
from regard.nn.lora import add_lora_
from regard.objectives.classify import Classify, Scores, balanced_weights
from regard.objectives.tag import Tag
from regard.tasks.common import Parts, Preset, class_scores, model_card, write_folder
from regard.train.optim import Optim
from regard.train.run import Run
from regard.train.schedule import Schedule

HEADS = {"classify": "sequence", "pair": "sequence", "tag": "token"}
UNKNOWN = ("LABEL_0", "LABEL_1")  # until the data is read
LENGTH = 32  # pieces of a text, when memory is estimated
NEW = ("classifier", "pooler")  # parts of a fine-tuned encoder that may begin by chance; with LoRA they are trained

PRESETS: dict[tuple[str, str], Preset] = {
    ("cpu", "transformer"): Preset(
        size="tiny",
        settings={},
        vocab=8000,
        minutes=3.0,
        tokens=1024,
        precision="fp32",
        dropout=0.3,
        optim=Optim(name="adamw", lr=5e-4, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.01),
        schedule=Schedule(kind="linear", warmup=50),
    ),
    ("cpu", "recurrent"): Preset(
        size="tiny",
        settings={},
        vocab=8000,
        minutes=3.0,
        tokens=1024,
        precision="fp32",
        dropout=0.5,
        optim=Optim(name="adamw", lr=2e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.01),
        schedule=Schedule(kind="linear", warmup=50),
    ),
    ("cuda", "transformer"): Preset(
        size="mini",
        settings={},
        vocab=8000,
        minutes=5.0,
        tokens=8192,
        precision="bf16",
        dropout=0.3,
        optim=Optim(name="adamw", lr=5e-4, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.01),
        schedule=Schedule(kind="linear", warmup=100),
    ),
    ("cuda", "recurrent"): Preset(
        size="small",
        settings={},
        vocab=8000,
        minutes=5.0,
        tokens=8192,
        precision="bf16",
        dropout=0.5,
        optim=Optim(name="adamw", lr=2e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.01),
        schedule=Schedule(kind="linear", warmup=100),
    ),
}


def default_run(task: str, arch: str, size: str, data: LabelledConfig, device: str) -> Run:
    if not (data.name or data.path):
        wanted = "sentences.conll" if task == "tag" else "reviews.csv --text review --label sentiment"
        raise ConfigError(f"train on what? type: regard train {task} --data {wanted}")
    preset = PRESETS[device, "transformer" if arch == "transformer" else "recurrent"]
    data = dataclasses.replace(data, vocab=data.vocab or preset.vocab)
    settings: dict[str, Any] = {"dropout": preset.dropout, "head": HEADS[task], "labels": UNKNOWN}
    if arch == "transformer":
        settings["attention_dropout"] = preset.dropout
    if not size:
        settings |= preset.settings
    return Run(
        task=task,
        model=config_for(arch, size or preset.size, data.vocab, task=task, **settings),
        data=data,
        optim=preset.optim,
        schedule=preset.schedule,
        minutes=preset.minutes,
        tokens=preset.tokens,
        precision=preset.precision,
        smoothing=0.0,
        average=False,
        keep=1,
    )


def finetune_run(task: str, start: Path, data: LabelledConfig, device: str, lora: int) -> Run:
    config = read_config(start)
    if not isinstance(config, BertConfig):
        raise ConfigError(f"{start} is no BERT; only encoders are fine-tuned to {task}, as minilm")
    where, head = str(start.absolute()), HEADS[task]
    pooling = config.pooling if head == "sequence" else "cls"
    length = min(data.max_length, config.max_length)
    return Run(
        task=task,
        model=dataclasses.replace(config, head=head, labels=UNKNOWN, pooling=pooling),
        data=dataclasses.replace(data, tokenizer=where, vocab=config.vocab, max_length=length),
        start=where,
        lora=lora,
        optim=Optim(name="adamw", lr=1e-3 if lora else 1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01),
        schedule=Schedule(kind="linear", warmup=50),
        epochs=3.0,
        tokens=1024,  # about 32 sentences
        precision="fp32" if device == "cpu" else "bf16",
        smoothing=0.0,
        average=False,
        eval_every=0,
        keep=1,
    )


def probe(run: Run) -> Run:
    """The feature-based way (Devlin et al. 2019, section 5.3) instead: the encoder stays as it is, and a linear map of
    its states is learned; of a text's, their mean."""
    assert isinstance(run.model, BertConfig), "what is fine-tuned to labels is an encoder"
    pooling = "mean" if HEADS[run.task] == "sequence" else "cls"
    model = dataclasses.replace(run.model, pooling=pooling, dropout=0.0, attention_dropout=0.0)
    optim = dataclasses.replace(run.optim, lr=1e-2)
    return dataclasses.replace(run, frozen=True, model=model, optim=optim, epochs=5.0)


def make_objective(run: Run, prepared: PreparedLabels | None = None, say: Say | None = None) -> Classify:
    """The loss of a run; with its data also the scores that need the labels' names, and the weights of the classes."""
    assert isinstance(run.data, LabelledConfig)
    weights = balanced_weights(prepared.counts) if prepared is not None and run.data.balanced else ()
    kind = Tag if run.task == "tag" else Classify
    return kind(run.smoothing, weights, None if prepared is None else dev_scores(run, prepared, say))


def dev_scores(run: Run, prepared: PreparedLabels, say: Say | None) -> Scores | None:
    """What is told of the held-out labels beside accuracy: macro F1 of classes, F1 of entities."""
    labels, marks = prepared.labels, prepared.valid["labels"]
    if run.task != "tag":
        return class_scores(run, labels, say)
    if not is_iob(labels):
        return None
    sizes = [int((marks[i] >= 0).sum()) for i in range(len(marks))]
    ends = np.cumsum(sizes)[:-1]

    def scores(true: np.ndarray, guessed: np.ndarray) -> dict[str, float]:
        named = ([[labels[i] for i in row] for row in np.split(x, ends)] for x in (true, guessed))
        return {"entity_f1": entity_score(*named).f1}

    return scores


def assemble(run: Run, device: str, say: Say) -> Parts:
    data = run.data
    assert isinstance(data, LabelledConfig)
    prepared = prepare_labels(data, run.task, say)
    settings: dict[str, Any] = {"vocab": prepared.tokenizer.size, "labels": prepared.labels, "head": HEADS[run.task]}
    started: Any = load_model(Path(run.start)) if run.start else None
    if started is not None:
        settings["vocab"] = started.config.vocab
    run = dataclasses.replace(run, model=dataclasses.replace(run.model, **settings))
    torch.manual_seed(run.seed)
    model: Any = build(run.model)
    if started is not None:
        new = begin_from_(model, started)
        say(
            f"new, drawn by chance: {', '.join(new)}"
            if new
            else "goes on with the same labels, nothing begins by chance"
        )
    if run.lora:
        named = add_lora_(model, run.lora, alpha=2.0 * run.lora, targets=("layers.*",))
        for name in NEW:
            if (part := getattr(model, name)) is not None:
                part.requires_grad_(True)
        say(f"LoRA of rank {run.lora} beside {len(named)} maps; the rest but the head stays as it is")
    if run.frozen:
        model.requires_grad_(False).classifier.requires_grad_(True)
        say("the encoder stays as it is; a linear map of its states is learned")
    model = model.to(device)
    pad = prepared.tokenizer.pad
    source, valid_source = (LabelledSource(**part, pad=pad) for part in (prepared.train, prepared.valid))
    plan = source.plan(run.tokens)
    loader = Loader(source, plan, run.seed, content=prepared.content)
    say(f"an epoch is {loader.batches_per_epoch:,} batches, {loader.padding:.1%} of them padding")
    if run.task != "tag":
        train, valid, _ = read_parts(data, run.task, say)
        say(f"as in: {train[0].text[:60]!r} is {train[0].label!r}")  # so that a column taken for another is seen
        say(f"to beat on the held-out part: {baseline(train, valid)}")
    return Parts(
        run=run,
        model=model,
        objective=make_objective(run, prepared, say),
        loader=loader,
        valid_batches=lambda: (batch.to(device) for batch in in_order(valid_source, plan)),
        metric=None,
        save_model=lambda folder, model: write_model(folder, model, run, prepared),
    )


def begin_from_(model: Bert, started: Any) -> list[str]:
    """Copy what both have; the parts that `started` does not have, or has for other labels."""
    theirs = started.state_dict()
    if started.config.labels != model.config.labels or started.config.head != model.config.head:
        theirs = {name: t for name, t in theirs.items() if not name.startswith("classifier.")}
    mine = model.state_dict()
    model.load_state_dict({name: theirs.get(name, tensor) for name, tensor in mine.items()})
    return sorted({name.split(".")[0] for name in mine if name not in theirs})


@dataclass(frozen=True)
class Baseline:
    """What a bag of words gets right, and what always naming the commonest label of the training part would."""

    bag_of_words: float
    majority: float

    def __str__(self) -> str:
        return f"accuracy {self.bag_of_words:.1%} of a bag of words, {self.majority:.1%} of the commonest label"


def baseline(train: Rows, test: Rows) -> Baseline:
    def parts(row: Any) -> tuple[str, ...]:
        return (row.text,) if row.second is None else (row.text, row.second)

    labels = [row.label for row in train]
    bag = BagOfWords([parts(row) for row in train], labels)
    common = max(sorted(set(labels)), key=labels.count)
    right = [bag.guess(parts(row)) == row.label for row in test]
    return Baseline(sum(right) / len(test), sum(row.label == common for row in test) / len(test))


def example(run: Run) -> Labelled:
    length = min(LENGTH, run.tokens)
    marks = [0] * length if run.task == "tag" else [0]
    rows = max(1, run.tokens // length)
    return collate_labelled([([0] * length, length, marks)] * rows, 0, per_piece=run.task == "tag")


def write_model(folder: Path, model: Any, run: Run, prepared: PreparedLabels) -> None:
    data = run.data
    assert isinstance(data, LabelledConfig)
    prepared.tokenizer.save(folder, data.max_length)
    verb, pipeline, what = {
        "tag": ("tag", "token-classification", "A tagger"),
    }.get(run.task, ("classify", "text-classification", "A classifier"))
    card = model_card(run, model, pipeline=pipeline, what=what, verb=verb, data=data.name or data.path)
    columns = {name: value for name in ("text", "second", "label") if (value := getattr(data, name))}
    known = {"name": data.name, "inputs": prepared.manifest["inputs"], **columns}
    write_folder(folder, run, model, known, {}, card)


@dataclass(frozen=True)
class Kit:
    """A task as `regard.tasks` asks for it."""

    task: str
    ARCH = "transformer"

    def default_run(self, arch: str, size: str, data: LabelledConfig, device: str) -> Run:
        return default_run(self.task, arch, size, data, device)

    finetune_run = staticmethod(finetune_run)
    assemble = staticmethod(assemble)
    make_objective = staticmethod(make_objective)
    example = staticmethod(example)


KITS = {task: Kit(task) for task in HEADS}
