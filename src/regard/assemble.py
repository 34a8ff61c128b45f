"""From a Run to a trained model folder: data, tokenizer, model, task, loader and metric, put together in one place."""

import dataclasses
import json
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from regard import checkpoint
from regard.config import unknown
from regard.data.batch import Pairs, collate
from regard.data.catalog import find
from regard.data.folders import Say, to_stderr
from regard.data.loader import Loader, in_order
from regard.data.prepare import PairsConfig, Prepared, prepare
from regard.data.tokenizers.bpe import Dropout
from regard.errors import ConfigError
from regard.evaluate.bleu import quick
from regard.explain.cost import Memory, parameters_by_part, training_memory
from regard.models import build, config_for
from regard.models.base import EncoderDecoder
from regard.models.published import to_published, weights_bytes
from regard.predictors import Translator
from regard.tasks.base import Task
from regard.tasks.translate import ConsistentTranslate, Translate
from regard.train.loop import Result, train
from regard.train.optim import Optim
from regard.train.run import Run, read_run
from regard.train.schedule import Schedule

TASKS = ("translate",)
LENGTH = 32  # pieces of a sentence, when memory is estimated
FEW = 50  # held-out sentences; of fewer, BLEU is mostly luck, and the held-out loss chooses the checkpoint
DEV_SENTENCES = 500  # translated greedily at each evaluation: enough to rank checkpoints, little beside the training


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What `regard train translate` does when nobody says otherwise."""

    size: str
    settings: dict[str, Any]  # of the model, unless the user names a size
    vocab: int
    minutes: float
    tokens: int
    precision: str
    dropout: float
    optim: Optim
    schedule: Schedule


# One obvious place for the defaults. The first key is the kind of device, the second the kind of model.
PRESETS: dict[tuple[str, str], Preset] = {
    ("cpu", "transformer"): Preset(
        size="tiny",  # in four minutes of two cores, shallow and wide in the middle beats deeper and wider models
        settings=dict(encoder_layers=2, decoder_layers=2, ffn=512),
        vocab=4000,
        minutes=4.0,
        tokens=1536,
        precision="fp32",
        dropout=0.0,  # most sentences are seen once
        optim=Optim(name="muon", lr=0.01, adam_lr=8e-3),
        schedule=Schedule(kind="linear", warmup=200),
    ),
    ("cpu", "recurrent"): Preset(
        size="tiny",
        settings={},
        vocab=4000,
        minutes=4.0,
        tokens=1536,
        precision="fp32",
        dropout=0.0,
        optim=Optim(name="muon", lr=0.01, adam_lr=8e-3),  # AdamW learns next to nothing in that time
        schedule=Schedule(kind="linear", warmup=200),
    ),
    ("cuda", "transformer"): Preset(
        size="small",
        settings={},
        vocab=8000,
        minutes=10.0,
        tokens=16384,
        precision="bf16",
        dropout=0.2,
        optim=Optim(name="muon", lr=0.01, adam_lr=5e-3),
        schedule=Schedule(kind="linear", warmup=400),
    ),
    ("cuda", "recurrent"): Preset(
        size="base",
        settings={},
        vocab=8000,
        minutes=10.0,
        tokens=16384,
        precision="bf16",
        dropout=0.3,
        optim=Optim(name="muon", lr=0.01, adam_lr=5e-3),
        schedule=Schedule(kind="linear", warmup=400),
    ),
}


def default_run(
    task: str = "translate",
    arch: str = "transformer",
    size: str = "",
    data: PairsConfig | None = None,
    device: str = "cpu",
) -> Run:
    """A good run for this machine; `size` "" takes the preset's, and a `data.vocab` of 0 the preset's too."""
    if task.lower() not in TASKS:
        raise unknown("task", task, TASKS)
    if data is None or not (data.name or data.source):
        raise ConfigError("train on what? type --data tatoeba-en-fr (see: regard data list), or --source and --target")
    if data.name:
        known = find(data.name)
        data = dataclasses.replace(data, name=known.name, split=known.split)
    kind = "transformer" if arch.lower() == "transformer" else "recurrent"
    preset = PRESETS[device.split(":")[0], kind]
    data = dataclasses.replace(data, vocab=data.vocab or preset.vocab)
    settings = {"dropout": preset.dropout} | ({} if size else preset.settings)
    return Run(
        task=task.lower(),
        model=config_for(arch, size or preset.size, data.vocab, **settings),
        data=data,
        optim=preset.optim,
        schedule=preset.schedule,
        minutes=preset.minutes,
        tokens=preset.tokens,
        precision=preset.precision,
    )


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Everything the loop asks for, made from one Run."""

    run: Run
    model: EncoderDecoder
    task: Task
    loader: Loader
    valid_batches: Callable[[], Iterable[Pairs]]
    metric: Callable[[EncoderDecoder], dict[str, float]] | None
    save_model: Callable[[Path, EncoderDecoder], None]


def make_task(run: Run) -> Task:
    if run.consistency:
        return ConsistentTranslate(run.smoothing, run.consistency)
    return Translate(run.smoothing)


