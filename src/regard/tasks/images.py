"""Classes of images: a ViT, or a plain network beside it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data import image_sets
from regard.data.augment import Augment
from regard.data.batch import Samples
from regard.data.folders import Say
from regard.data.images import OWN_SIZE, ImageData, ImagesConfig, ImageSource, load_images
from regard.data.loader import FixedSize, Loader, class_odds, in_order
from regard.errors import ConfigError
from regard.models import ImageConfig, build, config_for
from regard.models.plain import MLPConfig
from regard.models.vit import ViTConfig
from regard.objectives.classify import ClassifyImages
from regard.tasks.common import Parts, Preset, class_scores, model_card, write_folder
from regard.train.optim import Optim
from regard.train.run import Run
from regard.train.schedule import Schedule

ARCH = "vit"
UNKNOWN = ("LABEL_0", "LABEL_1")  # until the data is read
VALID_BATCH = 512
PATCHES = {"cpu": 4, "cuda": 8}  # a side; more see finer, and cost more

PRESETS: dict[tuple[str, bool], Preset] = {
    ("cpu", True): Preset(
        size="tiny",
        settings={},
        minutes=4.0,
        batch=64,
        precision="fp32",
        dropout=0.0,
        optim=Optim(name="muon", lr=0.01, adam_lr=2e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.02),
        schedule=Schedule(kind="linear", warmup=50),
    ),
    ("cpu", False): Preset(
        size="small",
        settings={},
        minutes=2.0,
        batch=64,
        precision="fp32",
        dropout=0.2,
        optim=Optim(name="adamw", lr=1e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.01),
        schedule=Schedule(kind="linear", warmup=50),
    ),
    ("cuda", True): Preset(
        size="small",
        settings={"stem": "conv", "pool": "mean"},
        minutes=5.0,
        batch=512,
        precision="bf16",
        dropout=0.1,
        optim=Optim(name="muon", lr=0.01, adam_lr=2e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.02),
        schedule=Schedule(kind="linear", warmup=200),
    ),
    ("cuda", False): Preset(
        size="base",
        settings={},
        minutes=3.0,
        batch=512,
        precision="bf16",
        dropout=0.2,
        optim=Optim(name="adamw", lr=1e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.01),
        schedule=Schedule(kind="linear", warmup=200),
    ),
}


def default_run(arch: str, size: str, data: ImagesConfig, device: str) -> Run:
    if not (data.name or data.path):
        raise ConfigError("train on what? type: regard train image --data photos/ (a folder for each class), or mnist")
    preset = PRESETS[device, arch == "vit"]
    side = data.size or image_sets.SIZES.get(data.name, OWN_SIZE)
    data = dataclasses.replace(data, size=side, augment=usual_augment(data))
    settings: dict[str, Any] = {"dropout": preset.dropout, "labels": UNKNOWN}
    if not size:
        settings |= preset.settings
    if arch == "mlp":
        settings["shape"] = (data.channels or 3, side, side)
    else:
        settings |= {"image": side, "channels": data.channels or 3}
    if arch == "vit":
        settings["patch"] = patch_for(side, PATCHES[device], settings.get("stem") == "conv")
    return Run(
        task="image",
        model=config_for(arch, size or preset.size, task="image", **settings),
        data=data,
        optim=preset.optim,
        schedule=preset.schedule,
        minutes=preset.minutes,
        batch=preset.batch,
        precision=preset.precision,
        compile=preset.compile,
        smoothing=0.0,
        average=False,
        keep=1,
    )


def follows(run: Run) -> dict[str, Any]:
    """The settings of the model that are the data's."""
    data = run.data
    assert isinstance(data, ImagesConfig)
    channels, side, _ = run.model.shape if isinstance(run.model, ImageConfig) else (3, 0, 0)
    channels, side = data.channels or channels, data.size or side
    if isinstance(run.model, MLPConfig):
        return {"shape": (channels, side, side)}
    found = {"image": side, "channels": channels}
    if isinstance(run.model, ViTConfig) and side != run.model.image:
        found["patch"] = patch_for(side, run.model.grid, run.model.stem == "conv")
    return found


def usual_augment(data: ImagesConfig) -> Augment:
    """A little shifting for all; a photograph may also be seen in a mirror, a digit may not."""
    if data.augment != Augment():
        return data.augment
    return Augment(crop=0.07, flip=data.name not in ("mnist", "digits"))


