"""Predict the class of images, and show where a ViT looked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.framing import Framing, read_framing, read_range
from regard.data.pixels import grey, read_image
from regard.errors import ConfigError
from regard.explain.rollout import rollout
from regard.models.vit import Scale, ViT
from regard.nn.taps import watch
from regard.predictors.base import Classification, ClassPredictor, Output, list_of_files
from regard.ticks import tick

BATCH = 256


@dataclass(frozen=True)
class Seen:
    """Where a ViT looked: attention maps over the patches, each summing to 1."""

    rollout: np.ndarray  # h w: through all layers
    heads: np.ndarray  # L H h w: from the image token, or the mean of all, to the patches


class ImageClassifier(ClassPredictor):
    """Images to labels; an input is the pixels of one, in the model's own `shape`, C P P."""

    family = "image"

    def __init__(self, model: Any, device: str = "cpu", folder: Path | None = None):
        channels, side, _ = model.config.shape
        self.framing = Framing(side)
        if isinstance(model, ViT) and folder is not None:
            model.scale, self.framing = scale_of(folder, model.scale), read_framing(folder, side)
        self.model, self.device = model.to(device).eval(), torch.device(device)
        self.output = Output(model.config.labels)
        self.shape: tuple[int, int, int] = channels, self.framing.side, self.framing.side

    def read(self, paths: Sequence[str | Path]) -> np.ndarray:
        """The images as the model reads them: N C P P bytes."""
        return read_images(list_of_files(paths), self.shape[0], self.framing)

    @torch.inference_mode()
    def probabilities(self, inputs: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
        """N C P P bytes -> N L, in the order of `labels`."""
        pixels = np.stack(inputs) if isinstance(inputs, list) else inputs
        rows = []
        for start in range(0, len(pixels), BATCH):
            some = torch.tensor(pixels[start : start + BATCH], device=self.device)
            rows.append(self.values(self.model.scores(self.model(some))))
            tick(len(some))
        return np.concatenate(rows) if rows else np.zeros((0, len(self.labels)))

    def classify(self, paths: Sequence[str | Path]) -> list[Classification]:
        """The label of each image file."""
        return list(self.predict(self.read(paths)))

    @torch.inference_mode()
    def attention(self, image: str | Path | np.ndarray) -> Seen:
        """Where the model looked in one image, a file or C P P bytes."""
        if not isinstance(self.model, ViT):
            raise ConfigError(f"{type(self.model).__name__} has no attention to show; only a vit does")
        pixels = image[None] if isinstance(image, np.ndarray) else self.read([image])
        with watch(self.model, "layers.*.attention.look") as seen:
            self.model(torch.tensor(pixels, device=self.device))
        weights = torch.stack([calls[0].weights()[0].cpu() for calls in seen.values()])  # L H T T
        tokens = self.model.config.tokens
        side = math.isqrt(weights.size(-1) - tokens)
        through = rollout(weights.mean(1))  # T T
        whole = through[0, tokens:] if tokens else through.mean(0)  # N
        heads = weights[:, :, 0, tokens:] if tokens else weights.mean(2)  # L H N
        heads = heads / heads.sum(-1, keepdim=True)
        return Seen((whole / whole.sum()).view(side, side).numpy(), heads.unflatten(-1, (side, side)).numpy())


def read_images(paths: Sequence[str | Path], channels: int, framing: Framing) -> np.ndarray:
    """Image files as a model reads them: N C P P bytes."""
    images = [grey(np.moveaxis(read_image(Path(path), framing)[0], -1, 0)[None], channels) for path in paths]
    return np.concatenate(images) if images else np.zeros((0, channels, framing.side, framing.side), np.uint8)


def scale_of(folder: Path, usual: Scale) -> Scale:
    """The pixel scaling of preprocessor_config.json, which config.json may lack; `usual` if there is none."""
    range_ = read_range(folder)
    return Scale(*range_) if range_ else usual
