"""Audio: a class for each short clip."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.settings import AudioConfig
from regard.tasks import presets
from regard.tasks.base import UNKNOWN_LABELS, Arch, Card, Say
from regard.tasks.classes import ClassesOfSamples

if TYPE_CHECKING:
    from regard.train.run import Run

FRAMES = 100  # of a clip, when memory is estimated


class Audio(ClassesOfSamples):
    name = "audio"
    summary = "a class for each audio clip"
    settings = AudioConfig
    options = ("valid", "label")
    data_help = "A folder with a folder of clips for each class, a tar of one, a table of files and labels, or a name."
    examples = ("regard train audio --data clips/               # a folder for each class",)
    archs = {"transformer": Arch("sound_classifier")}
    presets = presets.AUDIO
    card = Card(pipeline="audio-classification", title="An audio classifier", use="classify {} clip.wav")
    valid_batch = 64

    def model_settings(self, data: Any, arch: str, device: str, settings: dict[str, Any]) -> dict[str, Any]:
        return {"labels": UNKNOWN_LABELS, "mels": data.mels, "frames": data.frames}

    def settings_from_data(self, run: "Run") -> dict[str, Any]:
        return {"mels": run.data.mels, "frames": run.data.frames}

    def read(self, run: "Run", say: Say) -> Any:
        from regard.data.clips import load_clips

        data = load_clips(run.data, say)
        say(data.report())
        return data

    def fit(self, run: "Run", data: Any) -> "Run":
        return dataclasses.replace(run, model=dataclasses.replace(run.model, labels=data.labels))

    def source(self, run: "Run", data: Any, part: str, device: str) -> Any:
        from regard.data.clips import ClipSource

        if part == "train":
            return ClipSource(data.train, run.data.masks, run.data.widest)
        return ClipSource(data.valid)

    def example(self, run: "Run") -> Any:
        import numpy as np
        import torch

        from regard.data.batch import Samples

        frames = min(FRAMES, run.data.frames)
        pictures, lengths = torch.zeros(run.batch, run.data.mels, frames), torch.full((run.batch,), frames)
        return Samples((pictures, lengths), torch.zeros(run.batch, dtype=torch.long), np.arange(run.batch))

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str, int8: bool) -> Any:
        from regard.predictors import ClipClassifier

        return ClipClassifier(model, device)