def patch_for(side: int, patches: int, halved: bool) -> int:
    """The patch that cuts `side` pixels into about so many, at most 16 pixels; a power of 2 if it comes by halving."""
    wanted = min(16.0, max(2.0, side / patches))
    fitting = [p for p in range(1, side + 1) if side % p == 0 and not (halved and p & (p - 1))]
    return min(fitting, key=lambda p: abs(p - wanted))


def fitted(config: ImageConfig, data: ImageData) -> ImageConfig:
    """The model's settings once the images are known: their classes, size, channels and range."""
    _, channels, side, _ = data.train.pixels.shape
    mean, std = data.spread()
    if isinstance(config, MLPConfig):
        middle, wide = (round(float(np.mean(x)), 4) for x in (mean, std))
        return dataclasses.replace(
            config, labels=data.labels, shape=(channels, side, side), mean=(middle,), std=(wide,)
        )
    return dataclasses.replace(config, labels=data.labels, image=side, channels=channels, mean=mean, std=std)


def make_objective(run: Run, labels: tuple[str, ...] = (), say: Say | None = None) -> ClassifyImages:
    return ClassifyImages(run.smoothing, scores=class_scores(run, labels, say))


def assemble(run: Run, device: str, say: Say) -> Parts:
    config = run.data
    assert isinstance(config, ImagesConfig)
    data = load_images(config, say)
    say(data.report())
    assert isinstance(run.model, ImageConfig)
    run = dataclasses.replace(run, model=fitted(run.model, data))
    torch.manual_seed(run.seed)
    model: Any = build(run.model).to(device)
    counts = np.bincount(data.train.labels, minlength=len(data.labels))
    odds = class_odds(data.train.labels) if config.balanced else None
    source = ImageSource(data.train, len(data.labels), config.augment, device)
    loader = Loader(source, FixedSize(run.batch, odds), run.seed, files=data.files)
    valid = ImageSource(data.valid, len(data.labels), None, device)
    common = float((data.valid.labels == counts.argmax()).mean())
    say(f"an epoch is {loader.batches_per_epoch:,} batches; to beat: accuracy {common:.1%} of the commonest class")
    return Parts(
        run=run,
        model=model,
        objective=make_objective(run, data.labels, say),
        loader=loader,
        valid_batches=lambda: (batch.to(device) for batch in in_order(valid, FixedSize(VALID_BATCH))),
        metric=None,
        save_model=lambda folder, model: write_model(folder, model, run),
        flops_per_target=flops(model),
    )


def flops(model: Any) -> float:
    """Of training on one image; 0 where it is not a ViT."""
    c = model.config
    if not isinstance(c, ViTConfig):
        return 0.0
    places = c.grid**2 + (c.pool == "token")
    maps = sum(p.numel() for layer in model.layers for p in layer.parameters() if p.ndim == 2)
    return 6.0 * places * (maps + 2 * c.layers * places * c.width)  # a product is two, backwards twice as many


def example(run: Run) -> Samples:
    assert isinstance(run.model, ImageConfig)
    pixels = torch.zeros(run.batch, *run.model.shape, dtype=torch.uint8)
    return Samples((pixels,), torch.zeros(run.batch, dtype=torch.long), np.arange(run.batch))


def write_model(folder: Path, model: Any, run: Run) -> None:
    data = run.data
    assert isinstance(data, ImagesConfig)
    card = model_card(
        run,
        model,
        pipeline="image-classification",
        what="A classifier of images",
        verb="classify",
        data=data.name or data.path,
    )
    write_folder(folder, run, model, {"name": data.name}, {}, card)
    text = json.dumps(preprocessor(run.model), indent=2) + "\n"
    (folder / "preprocessor_config.json").write_text(text, encoding="utf-8")


def preprocessor(config: Any) -> dict[str, Any]:
    """What transformers' ViTImageProcessor does to a picture, as we do it: squeezed to size, then scaled."""
    channels, side, _ = config.shape
    mean, std = (list(x) * (channels if len(x) == 1 else 1) for x in (config.mean, config.std))
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": side, "width": side},
        "resample": 2,  # bilinear
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": mean,
        "image_std": std,
    }