def assemble(run: Run, device: str = "cpu", say: Say = to_stderr) -> Parts:
    """Prepare the data (or find it prepared) and build the rest. The vocabulary learned decides the model's."""
    if run.task not in TASKS:
        raise unknown("task", run.task, TASKS)
    prepared = prepare(run.data, say)
    bpe = prepared.tokenizer
    run = dataclasses.replace(run, model=dataclasses.replace(run.model, vocab=bpe.size))
    torch.manual_seed(run.seed)
    model = build(run.model).to(device)
    dropout = Dropout(bpe, run.data.bpe_dropout, run.seed, run.data.max_length) if run.data.bpe_dropout else None
    multiple = 8 if run.compile else 1  # few different shapes, so few compilations
    how: Any = dict(multiple=multiple, dropout=dropout, content=int(prepared.folder.name, 16))
    loader = Loader(prepared.train, bpe.eos, bpe.pad, run.tokens, run.seed, **how)
    say(f"an epoch is {loader.batches_per_epoch:,} batches, {loader.padding:.1%} of them padding")
    return Parts(
        run=run,
        model=model,
        task=make_task(run),
        loader=loader,
        valid_batches=lambda: (b.to(device) for b in in_order(prepared.valid, bpe.eos, bpe.pad, run.tokens)),
        metric=dev_score(prepared, run.data, device),
        save_model=lambda folder, model: write_model(folder, model, run, prepared),
    )


def dev_score(
    prepared: Prepared, data: PairsConfig, device: str
) -> Callable[[EncoderDecoder], dict[str, float]] | None:
    """BLEU and chrF of greedy translations of the first held-out sentences: how the best checkpoint is chosen."""
    texts = zip(*prepared.valid_text(), strict=True)  # those too long for the validation loss are left out here too
    fitting = (pair for pair in texts if len(prepared.tokenizer.encode(pair[0])) < data.max_length)
    pairs = list(islice(fitting, DEV_SENTENCES))
    if len(pairs) < FEW:
        return None
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    tokenize = "none" if data.split == "spaces" else "13a"

    def metric(model: EncoderDecoder) -> dict[str, float]:
        training = model.training
        texts = Translator(model, prepared.tokenizer, device).translate(sources, beam=1)
        model.train(training)
        return quick(texts, references, tokenize)

    return metric


def train_run(
    run: Run,
    folder: str | Path,
    *,
    device: str = "cpu",
    resume: bool = False,
    force: bool = False,
    quiet: bool = False,
) -> Result:
    """Train a run into a folder that holds the finished model.

    `resume` goes on with the very run found there, as it was started; `force` replaces one that is there.
    """
    parts = assemble(read_run(folder) if resume else run, device, _silent if quiet else to_stderr)
    if force:
        checkpoint.new_run(folder, force=True)  # only now: data that cannot be read must not cost the old run
        (Path(folder) / "scores.jsonl").unlink(missing_ok=True)
    return train(
        parts.run,
        folder,
        model=parts.model,
        task=parts.task,
        loader=parts.loader,
        valid_batches=parts.valid_batches,
        metric=parts.metric,
        save_model=parts.save_model,
        device=device,
        resume=resume,
        quiet=quiet,
    )


def _silent(_: str) -> None:
    pass


def cost(run: Run) -> tuple[dict[str, int], Memory]:
    """Parameters by part and the memory of a training step, from the settings alone: no data is read."""
    length = min(LENGTH, run.tokens)
    ids = [[0] * (length - 1)] * (run.tokens // length)
    task = make_task(run)
    memory = training_memory(
        lambda: (build(run.model), collate(ids, ids, eos=0, pad=run.model.vocab - 1)),
        task.loss_sum,
        momenta=1 if run.optim.name == "muon" else 2,
        bf16=run.precision == "bf16",
    )
    with torch.device("meta"):
        return parameters_by_part(build(run.model)), memory


def write_model(folder: Path, model: EncoderDecoder, run: Run, prepared: Prepared) -> None:
    """A Hugging Face model folder. The loop gives a draft folder and moves the files into place when all are there."""
    bpe = prepared.tokenizer
    bpe.save(folder, max_length=run.data.max_length)
    known = {
        "format_version": checkpoint.FORMAT_VERSION,
        "task": run.task,
        "seed": run.seed,
        "versions": checkpoint.versions() | {"python": platform.python_version()},
        "data": {"name": run.data.name, "inputs": prepared.manifest["inputs"]},
    }
    generation = {"num_beams": 5, "eos_token_id": bpe.eos, "pad_token_id": bpe.pad, "decoder_start_token_id": bpe.pad,
                  "bad_words_ids": [[bpe.pad]], "max_length": run.data.max_length}  # fmt: skip
    for name, value in (
        ("config.json", to_published(run.model)),
        ("generation_config.json", generation),
        ("regard.json", known),
    ):
        (folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(card(run, model), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(weights_bytes(model))


def card(run: Run, model: EncoderDecoder) -> str:
    """The model card."""
    count = sum(p.numel() for p in model.parameters())
    data = run.data.name or f"{run.data.source} → {run.data.target}"
    return f"""---
library_name: regard
pipeline_tag: translation
---

# A translation model trained with regard

{type(model).__name__}, {count:,} parameters, trained on {data} with seed {run.seed}.
All settings are in `run.json`, the curves in `metrics.jsonl`.

    regard translate THIS_FOLDER "…"
    regard info THIS_FOLDER
"""
