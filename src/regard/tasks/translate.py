"""Translation: from parallel text to a trained encoder-decoder."""

import dataclasses
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from regard.data.batch import Pairs, collate
from regard.data.catalog import find
from regard.data.folders import Say
from regard.data.loader import Loader, TokenBudget, in_order
from regard.data.prepare import PairsConfig, PreparedPairs, prepare
from regard.data.sources import PairSource
from regard.data.tokenizers.bpe import Dropout
from regard.errors import ConfigError
from regard.evaluate.bleu import quick
from regard.models import TranslatorConfig, build, config_for
from regard.models.base import EncoderDecoder
from regard.objectives.translate import ConsistentTranslate, Translate
from regard.predictors import Translator
from regard.tasks.common import Parts, Preset, model_card, write_folder
from regard.train.optim import Optim
from regard.train.run import Run
from regard.train.schedule import Schedule

ARCH = "transformer"  # unless somebody names another
LENGTH = 32  # pieces of a sentence, when memory is estimated
FEW = 50  # held-out sentences; of fewer, BLEU is mostly luck, and the held-out loss chooses the checkpoint
DEV_SENTENCES = 500  # translated greedily at each evaluation: enough to rank checkpoints, little beside the training

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


def default_run(arch: str, size: str, data: PairsConfig, device: str) -> Run:
    if not (data.name or data.source):
        raise ConfigError("train on what? type --data tatoeba-en-fr (see: regard data list), or --source and --target")
    if data.name:
        known = find(data.name)
        data = dataclasses.replace(data, name=known.name, split=known.split)
    kind = "transformer" if arch == "transformer" else "recurrent"
    preset = PRESETS[device, kind]
    data = dataclasses.replace(data, vocab=data.vocab or preset.vocab)
    settings: dict[str, Any] = {"dropout": preset.dropout} | ({} if size else preset.settings)
    return Run(
        task="translate",
        model=config_for(arch, size or preset.size, data.vocab, **settings),
        data=data,
        optim=preset.optim,
        schedule=preset.schedule,
        minutes=preset.minutes,
        tokens=preset.tokens,
        precision=preset.precision,
    )


def make_objective(run: Run) -> Translate:
    if run.consistency:
        return ConsistentTranslate(run.smoothing, run.consistency)
    return Translate(run.smoothing)


def assemble(run: Run, device: str, say: Say) -> Parts:
    """Prepare the data (or find it prepared) and build the rest. The vocabulary learned decides the model's."""
    assert isinstance(run.data, PairsConfig) and isinstance(run.model, TranslatorConfig)
    data = run.data
    prepared = prepare(data, say)
    bpe = prepared.tokenizer
    run = dataclasses.replace(run, model=dataclasses.replace(run.model, vocab=bpe.size))
    torch.manual_seed(run.seed)
    model = build(run.model).to(device)
    dropout = Dropout(bpe, data.bpe_dropout, run.seed, data.max_length) if data.bpe_dropout else None
    multiple = 8 if run.compile else 1  # few different shapes, so few compilations
    source, plan = (
        PairSource(**prepared.train, eos=bpe.eos, pad=bpe.pad, multiple=multiple, dropout=dropout),
        TokenBudget(run.tokens),
    )
    loader = Loader(source, plan, run.seed, content=prepared.content)
    valid = PairSource(**prepared.valid, eos=bpe.eos, pad=bpe.pad)
    say(f"an epoch is {loader.batches_per_epoch:,} batches, {loader.padding:.1%} of them padding")
    return Parts(
        run=run,
        model=model,
        objective=make_objective(run),
        loader=loader,
        valid_batches=lambda: (b.to(device) for b in in_order(valid, plan)),
        metric=dev_score(prepared, data, device),
        save_model=lambda folder, model: write_model(folder, model, run, prepared),
    )


def example(run: Run) -> Pairs:
    """A batch as large as training's, for an estimate of its memory."""
    assert isinstance(run.model, TranslatorConfig)
    length = min(LENGTH, run.tokens)
    ids = [[0] * (length - 1)] * (run.tokens // length)
    return collate(ids, ids, eos=0, pad=run.model.vocab - 1)


def dev_score(
    prepared: PreparedPairs, data: PairsConfig, device: str
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


def write_model(folder: Path, model: EncoderDecoder, run: Run, prepared: PreparedPairs) -> None:
    bpe, data = prepared.tokenizer, run.data
    assert isinstance(data, PairsConfig)
    bpe.save(folder, max_length=data.max_length)
    generation = {"num_beams": 5, "eos_token_id": bpe.eos, "pad_token_id": bpe.pad, "decoder_start_token_id": bpe.pad,
                  "bad_words_ids": [[bpe.pad]], "max_length": data.max_length}  # fmt: skip
    named = data.name or f"{data.source} → {data.target}"
    card = model_card(run, model, pipeline="translation", what="A translation model", verb="translate", data=named)
    known = {"name": data.name, "inputs": prepared.manifest["inputs"]}
    write_folder(folder, run, model, known, generation, card)
