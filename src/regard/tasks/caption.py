"""Caption: an image in, a sentence out."""

import dataclasses
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.settings import Augment, CaptionsConfig
from regard.tasks import presets
from regard.tasks.base import Arch, Card, Preset, Say, Task
from regard.tasks.image import patch_for, write_preprocessor
from regard.words import count

if TYPE_CHECKING:
    from regard.train.run import Run

CAPTIONED = {"cpu": 100, "cuda": 1000}  # validation images captioned at each evaluation, at most
AUGMENT = Augment(crop=0.08, flip=True)
SIDES = re.compile(r"\b(left|right)\b", re.IGNORECASE)


class Caption(Task):
    name = "caption"
    summary = "a sentence for each image"
    settings = CaptionsConfig
    options = ("valid", "images")
    data_help = "A table of paths and captions, or a name."
    examples = (
        "regard train caption --data captions.tsv --images FOLDER",
        "regard train caption --data flickr8k --arch transformer,lstm",
    )
    archs = {"transformer": Arch("captioner"), "lstm": Arch("show_attend_tell")}
    presets = presets.CAPTIONS
    card = Card(pipeline="image-to-text", title="An image captioner", use="caption {} picture.png")

    def complete(self, data: CaptionsConfig, preset: Preset) -> CaptionsConfig:
        augment = AUGMENT if data.augment == Augment() else data.augment
        return dataclasses.replace(super().complete(data, preset), augment=augment)

    def model_settings(self, data: Any, arch: str, device: str, settings: dict[str, Any]) -> dict[str, Any]:
        patch = patch_for(data.size, 12, halved=True)
        return {"vocab": data.vocab, "image": data.size, "max_length": data.max_length, "patch": patch}

    def settings_from_data(self, run: "Run") -> dict[str, Any]:
        data, model = run.data, run.model
        own = {"vocab": data.vocab, "image": data.size, "max_length": max(data.max_length, model.max_length)}
        if data.size != model.image:
            own["patch"] = patch_for(data.size, model.encoder.grid, halved=model.stem == "conv")
        return own

    def read(self, run: "Run", say: Say) -> Any:
        from regard.data.captions import load_captions

        data = load_captions(run.data, say)
        say(data.report())
        return data

    def fit(self, run: "Run", data: Any) -> "Run":
        mean, std = data.spread()
        model = dataclasses.replace(run.model, vocab=data.tokenizer.size, mean=mean, std=std)
        return dataclasses.replace(run, model=model)

    def objective(self, run: "Run", data: Any = None) -> Any:
        from regard.objectives.caption import Caption as Objective

        return Objective(run.smoothing)

    def source(self, run: "Run", data: Any, part: str, device: str) -> Any:
        from regard.data.captions import CaptionSource

        augment = run.data.augment if part == "train" else None
        return CaptionSource(getattr(data, part), data.tokenizer, run.data.max_length, augment, device)

    def metric(self, run: "Run", data: Any, device: str) -> Callable[[Any], dict[str, float]]:
        """BLEU-4 and CIDEr of greedy captions of validation images."""
        from regard.evaluate.captions import score_captions
        from regard.predictors import ImageCaptioner

        images = CAPTIONED[device.split(":")[0]]

        def metric(model: Any) -> dict[str, float]:
            captions = ImageCaptioner(model, data.tokenizer, device).caption(data.valid.pixels[:images], beam=1)
            scores = score_captions([h.text for h in captions], data.valid.captions[:images])
            return {"bleu": scores.bleu, "cider": scores.cider}

        return metric

    def remarks(self, run: "Run", data: Any, loader: Any) -> Iterable[str]:
        yield f"an epoch is {count(loader.batches_per_epoch, 'batch')}"
        if run.data.augment.flip and (share := sided(data.train.captions)) > 0.01:
            yield (
                f"{share:.0%} of the captions mention left or right, and images are mirrored half of the time; "
                "if that matters: --set data.augment.flip=false"
            )

    def example(self, run: "Run") -> Any:
        import numpy as np
        import torch

        from regard.data.batch import Samples

        pixels = torch.zeros(run.batch, *run.model.shape, dtype=torch.uint8)
        words = torch.zeros(run.batch, run.data.max_length, dtype=torch.long)
        return Samples((pixels, words), words, np.arange(run.batch))

    def generation(self, run: "Run", data: Any) -> dict[str, Any]:
        eos, pad = data.tokenizer.eos, data.tokenizer.pad
        return {"eos_token_id": eos, "pad_token_id": pad, "decoder_start_token_id": pad, "bad_words_ids": [[pad]],
                "max_length": run.data.max_length}  # fmt: skip

    def write_files(self, folder: Path, run: "Run", data: Any) -> None:
        data.tokenizer.save(folder, run.data.max_length)
        write_preprocessor(folder, run.model)

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str, int8: bool) -> Any:
        from regard.data.tokenizers import load
        from regard.predictors import ImageCaptioner

        return ImageCaptioner(model, load(folder), device)


def sided(captions: list[list[str]]) -> float:
    """The share of the captions that mention left or right, in English."""
    every = [caption for group in captions for caption in group]
    return sum(SIDES.search(caption) is not None for caption in every) / max(1, len(every))
