"""A classifier of short clips: Whisper's encoder over the log-mel spectrogram, mean-pooled."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.models.checks import check_model
from regard.models.whisper import sines_then_cosines
from regard.nn.audio import AudioStem
from regard.nn.blocks import Norm, PreNormEncoderLayer, compute_dtype
from regard.nn.dropout import Dropout
from regard.nn.init import glorot_
from regard.nn.masks import Everything, Lengths, pooled
from regard.nn.positions import Sinusoidal, reach_
from regard.shapes import check


@dataclass(frozen=True, kw_only=True)
class AudioTransformerConfig:
    mels: int = 40
    frames: int = 1000  # of the longest clip, 10 ms each
    width: int = 128
    layers: int = 4
    heads: int = 4
    ffn: int = 256
    dropout: float = 0.1
    positions: str = "sinusoidal"  # or "whisper": slightly lower frequencies
    labels: tuple[str, ...] = ("0", "1")

    def __post_init__(self):
        check_model(self, {"frames": 2, "width": 4}, full=("labels",), positions=PLACES)


class WhisperPlaces(nn.Module):
    """Whisper's sinusoids, for any number of positions."""

    table: Tensor

    def __init__(self, places: int, width: int):
        super().__init__()
        self.places = places
        self.register_buffer("table", sines_then_cosines(places, width), persistent=False)

    def forward(self, where: Tensor) -> Tensor:
        return self.table[where]


PLACES: dict[str, type[nn.Module]] = {"sinusoidal": Sinusoidal, "whisper": WhisperPlaces}


class AudioTransformer(nn.Module):
    """The left half of figure 1 in Radford et al. 2022, with a classification head."""

    def __init__(self, c: AudioTransformerConfig):
        super().__init__()
        self.config = c
        self.stem = AudioStem(c.mels, c.width)
        self.place: Any = PLACES[c.positions]((c.frames + 1) // 2, c.width)
        parts = (c.width, c.heads, c.ffn, c.dropout, "gelu")
        self.layers = nn.ModuleList(PreNormEncoderLayer(*parts) for _ in range(c.layers))
        self.norm = Norm(c.width)
        self.drop = Dropout(c.dropout)
        self.classifier = nn.Linear(c.width, len(c.labels))
        glorot_(self)

    def forward(self, frames: Tensor, lengths: Tensor | None = None) -> Tensor:
        """B mels F spectrograms, of which the first `lengths[b]` frames are real -> B D, a vector per clip."""
        check(frames, "B mels F", mels=self.config.mels)
        frames = frames[:, :, : 2 * self.place.places]  # beyond is only padding: no clip is that long
        x = self.stem(frames, lengths)  # B S D
        reach_(self, x.size(1))
        where = torch.arange(x.size(1), device=x.device)
        x = self.drop(compute_dtype(x + self.place(where)))
        sizes = None if lengths is None else (lengths + 1) // 2  # B
        mask = Everything() if sizes is None else Lengths(sizes, x.size(1))
        for layer in self.layers:
            x = layer(x, mask)
        return pooled(self.norm(x), sizes, "mean")

    def scores(self, hidden: Tensor) -> Tensor:
        """Class logits: B D -> B labels."""
        return self.classifier(self.drop(hidden))
