"""Predict the class of audio clips."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard.data.audio import padded, spectrogram
from regard.data.waveform import HOP, RATE, load_waveform
from regard.models.audio_classifier import AudioTransformer
from regard.predictors.base import Classification, ClassPredictor, Output, list_of_files
from regard.ticks import tick

BATCH = 64


class AudioClassifier(ClassPredictor):
    """Clips to labels; an input is the samples of one. Clips longer than `seconds` are cut."""

    family, chunk = "audio", BATCH

    def __init__(self, model: AudioTransformer, device: str = "cpu"):
        self.model, self.device = model.to(device).eval(), torch.device(device)
        self.output = Output(model.config.labels)
        self.seconds = model.config.frames * HOP / RATE

    @torch.inference_mode()
    def probabilities(self, sounds: Sequence[Tensor]) -> np.ndarray:
        """N L, in the order of `labels`, for clips as `load_waveform` returns them."""
        config, rows = self.model.config, []
        for start in range(0, len(sounds), BATCH):
            pictures = [spectrogram(sound, config.mels, config.frames) for sound in sounds[start : start + BATCH]]
            frames, lengths = padded(pictures)
            hidden = self.model(frames.to(self.device), lengths.to(self.device))
            rows.append(self.values(self.model.scores(hidden)))
            tick(len(pictures))
        return np.concatenate(rows) if rows else np.zeros((0, len(self.labels)))

    def classify(self, files: Sequence[str | Path]) -> list[Classification]:
        """The label of each audio file."""
        return list(self.predict([load_waveform(file) for file in list_of_files(files)]))
