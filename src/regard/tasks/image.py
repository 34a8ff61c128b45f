"""Image: a class for each image, by a ViT, a convolutional network or an MLP."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.folders import silent, user_path
from regard.data.settings import Augment, ImagesConfig
from regard.errors import ConfigError, DataError
from regard.jsonfile import write_json
from regard.tasks.base import UNKNOWN_LABELS, Arch, Card, Preset, Say
from regard.tasks.classes import ClassesOfSamples
from regard.tasks.presets import fine_tuning, presets_of
from regard.tasks.use import Inputs, Options, TestSet
from regard.ticks import Console
from regard.training.settings import Optim, Schedule

if TYPE_CHECKING:
    from regard.training.run import Run

PATCHES = {"cpu": 4, "cuda": 8}  # patches a side; more give finer detail at more cost


class Image(ClassesOfSamples):
    name, trains_on = "image", "images"
    summary = "a class for each image"
    settings = ImagesConfig
    options = ("valid", "label")
    data_help = "A folder with a folder of images for each class, a table of paths and labels, or a name."
    examples = (
        "regard train image --data photos/              # a folder for each class",
        "regard train image --data mnist --arch vit,conv",
    )
    archs = {"vit": Arch("vit"), "conv": Arch("conv"), "mlp": Arch("mlp")}
    presets = presets_of("image")
    lora_targets = ("layers.*",)
    starts, heads, finetune_length = ("vit",), ("classifier", "teacher"), "10 epochs"
    least_steps = {"cpu": 60, "cuda": 200}  # recipes/cifar10_finetune.py; 200 of a base size take an hour on a CPU
    card = Card(pipeline="image-classification", title="An image classifier", use="classify {} picture.png")

    def complete(self, data: ImagesConfig, preset: Preset) -> ImagesConfig:
        from regard.data import image_sets
        from regard.data.images import OWN_SIZE

        side = data.size or image_sets.SIZES.get(data.name, OWN_SIZE)
        return dataclasses.replace(super().complete(data, preset), size=side, augment=usual_augment(data))

    def model_settings(self, data: ImagesConfig, arch: str, device: str, settings: dict[str, Any]) -> dict[str, Any]:
        channels = data.channels or 3
        if arch == "mlp":
            return {"labels": UNKNOWN_LABELS, "shape": (channels, data.size, data.size)}
        own: dict[str, Any] = {"labels": UNKNOWN_LABELS, "image": data.size, "channels": channels}
        if arch == "vit":
            own["patch"] = patch_for(data.size, PATCHES[device], settings.get("stem") == "conv")
        return own

    def finetune_run(self, start: Path, data: ImagesConfig, device: str, lora: int) -> "Run":
        """As ViTs are fine-tuned (Bao et al. 2022, appendix): lower layers learn more slowly."""
        from regard.data.framing import read_framing, read_range
        from regard.models.published import read_config
        from regard.training.run import Run

        config: Any = read_config(start)
        mean, std = read_range(start) or (config.mean, config.std)
        side = data.size or read_framing(start, config.image).side
        model = dataclasses.replace(config, image=side, labels=UNKNOWN_LABELS, mean=mean, std=std)
        preset = self.preset(self.arch, device)
        data = dataclasses.replace(self.complete(data, preset), size=side, channels=config.channels)
        decay = 1.0 if lora else 0.75
        return Run(
            **fine_tuning(self.name, start, device, lora),
            model=model,
            data=data,
            optim=Optim(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.05, layer_decay=decay),
            schedule=Schedule(kind="cosine", warmup=20),
            epochs=10.0,
            batch=32,
            smoothing=0.1 if self.target_kind == "classes" else 0.0,
        )

    def probe(self, run: "Run") -> "Run":
        """The run with a frozen encoder, which trains only a linear head."""
        optim = dataclasses.replace(run.optim, lr=1e-2, layer_decay=1.0)
        return dataclasses.replace(run, frozen=True, optim=optim)

    def settings_from_data(self, run: "Run") -> dict[str, Any]:
        model = run.model
        channels, side = run.data.channels or model.shape[0], run.data.size or model.shape[1]
        if not hasattr(model, "image"):  # an MLP reads any shape
            return {"shape": (channels, side, side)}
        own = {"image": side, "channels": channels}
        if hasattr(model, "patch") and side != model.image:
            own["patch"] = patch_for(side, model.grid, model.stem == "conv")
        return own

    def read(self, run: "Run", say: Say) -> Any:
        from regard.data.images import load_images

        data = load_images(run.data, say)
        say(data.report())
        return data

    def fit(self, run: "Run", data: Any) -> "Run":
        """Classes, size, channels and range of the images."""
        import numpy as np

        _, channels, side, _ = data.train.pixels.shape
        mean, std = (run.model.mean, run.model.std) if run.start else data.spread()
        if not hasattr(run.model, "image"):
            mean, std = ((round(float(np.mean(x)), 4),) for x in (mean, std))
            shape: dict[str, Any] = {"shape": (channels, side, side)}
        else:
            shape = {"image": side, "channels": channels}
        return run.with_model(labels=data.labels, mean=mean, std=std, **shape)

    def objective(self, run: "Run", data: Any = None) -> Any:
        from regard.objectives.classify import ClassifyImages

        return ClassifyImages(run.smoothing, scores=self.scores(run, data))

    def source(self, run: "Run", data: Any, part: str, device: str) -> Any:
        from regard.data.images import ImageSource

        augment = run.data.augment if part == "train" else None
        return ImageSource(getattr(data, part), len(data.labels), augment, device)

    def flops_per_target(self, model: Any, run: "Run") -> float:
        c = model.config
        if not hasattr(c, "patch"):  # known for a ViT only
            return 0.0
        places = c.grid**2 + c.tokens
        weights = sum(p.numel() for layer in model.layers for p in layer.parameters() if p.ndim == 2)
        return 6.0 * places * (weights + 2 * c.layers * places * c.width)  # 2 per product, backward twice that

    def example(self, run: "Run") -> Any:
        import numpy as np
        import torch

        from regard.data.batch import Samples

        pixels = torch.zeros(run.batch, *run.model.shape, dtype=torch.uint8)
        return Samples((pixels,), torch.zeros(run.batch, dtype=torch.long), np.arange(run.batch))

    def write_files(self, folder: Path, run: "Run", data: Any) -> None:
        write_preprocessor(folder, run.model)

    def serves(self, config: Any) -> bool:
        return super().serves(config) and len(config.shape) == 3

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str) -> Any:
        from regard.predictors import ImageClassifier

        return ImageClassifier(model, device, folder)

    reads, measured = "images", "pixels"
    family, views = "image", ("classes",)
    purpose = "classify images"
    unit = "images"
    draws_attention = True

    def test_set(self, predictor: Any, folder: Path, options: Options, console: Console) -> TestSet:
        from regard.data.images import list_images, load_images, own_pixels, pixel_digests
        from regard.data.pixels import with_channels
        from regard.data.targets import TARGETS

        channels, side, _ = predictor.shape
        if not options.data:
            config = self.own_data(folder)
            loaded = load_images(config, console.say)
            on, part = "its own validation set", loaded.valid
            if loaded.test is not None:
                on, part = f"its test set{f' of {config.name}' if config.name else ''}", loaded.test
            if part.pixels.shape[1:] != tuple(predictor.shape):
                raise ConfigError(f"{on} has images of a different size; add: --data FOLDER")
            cells = [loaded.labels[code] for code in part.labels]
            return TestSet(on=on, inputs=part.pixels, targets=self.targets(predictor, cells, [on] * len(cells)))
        label = self.own_data(folder).label if (folder / "run.json").is_file() else ""
        images = list_images(user_path(options.data), label, TARGETS[self.target_kind].fault, options.strict)
        true = self.targets(predictor, [x.label for x in images], [x.where for x in images])
        pixels, kept, skipped = own_pixels(images, side, channels, console.say)
        for why, names in skipped:
            console.say(f"skipped {len(names):,}: {why}; the first is {names[0]}")
        pixels = with_channels(pixels, channels)
        return TestSet(on=options.data, inputs=pixels, targets=true[kept], contents=pixel_digests(pixels))

    def training_contents(self, predictor: Any, data: ImagesConfig) -> Iterable[bytes]:
        from regard.data.images import load_images, pixel_digests

        return pixel_digests(load_images(data, silent).train.pixels)

    def parse_inputs(self, predictor: Any, words: Sequence[str], console: Console) -> Any:
        return predictor.read(words)

    def read_inputs(self, predictor: Any, folder: Path, file: Path, options: Options, console: Console) -> Inputs:
        return image_inputs(file, predictor.read, console)

    def explain(self, predictor: Any, one: Any, answer: Any) -> Any:
        """The attention rollout over the patches, as rows and columns."""
        return {"patches": predictor.attention(one[0]).rollout.round(6).tolist()}

    def draw_attention(self, predictor: Any, words: Sequence[str], inputs: Any, answers: Any, path: str) -> Path:
        from regard.data.pixels import read_image
        from regard.explain.rollout import draw

        seen, best = predictor.attention(words[0]), answers[0]
        title = f"{best.label} {best.probabilities[best.label]:.0%}"
        return draw(read_image(Path(words[0]))[0], seen.rollout, seen.heads, title, path)


def image_inputs(file: Path, read: Callable[[list[Path]], Any], console: Console) -> Inputs:
    """The images of a folder, or a single one; unreadable ones are reported."""
    from regard.data.images import files_of

    if not file.exists():
        raise DataError(f"no file or folder {file}")
    files = list(files_of(file)) if file.is_dir() else [file]
    if not files:
        raise DataError(f"{file} holds no images")

    def examples() -> Iterator[tuple[dict[str, Any], Any]]:
        for path in files:
            try:
                pixels = read([path])[0]
            except DataError as e:
                console.say(f"no answer: {e}")
                pixels = None
            yield {"file": str(path)}, pixels

    return Inputs(examples=examples(), unit="images", total=len(files))


def usual_augment(data: ImagesConfig) -> Augment:
    """Small shifts for all; photographs are also mirrored, digits are not."""
    if data.augment != Augment():
        return data.augment
    return Augment(crop=0.07, flip=data.name not in ("mnist", "digits"))


def patch_for(side: int, patches: int, halved: bool) -> int:
    """The patch size, at most 16, that divides `side` pixels into about `patches`; a power of 2 if `halved`."""
    wanted = min(16.0, max(2.0, side / patches))
    fitting = [p for p in range(1, side + 1) if side % p == 0 and not (halved and p & (p - 1))]
    return min(fitting, key=lambda p: abs(p - wanted))


def write_preprocessor(folder: Path, config: Any) -> None:
    from regard.data.framing import FILE, preprocessor

    write_json(folder / FILE, preprocessor(config))
