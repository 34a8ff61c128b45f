"""Clips of sound and what is known of each: a folder for each class, names that begin with it, or a table of files."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data import fetch, fingerprint, overlap, split
from regard.data.audio import HOP, RATE, load_wav, log_mel, read_wav, resample
from regard.data.batch import Samples
from regard.data.files import read_tar
from regard.data.folders import Say, to_stderr, user_path
from regard.data.loader import Source
from regard.data.settings import LEGACY_SPLIT, AudioConfig
from regard.data.tables import LABELS, is_table, read_table
from regard.errors import ConfigError, DataError, RegardError

FILES = ("file", "path", "clip", "audio", "wav", "filename", "file_name")
TARS = (".tar", ".tar.gz", ".tgz")
STEP = 32  # batches are padded to a multiple of so many frames, so that few shapes come
WANTED = "a folder with a folder of WAV files for each class, names as CLASS_….wav, or a table of files and labels"


@dataclass(frozen=True)
class Clip:
    """A file, what is known of it ("" for nothing), and its bytes where it comes from an archive."""

    file: str
    label: str = ""
    data: bytes | None = None

    def sound(self) -> Tensor:
        """Samples at `RATE`."""
        return load_wav(self.file) if self.data is None else resample(*read_wav(self.data, self.file))

    def digest(self, rule: str) -> bytes:
        """Of its bytes; older runs are split by its name."""
        if rule == LEGACY_SPLIT:
            return split.digest(Path(self.file).name) + self.file.encode()
        try:
            return split.digest(Path(self.file).read_bytes() if self.data is None else self.data)
        except OSError:  # it is reported when it is read
            return split.digest(self.file)


def list_clips(path: Path, label: str = "", labelled: bool = True) -> list[Clip]:
    """The clips of a folder, an archive or a table, or of one file; in order of their names, or of the table.

    Of a table nothing but the files is read, unless `labelled`.
    """
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if is_clip(file.name) and file.is_file())
        return [Clip(str(file), class_of(file.relative_to(path))) for file in files]
    if not path.is_file():
        raise DataError(f"no file or folder {path}; wanted {WANTED}")
    if path.name.lower().endswith(TARS):
        return _from_archive(path)
    if not is_table(path):
        return [Clip(str(path))]
    table = read_table(path, (label,))
    column = table.find("", FILES, "file", 0)
    files = [str(path.parent / name) for name in table.names(column)]
    if not labelled:
        return [Clip(file) for file in files]
    given = table.find(label, LABELS, "label", len(table.columns) - 1)
    if column == given:
        raise DataError(f"{path}: file and label are different columns; there are: {', '.join(table.columns)}")
    return [Clip(*cells) for cells in zip(files, table.labels(given), strict=True)]


def is_clip(name: str) -> bool:
    return name.lower().endswith(".wav") and not name.startswith(".")


def class_of(path: PurePosixPath | Path) -> str:
    """The folder a clip lies in; of one that lies in none, the part of its name before the first underscore."""
    if len(path.parts) > 1:
        return path.parts[0]
    return path.stem.split("_")[0] if "_" in path.stem else ""


def _from_archive(path: Path) -> list[Clip]:
    """Of an archive of one folder, what is in that folder."""
    found = [(PurePosixPath(name), data) for name, data in read_tar(path, is_clip)]
    above = {name.parts[0] for name, _ in found if len(name.parts) > 1}
    alone = len(above) == 1 and all(len(name.parts) > 1 for name, _ in found)
    return [Clip(str(name), class_of(PurePosixPath(*name.parts[alone:])), data) for name, data in found]


@dataclass(frozen=True)
class Pictures:
    """The log-mel pictures of N clips, mels F each, and the numbers of their classes, N."""

    frames: list[Tensor]
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.frames)


@dataclass(frozen=True)
class ClipData:
    """What is trained on and what is watched meanwhile."""

    labels: tuple[str, ...]
    train: Pictures
    valid: Pictures
    notes: tuple[str, ...] = ()  # what was cut or passed over, and why
    files: int = 0  # a fingerprint of the clips and their classes
    how: str = ""  # the validation set was chosen

    def report(self) -> str:
        counts = np.bincount(self.train.labels, minlength=len(self.labels))
        minutes = sum(x.size(1) for x in self.train.frames) * HOP / RATE / 60
        return "\n".join(
            [
                f"{split.report(len(self.train), len(self.valid), 'clips', self.how)}; {minutes:.1f} minutes",
                *split.classes(dict(zip(self.labels, counts.tolist(), strict=True)), "clip"),
                *self.notes,
            ]
        )


def load_clips(config: AudioConfig, say: Say = to_stderr) -> ClipData:
    """The clips of `config` as pictures."""
    train, valid, how = parts(config, say)
    labels = tuple(sorted({clip.label for clip in train}))
    if len(labels) < 2:
        only = f"all clips have the class {labels[0]!r}" if train else "there are no clips"
        raise DataError(f"{config.name or config.path}: {only}; wanted {WANTED}")
    check_known(valid, labels)
    say(f"preparing: pictures of {len(train) + len(valid):,} clips ...")
    notes: list[str] = []
    heard, aside = (pictures(clips, labels, config, notes) for clips in (train, valid))
    if lost := set(range(len(labels))) - set(heard.labels.tolist()):
        raise DataError(
            f"no clip of the class {labels[min(lost)]!r} can be read" + "".join(f"; {n}" for n in notes[:1])
        )
    if not len(aside):
        raise DataError(f"no clip to validate on can be read; {notes[-1]}" if valid else "no clip to validate on")
    sums = digests([*train, *valid], config)
    if not how:
        shared = overlap.count(sums[len(train) :], sums[: len(train)])
        notes += overlap.validation_warning(shared, len(valid), "clips")
    # of the sounds and their classes, not of their names: a folder may be moved
    files = fingerprint.combined(sums, [clip.label for clip in (*train, *valid)])
    return ClipData(labels, heard, aside, tuple(notes), files, how)


def digests(clips: Sequence[Clip], config: AudioConfig) -> list[str]:
    """The SHA-256 of each file."""
    lying = [Path(clip.file) for clip in clips if clip.data is None]
    found = iter(fingerprint.digests(config.path or config.name, lying))
    return [next(found) if clip.data is None else hashlib.sha256(clip.data).hexdigest() for clip in clips]


def parts(config: AudioConfig, say: Say = to_stderr) -> tuple[list[Clip], list[Clip], str]:
    """The clips to train and to validate on, and how those were chosen."""
    if bool(config.name) == bool(config.path):
        raise ConfigError(f"train on what? give --data: {WANTED}; or the name of a set")
    known = fetch.get_files(config.name, "audio", say=say) if config.name else None
    train = list_clips(known.train if known else user_path(config.path), config.label)
    if nameless := [clip.file for clip in train if not clip.label]:
        raise DataError(f"{nameless[0]}: of which class? wanted {WANTED}")
    if valid := known.valid if known else config.valid:
        return train, list_clips(user_path(valid), config.label), ""
    return (*(hold_out(train, config) if train else ([], [])), split.BY_CLASS)


def hold_out(clips: Sequence[Clip], config: AudioConfig) -> tuple[list[Clip], list[Clip]]:
    digests = [clip.digest(config.split_rule) for clip in clips]
    labels = [clip.label for clip in clips]
    return split.parts(clips, split.hold_out(digests, labels, config.held_out, "clips", rule=config.split_rule))


def check_known(clips: Sequence[Clip], labels: Sequence[str]) -> None:
    for clip in clips:
        if clip.label not in labels:
            known = ", ".join(labels)
            raise DataError(f"{clip.file}: the class {clip.label!r} is not among those trained on: {known}")


def picture(sound: Tensor, mels: int, frames: int) -> Tensor:
    """mels F of at most `frames`."""
    return log_mel(sound[: frames * HOP], mels)


def pictures(clips: Sequence[Clip], labels: Sequence[str], config: AudioConfig, notes: list[str]) -> Pictures:
    """Of the clips that can be read; of the others, and of those that are cut, a line is added to `notes`."""
    number = {label: i for i, label in enumerate(labels)}
    frames, classes, bad, cut = [], [], [], 0
    for clip in clips:
        try:
            sound = clip.sound()
        except RegardError as e:  # damaged, or too long for the memory
            bad.append(str(e))
            continue
        cut += len(sound) > config.frames * HOP
        frames.append(picture(sound, config.mels, config.frames))
        classes.append(number[clip.label])
    if bad:
        notes.append(f"passed over {len(bad):,} of {len(clips):,} clips; the first: {bad[0]}")
    if cut:
        notes.append(f"cut {cut:,} clips: longer than {config.seconds:g} seconds (--set data.seconds=…)")
    return Pictures(frames, np.array(classes, np.int64))


def padded(frames: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Pictures of any lengths side by side, zeros after the shorter ones: B mels F, and the lengths, B."""
    lengths = torch.tensor([x.size(1) for x in frames])
    size = -(-int(lengths.max()) // STEP) * STEP
    return torch.stack([F.pad(x, (0, size - x.size(1))) for x in frames]), lengths


class ClipSource(Source):
    """Clips by number, for a `Loader`."""

    def __init__(self, clips: Pictures, masks: int = 0, widest: float = 0.0):
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
    """SpecAugment (Park et al. 2019): `masks` stretches of time and as many of frequency hidden by the clip's mean."""
    frames, middle = frames.clone(), float(frames.mean())
    for axis in (0, 1) * masks:
        size = frames.size(axis)
        width = int(rng.integers(0, int(widest * size) + 1))
        start = int(rng.integers(0, size - width + 1))
        frames.narrow(axis, start, width).fill_(middle)
    return frames
