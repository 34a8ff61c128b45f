"""BERT from raw text: a vocabulary, hidden words and next sentences, and a folder that transformers opens."""

import dataclasses
from pathlib import Path

import numpy as np
import torch

from regard.data.folders import Say
from regard.data.loader import Loader, in_order
from regard.data.masked import MaskedConfig, PreparedMasked, inside_ids, prepare_masked, special_ids
from regard.data.masking import MaskedBatch, MaskedRows, Rules
from regard.data.tokenizers.wordpiece import WordPiece
from regard.errors import ConfigError
from regard.models import build, config_for
from regard.models.bert import Bert, BertConfig
from regard.objectives.masked_token import MaskedToken
from regard.tasks.common import Parts, Preset, model_card, write_folder
from regard.train.optim import Optim
from regard.train.run import Run
from regard.train.schedule import Schedule

ARCH = "bert"

PRESETS: dict[str, Preset] = {
    "cpu": Preset(
        size="tiny",
        settings={},
        vocab=4000,
        minutes=5.0,
        tokens=2048,
        precision="fp32",
        dropout=0.0,
        optim=Optim(name="muon", lr=0.02, adam_lr=5e-3, betas=(0.9, 0.98), eps=1e-8),
        schedule=Schedule(kind="linear", warmup=50),
    ),
    "cuda": Preset(
        size="small",
        settings={},
        vocab=16000,
        minutes=10.0,
        tokens=32768,
        precision="bf16",
        dropout=0.1,
        optim=Optim(name="muon", lr=0.01, adam_lr=2e-3, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.01),
        schedule=Schedule(kind="linear", warmup=200),
        compile=True,
    ),
}


def default_run(arch: str, size: str, data: MaskedConfig, device: str) -> Run:
    if not (data.name or data.path):
        raise ConfigError("train on what? type --data corpus/, a text, a .jsonl, or a name (see: regard data list)")
    preset = PRESETS[device]
    data = dataclasses.replace(data, vocab=data.vocab or preset.vocab)
    settings = {"dropout": preset.dropout, "attention_dropout": 0.0, "max_length": data.max_length, "head": head(data)}
    return Run(
        task="mlm",
        model=config_for(arch, size or preset.size, data.vocab, task="mlm", **settings),
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


def head(data: MaskedConfig) -> str:
    return "pretraining" if data.next_sentence else "masked"


def make_objective(run: Run) -> MaskedToken:
    return MaskedToken(run.smoothing)


def make_rules(data: MaskedConfig, tokenizer: WordPiece) -> Rules:
    """How examples are made of this data, in the words of this tokenizer."""
    return Rules(
        length=data.max_length,
        special=special_ids(tokenizer),
        inside=inside_ids(tokenizer),
        pad=tokenizer.pad,
        cls=tokenizer.cls,
        sep=tokenizer.sep,
        mask=tokenizer.mask,
        next_sentence=data.next_sentence,
        negatives=data.negatives,
        masked=data.masked,
        whole_words=data.whole_words,
    )


def assemble(run: Run, device: str, say: Say) -> Parts:
    data, config = run.data, run.model
    assert isinstance(data, MaskedConfig)
    if not isinstance(config, BertConfig):
        raise ConfigError(f"hidden words are found by BERT; got {type(config).__name__}")
    if run.compile:
        check_packable(run, config, device)
    prepared = prepare_masked(data, say)
    config = dataclasses.replace(config, vocab=prepared.tokenizer.size, head=head(data), labels=())
    run = dataclasses.replace(run, model=config)
    torch.manual_seed(run.seed)
    model = build(config).to(device)
    rules = make_rules(data, prepared.tokenizer)
    content = prepared.content
    source, valid = (
        MaskedRows(prepared.train, rules, run.tokens, run.compile),
        MaskedRows(prepared.valid, rules, run.tokens),
    )
    loader = Loader(source, source.plan, run.seed, content=content)
    size = f"{run.tokens:,}" if run.compile else f"at most {run.tokens:,}"
    say(
        f"an epoch is {loader.batches_per_epoch:,} batches of {size} tokens, "
        f"{loader.padding:.1%} of them padding; {data.masked:.0%} of the words are hidden"
    )
    return Parts(
        run=run,
        model=model,
        objective=MaskedToken(run.smoothing, prepared.entropy),
        loader=loader,
        valid_batches=lambda: (batch.to(device) for batch in in_order(valid, valid.plan)),
        metric=None,
        save_model=lambda folder, model: write_model(folder, model, run, prepared),
        flops_per_target=flops_per_token(model, data),
    )


def check_packable(run: Run, config: BertConfig, device: str) -> None:
    """A compiled run packs its rows; what attends to them quickly drops nothing, and on a GPU wants 16 bits."""
    if config.attention_dropout:
        raise ConfigError(
            f"model.attention_dropout is {config.attention_dropout}, but compiled runs pack their rows, which goes "
            "without; type: --set model.attention_dropout=0, or --set compile=false"
        )
    if device.startswith("cuda") and run.precision != "bf16":
        raise ConfigError(
            f"precision is {run.precision}, but compiled runs pack their rows, which a GPU reads in bf16; "
            "type: --set precision=bf16, or --set compile=false"
        )


def flops_per_token(model: Bert, data: MaskedConfig) -> float:
    """Forward and backward: 6 a weight, attention, and the head for the tokens that are hidden."""
    c = model.config
    layers = sum(p.numel() for layer in model.layers for p in layer.parameters())
    head = data.masked * c.width * (c.width + c.vocab)
    return 6.0 * (layers + head) + 12.0 * c.layers * c.width * data.max_length


def example(run: Run) -> MaskedBatch:
    assert isinstance(run.data, MaskedConfig)
    width = min(run.data.max_length, run.tokens)
    size = max(1, run.tokens // width)
    count = max(1, round(run.data.masked * size * width))
    ids = torch.zeros(size, width, dtype=torch.long)
    return MaskedBatch(
        ids=ids,
        sentences=torch.zeros_like(ids),
        lengths=torch.full((size,), width),
        starts=None,
        chosen=torch.zeros(count, dtype=torch.long),
        targets=torch.zeros(count, dtype=torch.long),
        follows=torch.zeros(size, dtype=torch.long) if run.data.next_sentence else None,
        rows=np.arange(size),
        host_targets=np.zeros((0, 0), np.int64),
        host_lengths=np.full(size, width),
        count=count,
        weight=count / size,
    )


def write_model(folder: Path, model: Bert, run: Run, prepared: PreparedMasked) -> None:
    data = run.data
    assert isinstance(data, MaskedConfig)
    prepared.tokenizer.save(folder, max_length=model.config.max_length)
    named = data.name or data.path
    card = model_card(run, model, pipeline="fill-mask", what="BERT", verb="fill", data=named)
    known = {"name": data.name, "inputs": prepared.manifest["inputs"]}
    write_folder(folder, run, model, known, {}, card)
