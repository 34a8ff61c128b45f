"""Captions: an image in, a sentence out."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.augment import Augment
from regard.data.batch import Samples
from regard.data.captions import CaptionData, CaptionsConfig, CaptionSource, load_captions
from regard.data.folders import Say
from regard.data.loader import FixedSize, Loader, in_order
from regard.errors import ConfigError
from regard.evaluate.captions import score_captions
from regard.models import CaptioningConfig, build, config_for
from regard.objectives.caption import Caption
from regard.predictors.captioner import ImageCaptioner
from regard.tasks.common import Parts, Preset, model_card, write_folder
from regard.tasks.images import patch_for, preprocessor
from regard.train.optim import Optim
from regard.train.run import Run
from regard.train.schedule import Schedule

ARCH = "transformer"
WATCHED = {"cpu": 100, "cuda": 1000}  # held-out images captioned at each evaluation, at most
AUGMENT = Augment(crop=0.08, flip=True)
SIDES = re.compile(r"\b(left|right)\b", re.IGNORECASE)

PRESETS = {
    "cpu": Preset(
        size="tiny",
        settings={},
        vocab=2000,
        minutes=10.0,
        batch=32,
        precision="fp32",
        dropout=0.1,
        optim=Optim(name="adamw", lr=1e-3, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.05),
        schedule=Schedule(kind="cosine", warmup=200),
    ),
    "cuda": Preset(
        size="small",
        settings={"stem": "conv"},
        vocab=4000,
        minutes=8.0,
        batch=256,
        precision="bf16",
        dropout=0.3,
        optim=Optim(name="adamw", lr=1e-3, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.05),
        schedule=Schedule(kind="cosine", warmup=500),
    ),
}


def default_run(arch: str, size: str, data: CaptionsConfig, device: str) -> Run:
    if not (data.name or data.path):
        raise ConfigError("train on what? type: regard train caption --data captions.tsv --images FOLDER, or flickr8k")
    preset = PRESETS[device]
    augment = AUGMENT if data.augment == Augment() else data.augment
    data = dataclasses.replace(data, vocab=data.vocab or preset.vocab, augment=augment)
    settings: dict[str, Any] = {"dropout": preset.dropout, "image": data.size, "max_length": data.max_length}
    settings["patch"] = patch_for(data.size, 12, halved=True)
    if not size:
        settings |= preset.settings
    return Run(
        task="caption",
        model=config_for(arch, size or preset.size, data.vocab, task="caption", **settings),
        data=data,
        optim=preset.optim,
        schedule=preset.schedule,
        minutes=preset.minutes,
        batch=preset.batch,
        precision=preset.precision,
        average=False,
        keep=1,
    )


def follows(run: Run) -> dict[str, Any]:
    """The settings of the model that are the data's."""
    data = run.data
    assert isinstance(data, CaptionsConfig) and isinstance(run.model, CaptioningConfig)
    found = {"vocab": data.vocab, "image": data.size, "max_length": max(data.max_length, run.model.max_length)}
    if data.size != run.model.image:
        found["patch"] = patch_for(data.size, run.model.encoder.grid, halved=run.model.stem == "conv")
    return found


def make_objective(run: Run) -> Caption:
    return Caption(run.smoothing)


def assemble(run: Run, device: str, say: Say) -> Parts:
    config = run.data
    assert isinstance(config, CaptionsConfig) and isinstance(run.model, CaptioningConfig)
    data = load_captions(config, say)
    say(data.report())
    if config.augment.flip and (share := sided(data.train.captions)) > 0.01:
        say(
            f"{share:.0%} of the captions tell left from right, and images are mirrored half of the time; "
            "if that matters: --set data.augment.flip=false"
        )
    mean, std = data.spread()
    run = dataclasses.replace(run, model=dataclasses.replace(run.model, vocab=data.tokenizer.size, mean=mean, std=std))
    torch.manual_seed(run.seed)
    model: Any = build(run.model).to(device)
    parts = (data.tokenizer, config.max_length)
    source = CaptionSource(data.train, *parts, config.augment, device)
    valid = CaptionSource(data.valid, *parts, None, device)
    return Parts(
        run=run,
        model=model,
        objective=make_objective(run),
        loader=Loader(source, FixedSize(run.batch), run.seed, files=data.files),
        valid_batches=lambda: (batch.to(device) for batch in in_order(valid, FixedSize(run.batch))),
        metric=watched(data, device),
        save_model=lambda folder, model: write_model(folder, model, run, data),
    )


def sided(captions: list[list[str]]) -> float:
    """The part of the captions that say left or right, in English."""
    every = [caption for group in captions for caption in group]
    return sum(SIDES.search(caption) is not None for caption in every) / max(1, len(every))


def watched(data: CaptionData, device: str) -> Callable[[Any], dict[str, float]]:
    """BLEU-4 and CIDEr of greedy captions of the held-out images."""
    count = WATCHED[device.split(":")[0]]

    def metric(model: Any) -> dict[str, float]:
        captioner = ImageCaptioner(model, data.tokenizer, device)
        made = captioner.caption(data.valid.pixels[:count], beam=1)
        found = score_captions([h.text for h in made], data.valid.captions[:count])
        return {"bleu": found.bleu, "cider": found.cider}

    return metric


def example(run: Run) -> Samples:
    assert isinstance(run.model, CaptioningConfig) and isinstance(run.data, CaptionsConfig)
    pixels = torch.zeros(run.batch, *run.model.shape, dtype=torch.uint8)
    words = torch.zeros(run.batch, run.data.max_length, dtype=torch.long)
    return Samples((pixels, words), words, np.arange(run.batch))


def write_model(folder: Path, model: Any, run: Run, data: CaptionData) -> None:
    config = run.data
    assert isinstance(config, CaptionsConfig)
    data.tokenizer.save(folder, config.max_length)
    card = model_card(
        run,
        model,
        pipeline="image-to-text",
        what="Captions of images",
        verb="caption",
        data=config.name or config.path,
    )
    eos, pad = data.tokenizer.eos, data.tokenizer.pad
    generation = {"eos_token_id": eos, "pad_token_id": pad, "decoder_start_token_id": pad, "bad_words_ids": [[pad]]}
    write_folder(folder, run, model, {"name": config.name}, generation | {"max_length": config.max_length}, card)
    text = json.dumps(preprocessor(run.model), indent=2) + "\n"
    (folder / "preprocessor_config.json").write_text(text, encoding="utf-8")
