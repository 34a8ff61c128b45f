"""Audio: a class for each short clip."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.folders import silent, user_path
from regard.data.settings import AudioConfig
from regard.errors import DataError
from regard.tasks.base import UNKNOWN_LABELS, Arch, Card, Say
from regard.tasks.classes import ClassesOfSamples
from regard.tasks.presets import presets_of
from regard.tasks.use import Inputs, Options, TestSet
from regard.ticks import Console

if TYPE_CHECKING:
    from regard.data.audio import Clip
    from regard.training.run import Run

FRAMES = 100  # of a clip, when memory is estimated


class Audio(ClassesOfSamples):
    name, trains_on = "audio", "audio"
    summary = "a class for each audio clip"
    settings = AudioConfig
    options = ("valid", "label")
    data_help = "A folder with a folder of clips for each class, a tar of one, a table of files and labels, or a name."
    examples = ("regard train audio --data clips/               # a folder for each class",)
    archs = {"transformer": Arch("sound_classifier")}
    presets = presets_of("audio")
    card = Card(pipeline="audio-classification", title="An audio classifier", use="classify {} clip.wav")
    valid_batch = 64

    def model_settings(self, data: Any, arch: str, device: str, settings: dict[str, Any]) -> dict[str, Any]:
        return {"labels": UNKNOWN_LABELS, "mels": data.mels, "frames": data.frames}

    def settings_from_data(self, run: "Run") -> dict[str, Any]:
        return {"mels": run.data.mels, "frames": run.data.frames}

    def read(self, run: "Run", say: Say) -> Any:
        from regard.data.audio import load_audio

        data = load_audio(run.data, say)
        say(data.report())
        return data

    def fit(self, run: "Run", data: Any) -> "Run":
        return run.with_model(labels=data.labels)

    def source(self, run: "Run", data: Any, part: str, device: str) -> Any:
        from regard.data.audio import AudioSource

        if part == "train":
            return AudioSource(data.train, run.data.masks, run.data.widest)
        return AudioSource(data.valid)

    def example(self, run: "Run") -> Any:
        import numpy as np
        import torch

        from regard.data.batch import Samples

        frames = min(FRAMES, run.data.frames)
        pictures, lengths = torch.zeros(run.batch, run.data.mels, frames), torch.full((run.batch,), frames)
        return Samples((pictures, lengths), torch.zeros(run.batch, dtype=torch.long), np.arange(run.batch))

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str, int8: bool) -> Any:
        from regard.predictors import AudioClassifier

        return AudioClassifier(model, device)

    reads, measured = "audio", "bands and frames"
    family, views = "audio", ("classes",)
    purpose = "classify audio"
    unit = "clips"

    def test_set(self, predictor: Any, folder: Path, options: Options, console: Console) -> TestSet:
        from regard.data.audio import digests

        on, clips = self.clips(folder, options.data, options.strict, console)
        clips = readable(clips, on, console)
        true = self.targets(predictor, [c.label for c, _ in clips], [c.file for c, _ in clips])
        inputs = [samples for _, samples in clips]
        contents = digests([clip for clip, _ in clips], AudioConfig(path=options.data)) if options.data else []
        return TestSet(on=on, inputs=inputs, targets=true, contents=contents)

    def training_contents(self, predictor: Any, data: AudioConfig) -> Iterable[str]:
        from regard.data.audio import digests, parts

        return digests(parts(data, silent)[0], data)

    def clips(self, folder: Path, data: str, strict: bool, console: Console) -> tuple[str, "list[Clip]"]:
        """The clips to score on, and what they are called."""
        from regard.data import fetch
        from regard.data.audio import list_clips, parts

        if data:
            label = self.own_data(folder).label if (folder / "run.json").is_file() else ""
            return data, list_clips(user_path(data), label, strict=strict)
        config = self.own_data(folder)
        if config.name and (test := fetch.get_files(config.name, "audio", say=console.say).test):
            return f"the test set of {config.name}", list_clips(test)
        return "its own validation set", parts(config, console.say)[1]

    def parse_inputs(self, predictor: Any, words: Sequence[str], console: Console) -> Any:
        return load_files(words)

    def read_inputs(self, predictor: Any, folder: Path, file: Path, options: Options, console: Console) -> Inputs:
        return audio_inputs(file, console)


def load_files(files: Sequence[str | Path]) -> list[Any]:
    from regard.data.waveform import load_waveform

    return [load_waveform(file) for file in files]


def with_samples(clips: "Sequence[Clip]", console: Console) -> "Iterator[tuple[Clip, Any]]":
    """Each clip and its samples; one that cannot be read has none, and is reported."""
    for clip in clips:
        try:
            yield clip, clip.waveform() if clip.file else None
        except DataError as e:
            console.say(f"skipped: {e}")
            yield clip, None


def readable(clips: "Sequence[Clip]", on: str, console: Console) -> "list[tuple[Clip, Any]]":
    """The clips that can be read, with their samples."""
    pairs = [(clip, samples) for clip, samples in with_samples(clips, console) if samples is not None]
    if not pairs:
        raise DataError(f"{on}: no clips to score on")
    return pairs


def audio_inputs(file: Path, console: Console) -> Inputs:
    """Every clip of a folder, an archive or a table, or one."""
    from regard.data.audio import list_clips

    clips = list_clips(file, labelled=False)
    if not clips:
        raise DataError(f"{file} holds no audio files")
    examples = (({"file": clip.file}, samples) for clip, samples in with_samples(clips, console))
    return Inputs(examples=examples, unit="clips", total=len(clips))
