"""Zero-shot: images by the names of their classes, with a published CLIP; there is no training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.errors import ConfigError
from regard.tasks.base import Card
from regard.tasks.classes import Classes
from regard.tasks.use import Inputs, Options
from regard.ticks import Console


class ZeroShot(Classes):
    name = "zero-shot"
    summary = "a class for each image, of classes that are named and not learned"
    settings = type(None)
    card = Card(pipeline="zero-shot-image-classification", title="CLIP", use="classify {} picture.png --labels cat,dog")
    reads, unit = "images", "images"
    purpose = "classify images by the names of classes"
    takes_labels = True

    def serves(self, config: Any) -> bool:
        from regard.models.registry import model_type

        return model_type(config) == "clip"

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str) -> Any:
        from regard.predictors.zero_shot import ZeroShotClassifier

        return ZeroShotClassifier(model, folder, device)

    def parse_inputs(self, predictor: Any, words: Sequence[str], console: Console) -> Any:
        return predictor.read(words)

    def read_inputs(self, predictor: Any, folder: Path, file: Path, options: Options, console: Console) -> Inputs:
        raise ConfigError(f"name one image at a time: regard classify {folder} picture.png --labels cat,dog")
