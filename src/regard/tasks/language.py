"""Language modelling: a model that continues your text, trained from nothing or from a published one."""

import dataclasses
from pathlib import Path
from typing import Any

import torch

from regard.data.batch import Tokens
from regard.data.blocks import TextRows
from regard.data.folders import Say
from regard.data.loader import Loader, in_order
from regard.data.records import PROMPT
from regard.data.text import PreparedText, TextConfig, prepare_text
from regard.errors import ConfigError, DataError
from regard.models import LanguageModelConfig, build, config_for
from regard.models.base import LanguageModel
from regard.models.published import load_model, read_config
from regard.nn.lora import add_lora_
from regard.objectives.next_token import NextToken
from regard.tasks.common import Parts, Preset, model_card, write_folder
from regard.train.optim import Optim
from regard.train.run import Run
from regard.train.schedule import Schedule

ARCH = "gpt"
SUMMARISE = "Summarise in one sentence:\n\n{prompt}"
BLOCK = 256  # tokens a recurrent model is trained on at once; it has no limit of its own

PRESETS: dict[tuple[str, str], Preset] = {
    ("cpu", "attention"): Preset(
        size="tiny",
        settings={"context": 64},
        vocab=4000,
        minutes=3.0,
        tokens=768,
        precision="fp32",
        dropout=0.0,
        optim=Optim(name="muon", lr=0.02, adam_lr=5e-3, betas=(0.9, 0.99)),
        schedule=Schedule(kind="linear", warmup=50),
    ),
    ("cpu", "recurrent"): Preset(
        size="tiny",
        settings={},
        vocab=4000,
        minutes=3.0,
        tokens=768,
        precision="fp32",
        dropout=0.0,
        optim=Optim(name="muon", lr=0.01, adam_lr=5e-3, betas=(0.9, 0.99)),
        schedule=Schedule(kind="linear", warmup=50),
    ),
    ("cuda", "attention"): Preset(
        size="small",
        settings={"context": 256},
        vocab=8000,
        minutes=10.0,
        tokens=16384,
        precision="bf16",
        dropout=0.2,
        optim=Optim(name="muon", lr=0.02, adam_lr=3e-3, betas=(0.9, 0.99)),
        schedule=Schedule(kind="linear", warmup=100),
        compile=True,
    ),
    ("cuda", "recurrent"): Preset(
        size="small",
        settings={},
        vocab=8000,
        minutes=10.0,
        tokens=16384,
        precision="bf16",
        dropout=0.2,
        optim=Optim(name="muon", lr=0.01, adam_lr=3e-3, betas=(0.9, 0.99)),
        schedule=Schedule(kind="linear", warmup=100),
    ),
}


def default_run(arch: str, size: str, data: TextConfig, device: str) -> Run:
    if not (data.name or data.path):
        raise ConfigError("train on what? type --data FILE.txt, a folder, a .jsonl, or a name (see: regard data list)")
    preset = PRESETS[device, "attention" if arch in ("gpt", "llama") else "recurrent"]
    data = dataclasses.replace(data, vocab=data.vocab or preset.vocab)
    settings = {"dropout": preset.dropout} | ({} if size else preset.settings)
    return Run(
        task="lm",
        model=config_for(arch, size or preset.size, data.vocab, task="lm", **settings),
        data=data,
        optim=preset.optim,
        schedule=preset.schedule,
        minutes=preset.minutes,
        tokens=preset.tokens,
        precision=preset.precision,
        compile=preset.compile,
        smoothing=0.0,
        average=False,
    )


def finetune_run(task: str, start: Path, data: TextConfig, device: str, lora: int) -> Run:
    config = read_config(start)
    if not isinstance(config, LanguageModelConfig):
        raise ConfigError(f"{start} is no language model; only language models are fine-tuned to {task}")
    slow = 512 if task == "summarise" else 256  # a text and its summary are long
    length = min(config.context or BLOCK, slow if device == "cpu" else 1024)
    data = dataclasses.replace(
        data,
        tokenizer=str(start.absolute()),
        context=data.context or length,
        vocab=config.vocab,
        template=data.template or (SUMMARISE if task == "summarise" else ""),
    )
    return Run(
        task=task,
        model=config,
        data=data,
        start=str(start.absolute()),
        lora=lora,
        optim=Optim(name="adamw", lr=1e-3 if lora else 1e-4, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0),
        schedule=Schedule(kind="linear", warmup=20),
        minutes=5.0,
        tokens=512 if device == "cpu" else 16384,  # on two cores a step of a 135 M model then takes seconds
        precision="fp32" if device == "cpu" else "bf16",
        smoothing=0.0,
        average=False,
        log_every=5,
        keep=1,
    )


