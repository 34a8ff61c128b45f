"""Caption images, and show where the model looked for each word."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from regard.data.framing import Framing
from regard.data.pixels import Pixels
from regard.models.captioner import grid_of
from regard.predictors.base import chunks, list_of_files
from regard.predictors.images import read_images
from regard.predictors.translator import Batch, Hypotheses, Hypothesis, Translator
from regard.predictors.workers import even

CHUNK = 128  # images read at a time


class ImageCaptioner(Translator):
    """A translator whose sources are images, N C P P bytes, read from files by `images`."""

    family = "captioner"
    framing: Framing | None = None  # of a published folder, which may crop images differently

    def images(self, paths: Sequence[str | Path]) -> np.ndarray:
        channels, side, _ = self.model.config.shape
        return read_images(list_of_files(paths), channels, self.framing or Framing(side))

    def predict(self, inputs: Iterable[Any], **options: Any) -> Iterator[Hypotheses]:
        """Captions of each image; options as for `hypotheses`."""
        for some in chunks(inputs, CHUNK):
            yield from map(Hypotheses, self.hypotheses(cast("Any", np.stack(some)), **options))

    def caption(self, pixels: Pixels, **settings: Any) -> list[Hypothesis]:
        """The best caption of each image; settings as for `Translator.hypotheses`."""
        return [best[0] for best in self.hypotheses(cast("Any", pixels), **settings)]

    def batches(
        self, texts: Any, batch: int, max_length: int = 0, cut: bool = False, count: int = 1
    ) -> Iterator[Batch]:
        """Some images at a time: their rows, B C P P pixels, no lengths, and the most tokens of each caption, B."""
        room, size = self.model.config.max_length, even(len(texts), batch, count)
        for start in range(0, len(texts), size):
            pixels = torch.tensor(texts[start : start + size], device=self.device)
            rows = list(range(start, start + len(pixels)))
            limits = torch.full((len(rows),), min(max_length or room, room), device=self.device)
            yield rows, pixels, None, limits

    @torch.inference_mode()
    def looks(self, pixels: np.ndarray, ids: Sequence[int]) -> list[tuple[str, np.ndarray]]:
        """For each word of a caption of one image, C P P, the attention over the patches: h w, summing to 1.

        The mean over the heads of the last layer and the tokens of a word; `ids` are the caption's, with the end.
        """
        weights = self.cross_weights(torch.tensor(pixels[None], device=self.device), ids)[-1].mean(0)  # T S
        maps = grid_of(self.model, weights.float().cpu())  # T h w
        maps = maps / maps.sum((1, 2), keepdim=True)
        written = [i for i in ids if i not in (self.tokenizer.eos, self.tokenizer.pad)]  # which come at the end
        words = self.tokenizer.words(written)
        names = ["".join(map(self.tokenizer.piece, (written[place] for place in word))).lstrip("▁") for word in words]
        return [(name, maps[word].mean(0).numpy()) for name, word in zip(names, words, strict=True)]
