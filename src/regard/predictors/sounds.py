"""A trained classifier of clips at work."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard.data.audio import HOP, RATE, load_wav
from regard.data.clips import padded, picture
from regard.errors import ConfigError
from regard.models.sound_classifier import SoundClassifier
from regard.predictors.labeller import Answer
from regard.ticks import tick

BATCH = 64


class ClipClassifier:
    """Clips of sound to labels. What is longer than `seconds` is cut."""

    def __init__(self, model: SoundClassifier, device: str = "cpu"):
        self.model, self.device = model.to(device).eval(), torch.device(device)
        self.labels: tuple[str, ...] = model.config.labels
        self.seconds = model.config.frames * HOP / RATE

    @torch.inference_mode()
    def probabilities(self, sounds: Sequence[Tensor]) -> np.ndarray:
        """N L, in the order of `labels`, of sounds as `load_wav` gives them."""
        config, rows = self.model.config, []
        for start in range(0, len(sounds), BATCH):
            pictures = [picture(sound, config.mels, config.frames) for sound in sounds[start : start + BATCH]]
            frames, lengths = padded(pictures)
            hidden = self.model(frames.to(self.device), lengths.to(self.device))
            rows.append(self.model.scores(hidden).double().softmax(-1).cpu().numpy())
            tick(len(pictures))
        return np.concatenate(rows) if rows else np.zeros((0, len(self.labels)))

    def classify(self, files: Sequence[str | Path]) -> list[Answer]:
        """The label of each WAV file."""
        if isinstance(files, str | Path):
            raise ConfigError("wanted a list of files, got one; write [file], in brackets")
        return [
            Answer(self.labels[int(row.argmax())], dict(zip(self.labels, row.tolist(), strict=True)))
            for row in self.probabilities([load_wav(file) for file in files])
        ]
