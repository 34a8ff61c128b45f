"""Zero-shot image classification with CLIP, by the names of the classes alone."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.framing import read_framing
from regard.data.tokenizers.opened import guarded, open_tokenizer
from regard.errors import ConfigError
from regard.models.clip import CLIP
from regard.predictors.base import Classification, Output, chunks, list_of_files
from regard.predictors.images import read_images, scale_of

PROMPT = "a photo of a {}."  # section 3.1.4: closer to the training data than the name alone
BATCH = 64


class ZeroShotClassifier:
    """Images, N C P P bytes, to the label that fits best."""

    def __init__(self, model: CLIP, folder: Path, device: str = "cpu"):
        channels, side, _ = model.config.shape
        model.scale, self.framing = scale_of(folder, model.scale), read_framing(folder, side)
        self.channels = channels
        self.model, self.device = model.to(device).eval(), torch.device(device)
        self.tokenizer = open_tokenizer(folder / "tokenizer.json")

    def read(self, paths: Sequence[str | Path]) -> np.ndarray:
        """The images as the model reads them: N C P P bytes."""
        return read_images(list_of_files(paths), self.channels, self.framing)

    def predict(self, inputs: Iterable[Any], labels: Sequence[str] = ()) -> Iterator[Classification]:
        """The label that fits each image best, and the probabilities of all."""
        texts = self.embed([PROMPT.format(label) for label in check_labels(labels)])
        output = Output(tuple(labels))
        for some in chunks(inputs, BATCH):
            with torch.inference_mode():
                images = self.model.images(torch.from_numpy(np.stack(some)).to(self.device))
                scores = self.model.compare(images, texts).double()
            yield from map(output.answer, output.values(scores).cpu().numpy())

    @guarded
    @torch.inference_mode()
    def embed(self, texts: Sequence[str]) -> torch.Tensor:
        """A vector for each text, N E; texts over the length limit are cut."""
        ids = [self.tokenizer.encode(text).ids for text in texts]
        longest = self.model.config.context
        ids = [row if len(row) <= longest else [*row[: longest - 1], row[-1]] for row in ids]
        size = max(map(len, ids))
        padded = torch.tensor([row + [row[-1]] * (size - len(row)) for row in ids], device=self.device)
        return self.model.texts(padded, torch.tensor([len(row) for row in ids], device=self.device))


def check_labels(labels: Sequence[str]) -> Sequence[str]:
    if len(set(labels)) < 2 or len(set(labels)) < len(labels):
        raise ConfigError(
            f"expected two or more different labels, got {', '.join(labels) or 'none'}", "type: --labels cat,dog"
        )
    return labels
