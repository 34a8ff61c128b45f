"""Audio: a class for each short clip."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.folders import user_path
from regard.data.settings import AudioConfig
from regard.errors import DataError
from regard.tasks import presets
from regard.tasks.base import UNKNOWN_LABELS, Arch, Card, Say
from regard.tasks.classes import ClassesOfSamples, class_indices, class_row

if TYPE_CHECKING:
    from regard.data.clips import Clip
    from regard.tasks.use import Options, Predictions
    from regard.ticks import Console
    from regard.train.run import Run

CHUNK = 64  # clips read at a time
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

    things = "clips"

    def test_set(self, predictor: Any, folder: Path, data: str, console: "Console") -> tuple[str, Any, Any]:
        on, clips = self.clips(folder, data, console)
        clips = [(clip, sound) for clip, sound in sounds_of(clips, console) if sound is not None]
        if not clips:
            raise DataError(f"{on}: no clips to score on")
        true = class_indices([c.label for c, _ in clips], predictor.labels, [c.file for c, _ in clips])
        return on, [sound for _, sound in clips], true

    def clips(self, folder: Path, data: str, console: "Console") -> tuple[str, "list[Clip]"]:
        """The clips to score on, and what they are called."""
        from regard.data import fetch
        from regard.data.clips import list_clips, parts

        if data:
            label = self.own_data(folder, "").label if (folder / "run.json").is_file() else ""
            return data, list_clips(user_path(data), label)
        config = self.own_data(folder, "--data FOLDER")
        if config.name and (test := fetch.get_files(config.name, "audio", say=console.say).test):
            return f"the test set of {config.name}", list_clips(test)
        return "its own validation clips", parts(config, console.say)[1]

    def predictions(
        self, predictor: Any, folder: Path, file: Path, options: "Options", console: "Console"
    ) -> "Predictions":
        """Every clip of a folder, an archive or a table, or one, with its label and probabilities."""
        return clip_predictions(file, console, lambda sounds: predictor.probabilities(sounds),
                                lambda p: class_row(predictor.labels, p))  # fmt: skip


def sounds_of(clips: "Sequence[Clip]", console: "Console") -> "Iterator[tuple[Clip, Any]]":
    """Each clip and its samples; one that cannot be read has none, and is reported."""
    for clip in clips:
        try:
            yield clip, clip.sound()
        except DataError as e:
            console.say(f"skipped: {e}")
            yield clip, None


def clip_predictions(
    file: Path, console: "Console", answer: Callable[[list[Any]], Any], cells: Callable[[Any], dict[str, Any]]
) -> "Predictions":
    """A row for each clip, in order; the cells of one that cannot be read are empty."""
    from regard.data.clips import list_clips
    from regard.tasks.use import Predictions

    clips = list_clips(file, labelled=False)
    if not clips:
        raise DataError(f"{file} holds no audio files")

    def rows() -> Iterator[dict[str, Any]]:
        for start in range(0, len(clips), CHUNK):
            read = list(sounds_of(clips[start : start + CHUNK], console))
            answers = iter(answer([sound for _, sound in read if sound is not None]))
            for clip, sound in read:
                yield {"file": clip.file, **cells(None if sound is None else next(answers))}

    return Predictions(rows=rows(), unit="clips", total=len(clips))
