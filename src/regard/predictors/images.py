"""A trained classifier of images at work."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.pixels import grey, read_image
from regard.errors import CheckpointError, ConfigError
from regard.explain.rollout import rollout
from regard.jsonfile import read_json
from regard.models.vit import Scale, ViT
from regard.nn.taps import watch
from regard.predictors.labeller import Answer
from regard.ticks import tick

BATCH = 256


@dataclass(frozen=True)
class Seen:
    """Where a ViT looked: for every patch, as rows and columns, how much; each map sums to 1."""

    rollout: np.ndarray  # h w: through all layers
    heads: np.ndarray  # L H h w: what stands for the image, looking at the patches


class ImageClassifier:
    """Images to labels. `labels` are the classes, `shape` is what the model reads: channels and pixels a side."""

    def __init__(self, model: Any, device: str = "cpu", folder: Path | None = None):
        if isinstance(model, ViT) and folder is not None:
            model.scale = scale_of(folder, model.scale)
        self.model, self.device = model.to(device).eval(), torch.device(device)
        self.labels: tuple[str, ...] = model.config.labels
        self.shape: tuple[int, int, int] = model.config.shape

    def read(self, paths: Sequence[str | Path]) -> np.ndarray:
        """The pictures as the model wants them: N C P P bytes."""
        if isinstance(paths, str | Path):
            raise ConfigError("wanted a list of files, got one; write [file], in brackets")
        channels, side, _ = self.shape
        found = [np.moveaxis(read_image(Path(path), side)[0], -1, 0)[None] for path in paths]
        return np.concatenate([grey(x, channels) for x in found]) if found else np.zeros((0, *self.shape), np.uint8)

    @torch.inference_mode()
    def probabilities(self, pixels: np.ndarray) -> np.ndarray:
        """N C P P bytes -> N L, in the order of `labels`."""
        rows = []
        for start in range(0, len(pixels), BATCH):
            some = torch.tensor(pixels[start : start + BATCH], device=self.device)
            rows.append(self.model.scores(self.model(some)).double().softmax(-1).cpu().numpy())
            tick(len(some))
        return np.concatenate(rows) if rows else np.zeros((0, len(self.labels)))

    def classify(self, paths: Sequence[str | Path]) -> list[Answer]:
        """The label of each picture."""
        return [
            Answer(self.labels[int(row.argmax())], dict(zip(self.labels, row.tolist(), strict=True)))
            for row in self.probabilities(self.read(paths))
        ]

    @torch.inference_mode()
    def attention(self, path: str | Path) -> Seen:
        """Where the model looked in one picture. The fast kernels run as ever; taps keep what they were given."""
        if not isinstance(self.model, ViT):
            raise ConfigError(f"{type(self.model).__name__} does not look anywhere: only a vit has attention")
        with watch(self.model, "layers.*.attention.look") as seen:
            self.model(torch.from_numpy(self.read([path])).to(self.device))
        weights = torch.stack([calls[0].weights()[0].cpu() for calls in seen.values()])  # L H T T
        side = self.model.config.grid
        token = self.model.first is not None
        through = rollout(weights.mean(1))  # T T
        whole = through[0, 1:] if token else through.mean(0)  # N
        heads = weights[:, :, 0, 1:] if token else weights.mean(2)  # L H N
        heads = heads / heads.sum(-1, keepdim=True)
        return Seen((whole / whole.sum()).view(side, side).numpy(), heads.unflatten(-1, (side, side)).numpy())


def scale_of(folder: Path, usual: Scale) -> Scale:
    """As preprocessor_config.json of a published folder has it: config.json may not say how pixels are scaled."""
    path = folder / "preprocessor_config.json"
    if not path.is_file():
        return usual
    try:
        known = read_json(path)
        return Scale(tuple(known["image_mean"]), tuple(known["image_std"])) if "image_mean" in known else usual
    except (ValueError, KeyError, TypeError, RuntimeError) as e:
        raise CheckpointError(f"{path}: cannot be read ({e})") from None