def make_objective(run: Run) -> NextToken:
    return NextToken(run.smoothing)


def block_length(run: Run) -> int:
    """Tokens of a row: what the data says, else all that the model can see."""
    assert isinstance(run.data, TextConfig)
    return run.data.context or getattr(run.model, "context", 0) or BLOCK


def assemble(run: Run, device: str, say: Say) -> Parts:
    assert isinstance(run.data, TextConfig)
    length = block_length(run)
    longest = min(run.data.max_length or length, length)  # a record that is cut in a row may lose its answer
    data = dataclasses.replace(run.data, max_length=longest)
    run = dataclasses.replace(run, data=data)
    prepared = prepare_text(data, say)
    if run.task == "summarise" and not prepared.train.records:
        raise DataError(f"{data.name or data.path} is plain text; wanted JSONL, in each line a text and its summary")
    if run.start:
        started = load_model(Path(run.start))
        if run.model != dataclasses.replace(started.config, dropout=run.model.dropout):
            raise ConfigError(f"{run.start} keeps its sizes when it is fine-tuned; only model.dropout can be set")
        model = build(run.model)
        model.load_state_dict(started.state_dict())
    else:
        assert isinstance(run.model, LanguageModelConfig)
        run = dataclasses.replace(run, model=dataclasses.replace(run.model, vocab=prepared.tokenizer.size))
        torch.manual_seed(run.seed)
        model = build(run.model)
    if run.lora:
        torch.manual_seed(run.seed)
        named = add_lora_(model, run.lora, alpha=2.0 * run.lora)
        say(f"LoRA of rank {run.lora} beside {len(named)} maps; all else stays as it is")
    assert isinstance(model, LanguageModel)
    model = model.to(device)
    source, valid = (TextRows(part, length, run.tokens) for part in (prepared.train, prepared.valid))
    loader = Loader(source, source.plan, run.seed, content=prepared.content)
    say(f"an epoch is {loader.batches_per_epoch:,} batches of {run.tokens:,} tokens in rows of {length:,}")
    return Parts(
        run=run,
        model=model,
        objective=make_objective(run),
        loader=loader,
        valid_batches=lambda: (batch.to(device) for batch in in_order(valid, valid.plan)),
        metric=None,
        save_model=lambda folder, model: write_model(folder, model, run, prepared),
        flops_per_target=flops_per_token(model, length),
    )


def flops_per_token(model: LanguageModel, length: int) -> float:
    """Forward and backward: 6 a weight, the head once, and attention (Chowdhery et al. 2022, app. B)."""
    looked_up = sum(p.numel() for name, p in model.named_parameters() if name in ("token.weight", "place.table"))
    weights = sum(p.numel() for p in model.parameters()) - looked_up
    if model.head is model.token.weight:
        weights += model.head.numel()
    c = model.config
    return 6.0 * weights + (12.0 * c.layers * c.width * length if c.context else 0.0)


def example(run: Run) -> Tokens:
    length = min(block_length(run), run.tokens)
    ids = torch.zeros(max(1, run.tokens // length), length + 1, dtype=torch.long)
    return Tokens(ids=ids)


def write_model(folder: Path, model: LanguageModel, run: Run, prepared: PreparedText) -> None:
    tokenizer, data = prepared.tokenizer, run.data
    assert isinstance(data, TextConfig)
    tokenizer.save(folder, max_length=block_length(run))
    ends: dict[str, Any] = (
        {} if tokenizer.eos is None else {"eos_token_id": tokenizer.eos, "pad_token_id": tokenizer.eos}
    )
    if len(tokenizer.ends) > 1:
        ends["eos_token_id"] = list(tokenizer.ends)
    named = data.name or data.path
    template = data.template or (PROMPT if prepared.train.records else "")
    verb = "chat" if template and run.task == "lm" else "generate"  # one that was taught to answer wants a question
    card = model_card(run, model, pipeline="text-generation", what="A language model", verb=verb, data=named)
    known = {"name": data.name, "inputs": prepared.manifest["inputs"]}
    write_folder(folder, run, model, known, {**ends, "do_sample": True}, card, template)
