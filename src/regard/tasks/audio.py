"""Audio: a class for each short clip."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.folders import silent, user_path
from regard.data.settings import AudioConfig
from regard.errors import DataError
from regard.tasks.base import UNKNOWN_LABELS, Arch, Card, Say
from regard.tasks.classes import ClassesOfSamples
from regard.tasks.presets import fine_tuning, presets_of
from regard.tasks.use import Inputs, Options, TestSet
from regard.ticks import Console
from regard.training.settings import Optim, Schedule

if TYPE_CHECKING:
    from regard.data.audio import Clip
    from regard.training.run import Run

FRAMES = 100  # of a clip, for estimating memory


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
    lora_targets = ("layers.*",)
    starts, heads, finetune_length = ("whisper", "sound_classifier"), ("classifier",), "10 epochs"

    def model_settings(self, data: Any, arch: str, device: str, settings: dict[str, Any]) -> dict[str, Any]:
        return {"labels": UNKNOWN_LABELS, "mels": data.mels, "frames": data.frames}

    def finetune_run(self, start: Path, data: AudioConfig, device: str, lora: int) -> "Run":
        """From a classifier, or from Whisper's encoder, whose spectrograms have more bands."""
        from regard.models.audio_classifier import AudioTransformerConfig
        from regard.models.published import read_config
        from regard.training.run import Run

        config: Any = read_config(start)
        data = dataclasses.replace(data, mels=config.mels, seconds=min(data.seconds, config.frames / 100))
        if hasattr(config, "encoder_layers"):
            sizes = {name: getattr(config, name) for name in ("mels", "width", "heads", "ffn")}
            config = AudioTransformerConfig(**sizes, layers=config.encoder_layers, positions="whisper")
        return Run(
            **fine_tuning(self.name, start, device, lora),
            model=dataclasses.replace(config, labels=UNKNOWN_LABELS, frames=data.frames),
            data=data,
            optim=Optim(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, layer_decay=1.0 if lora else 0.75),
            schedule=Schedule(kind="cosine", warmup=20),
            epochs=10.0,
            batch=16,
            smoothing=0.1,
        )

    def start_state(self, started: Any, run: "Run") -> Any:
        """Whisper's encoder under the names of the classifier."""
        names = {"encoder": "layers", "encoder_norm": "norm", "stem": "stem"}
        state = started.state_dict()
        if not hasattr(started, "encoder_norm"):
            return state
        parts = ((name.partition("."), tensor) for name, tensor in state.items())
        return {f"{names[part]}.{rest}": tensor for (part, _, rest), tensor in parts if part in names}

    def probe(self, run: "Run") -> "Run":
        """The run with a frozen encoder, which trains only a linear head."""
        optim = dataclasses.replace(run.optim, lr=1e-2, layer_decay=1.0)
        return dataclasses.replace(run, frozen=True, optim=optim)

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

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str) -> Any:
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
        """The name of the test set, and its clips."""
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
    """Each clip and its samples; unreadable ones are reported, and have none."""
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
    """The clips of a folder, an archive or a table, or a single one."""
    from regard.data.audio import list_clips

    clips = list_clips(file, labelled=False)
    if not clips:
        raise DataError(f"{file} holds no audio files")
    examples = (({"file": clip.file}, samples) for clip, samples in with_samples(clips, console))
    return Inputs(examples=examples, unit="clips", total=len(clips))
