"""Audio clips and their classes: a folder for each class, names that start with it, or a table of files."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data import fetch, fingerprint, overlap, split
from regard.data.batch import Samples
from regard.data.files import AUDIO, TARS, read_tar
from regard.data.folders import Say, to_stderr, user_path
from regard.data.loader import Source
from regard.data.settings import LEGACY_SPLIT, AudioConfig
from regard.data.skipped import has
from regard.data.tables import is_table, read_table
from regard.data.targets import ClassData, check_known
from regard.data.waveform import HOP, RATE, decode, load_waveform, log_mel, resample
from regard.errors import ConfigError, DataError, MissingExtra, RegardError
from regard.words import count

FILES = ("file", "path", "clip", "audio", "wav", "filename", "file_name")
STEP = 32  # batches are padded to a multiple of this many frames, for few shapes
EXPECTED = "a folder with a folder of audio files per class, names like CLASS_….wav, or a table of files and labels"


@dataclass(frozen=True)
class Clip:
    """A file, its class ("" if unknown), and its bytes if it comes from an archive."""

    file: str
    label: str = ""
    data: bytes | None = None

    def waveform(self) -> Tensor:
        """Samples at `RATE`."""
        return load_waveform(self.file) if self.data is None else resample(*decode(self.data, self.file))

    def digest(self, rule: str) -> bytes:
        """The digest of its bytes; older runs are split by its name."""
        if rule == LEGACY_SPLIT:
            return split.digest(Path(self.file).name) + self.file.encode()
        try:
            return split.digest(Path(self.file).read_bytes() if self.data is None else self.data)
        except OSError:  # reported when it is read
            return split.digest(self.file)


def list_clips(path: Path, label: str = "", labelled: bool = True, strict: bool = False) -> list[Clip]:
    """The clips of a folder, an archive, a table or a single file, sorted by name or in the order of the table.

    Unless `labelled`, only the files of a table are read, and a bad row is a clip without a file.
    """
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if is_clip(file.name) and file.is_file())
        return [Clip(str(file), class_of(file.relative_to(path))) for file in files]
    if not path.is_file():
        raise DataError(f"no file or folder {path}; expected {EXPECTED}")
    if path.name.lower().endswith(TARS):
        return _from_archive(path)
    if not is_table(path):
        return [Clip(str(path))]
    table = read_table(path, (label,), strict=strict)
    if not labelled:
        column = table.find("", FILES, "file", 0)
        rows = table.with_gaps({column: has("file")}, to_stderr)
        return [Clip(str(path.parent / cells[column].strip()) if usable else "") for cells, usable in rows]
    rows = table.labelled(FILES, "file", label, strict=strict)
    return [Clip(str(path.parent / name), label) for name, label, _ in rows]


def is_clip(name: str) -> bool:
    return name.lower().endswith(AUDIO) and not name.startswith(".")


def class_of(path: PurePosixPath | Path) -> str:
    """The folder of a clip; without one, the part of its name before the first underscore."""
    if len(path.parts) > 1:
        return path.parts[0]
    return path.stem.split("_")[0] if "_" in path.stem else ""


def _from_archive(path: Path) -> list[Clip]:
    """The clips of an archive; of one with a single folder, those of that folder."""
    files = [(PurePosixPath(name), data) for name, data in read_tar(path, is_clip)]
    alone = len({name.parts[0] for name, _ in files}) == 1 and all(len(name.parts) > 1 for name, _ in files)
    return [Clip(str(name), class_of(PurePosixPath(*name.parts[alone:])), data) for name, data in files]


@dataclass(frozen=True)
class Spectrograms:
    """The log-mel spectrograms of N clips, mels F each, and the indices of their classes, N."""

    frames: list[Tensor]
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.frames)


def load_audio(config: AudioConfig, say: Say = to_stderr) -> ClassData:
    """The clips of `config` as spectrograms."""
    train, valid, how = parts(config, say)
    labels = tuple(sorted({clip.label for clip in train}))
    if len(labels) < 2:
        only = f"all clips have the class {labels[0]!r}" if train else "there are no clips"
        raise DataError(f"{config.name or config.path}: {only}; expected {EXPECTED}")
    check_known([clip.label for clip in valid], labels, [clip.file for clip in valid])
    say(f"preparing: spectrograms of {len(train) + len(valid):,} clips ...")
    notes: list[str] = []
    train_part, valid_part = (spectrograms(clips, labels, config, notes) for clips in (train, valid))
    if lost := set(range(len(labels))) - set(train_part.labels.tolist()):
        raise DataError(
            f"no clip of the class {labels[min(lost)]!r} can be read" + "".join(f"; {n}" for n in notes[:1])
        )
    if not len(valid_part):
        raise DataError(f"no validation clip can be read; {notes[-1]}" if valid else "no validation clips")
    sums = digests([*train, *valid], config)
    if not how:
        shared = overlap.count(sums[len(train) :], sums[: len(train)])
        notes += overlap.validation_warning(shared, len(valid), "clips")
    # of audio and classes, not of file names: a folder may be moved
    files = fingerprint.combined(sums, [clip.label for clip in (*train, *valid)])
    minutes = sum(x.size(1) for x in train_part.frames) * HOP / RATE / 60
    return ClassData(
        labels, train_part, valid_part, tuple(notes), files, how, unit="clip", about=f"{minutes:.1f} minutes"
    )


def digests(clips: Sequence[Clip], config: AudioConfig) -> list[str]:
    """The SHA-256 of each file."""
    on_disk = iter(fingerprint.digests(config.path or config.name, [Path(c.file) for c in clips if c.data is None]))
    return [next(on_disk) if clip.data is None else hashlib.sha256(clip.data).hexdigest() for clip in clips]


def parts(config: AudioConfig, say: Say = to_stderr) -> tuple[list[Clip], list[Clip], str]:
    """The training and validation clips, and how the latter were chosen."""
    if bool(config.name) == bool(config.path):
        raise ConfigError(f"train on what? give --data: {EXPECTED}; or the name of a set")
    files = fetch.get_files(config.name, "audio", say=say) if config.name else None
    train = list_clips(files.train if files else user_path(config.path), config.label, strict=config.strict)
    if nameless := [clip.file for clip in train if not clip.label]:
        raise DataError(f"{nameless[0]} has no class; expected {EXPECTED}")
    if valid := files.valid if files else config.valid:
        return train, list_clips(user_path(valid), config.label, strict=config.strict), ""
    return (*(hold_out(train, config) if train else ([], [])), split.BY_CLASS)


def hold_out(clips: Sequence[Clip], config: AudioConfig) -> tuple[list[Clip], list[Clip]]:
    digests = [clip.digest(config.split_rule) for clip in clips]
    labels = [clip.label for clip in clips]
    return split.parts(clips, split.hold_out(digests, labels, config.held_out, "clips", rule=config.split_rule))


def spectrogram(samples: Tensor, mels: int, frames: int) -> Tensor:
    """mels F, of at most `frames`."""
    return log_mel(samples[: frames * HOP], mels)


def spectrograms(clips: Sequence[Clip], labels: Sequence[str], config: AudioConfig, notes: list[str]) -> Spectrograms:
    """The spectrograms of readable clips; a line on the others, and on those that are cut, is added to `notes`."""
    number = {label: i for i, label in enumerate(labels)}
    frames, classes, errors, cut = [], [], [], 0
    for clip in clips:
        try:
            samples = clip.waveform()
        except MissingExtra:
            raise
        except RegardError as e:  # damaged, or too long for the memory
            errors.append(e)
            continue
        cut += len(samples) > config.frames * HOP
        frames.append(spectrogram(samples, config.mels, config.frames))
        classes.append(number[clip.label])
    if errors:
        notes.append(f"skipped {count(len(errors), 'clip')}; the first: {errors[0]}")
    if cut:
        notes.append(f"cut {cut:,} clips: longer than {config.seconds:g} seconds (--set data.seconds=…)")
    return Spectrograms(frames, np.array(classes, np.int64))


def padded(frames: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Spectrograms padded with zeros at the end: B mels F, and the lengths, B."""
    lengths = torch.tensor([x.size(1) for x in frames])
    size = -(-int(lengths.max()) // STEP) * STEP
    return torch.stack([F.pad(x, (0, size - x.size(1))) for x in frames]), lengths


class AudioSource(Source):
    """Clips by index, for a `Loader`."""

    def __init__(self, clips: Spectrograms, masks: int = 0, widest: float = 0.0):
        self.clips, self.masks, self.widest = clips, masks, widest
        self.labels = torch.from_numpy(clips.labels)

    def __len__(self) -> int:
        return len(self.clips)

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> Samples:
        frames = [self.clips.frames[i] for i in rows]
        if rng is not None:
            frames = [masked(x, self.masks, self.widest, rng) for x in frames]
        return Samples(padded(frames), self.labels[torch.from_numpy(rows)], rows)


def masked(frames: Tensor, masks: int, widest: float, rng: np.random.Generator) -> Tensor:
    """SpecAugment (Park et al. 2019): `masks` spans of time and as many of frequency set to the clip's mean."""
    frames, mean = frames.clone(), float(frames.mean())
    for axis in (0, 1) * masks:
        size = frames.size(axis)
        width = int(rng.integers(0, int(widest * size) + 1))
        start = int(rng.integers(0, size - width + 1))
        frames.narrow(axis, start, width).fill_(mean)
    return frames
