"""Images and what people say of them: a table of image and caption, and a folder or a tar file of images."""

import io
import tarfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from regard import limits
from regard.data import fetch, fingerprint, overlap, split
from regard.data.augment import Augment, augmented
from regard.data.batch import Samples, moved
from regard.data.folders import Say, to_stderr, user_path
from regard.data.images import PATHS, kept, spread_of
from regard.data.labelled import NONE
from regard.data.loader import Source
from regard.data.pairs import clean
from regard.data.pixels import Chosen, Pixels, UnreadableImage, decoded
from regard.data.settings import CaptionsConfig
from regard.data.tables import read_table
from regard.data.tokenizers.bpe import BPE
from regard.errors import ConfigError, DataError

CAPTIONS = ("caption", "captions", "text", "sentence", "description")


@dataclass(frozen=True)
class Captioned:
    """N images, N 3 P P bytes, and of each its captions."""

    pixels: Pixels
    captions: list[list[str]]
    files: int = 0  # a fingerprint of all of them

    def __len__(self) -> int:
        return len(self.captions)


@dataclass(frozen=True)
class CaptionData:
    train: Captioned
    valid: Captioned
    tokenizer: BPE
    notes: tuple[str, ...]
    files: int  # a fingerprint of the images and their captions

    def report(self) -> str:
        told = [sum(map(len, part.captions)) for part in (self.train, self.valid)]
        return "\n".join(
            [
                f"{len(self.train):,} images with {told[0]:,} captions to train on, {len(self.valid):,} with "
                f"{told[1]:,} for validation, {self.tokenizer.size:,} pieces",
                *self.notes,
            ]
        )

    def spread(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Of the training pixels."""
        return spread_of(self.train.pixels)


def load_captions(config: CaptionsConfig, say: Say = to_stderr) -> CaptionData:
    table, images, valid, valid_images = places(config)
    train, notes = captioned(table, images, config, say)
    files = train.files
    if valid is None:
        train, held = hold_out(train, config)
    else:
        held, more = captioned(valid, valid_images or images, config, say)
        notes, files = notes + more, fingerprint.combined([str(files), str(held.files)])
        notes += overlap.validation_warning(overlap.count(digests(held), digests(train)), len(held), "images")
    texts = [c for captions in train.captions for c in captions]
    tokenizer = BPE.train(texts, config.vocab)
    pieces = tokenizer.encode_batch(texts)
    if cut := sum(len(ids) >= config.max_length for ids in pieces):
        notes.append(f"cut {cut:,} captions: longer than {config.max_length} pieces (--set data.max_length=…)")
    if valid is None:
        notes.append(f"validation: {100 * len(held) / (len(train) + len(held)):.0f} % of the images {split.BY_CONTENT}")
    return CaptionData(train, held, tokenizer, tuple(notes), files)


def places(config: CaptionsConfig) -> tuple[Path, Path, Path | None, Path | None]:
    """The table and the images to train on, and to validate on where they are given."""
    if bool(config.name) == bool(config.path):
        raise ConfigError("train on what? give --data captions.tsv --images FOLDER, or a name, as flickr8k")
    if config.name:
        found = fetch.get_files(config.name, "captions")
        tar = lambda path: path.with_suffix(".tar")  # noqa: E731
        return found.train, tar(found.train), found.valid, tar(found.valid) if found.valid else None
    table = user_path(config.path)
    own = [user_path(p) if p else None for p in (config.images, config.valid, config.valid_images)]
    return table, own[0] or table.parent, own[1], own[2]


def captioned(table: Path, images: Path, config: CaptionsConfig, say: Say) -> tuple[Captioned, list[str]]:
    """The images of a table that can be read, and notes on the others."""
    rows = read_table(table)
    image = rows.find("", PATHS, "image", 0)
    caption = rows.find("", CAPTIONS, "caption", len(rows.columns) - 1)
    told: dict[str, list[str]] = defaultdict(list)
    for name, text in zip(rows.names(image), rows.text(caption), strict=True):
        if text := clean(text.lower() if config.lower else text):
            told[name].append(text)
    if not images.is_dir() and not images.is_file():
        raise DataError(f"no folder or tar file {images}; say where the images are: --images FOLDER")
    names = list(told)
    pixels, kept, skipped = decoded(names, files_of(names, images), config.size, 3, say, opened(images))
    if not kept:
        raise DataError(
            f"{table}: none of its {len(told):,} images can be read in {images}; say where they are: --images FOLDER"
        )
    notes = [f"passed over {len(lost):,} images: {why}; the first is {lost[0]}" for why, lost in skipped]
    sums = fingerprint.digests(str(table), files_of(names, images))
    files = fingerprint.combined(sums, told, *told.values())
    return Captioned(pixels, [told[names[i]] for i in kept], files), notes


def files_of(names: list[str], images: Path) -> list[Path]:
    """The images in a folder, or the one file that holds them all."""
    return [images / name for name in names] if images.is_dir() else [images]


class opened:
    """Images by name, out of a folder or of a tar file, whose members are read in memory and never unpacked."""

    def __init__(self, place: Path):
        self.place = place
        self.tar: tarfile.TarFile | None = None

    def __enter__(self) -> Callable[[str], Path | io.BytesIO]:
        if self.place.is_dir():
            return lambda name: self.place / name
        try:
            tar = self.tar = tarfile.open(self.place)
            members = {Path(m.name).name: m for m in tar if m.isfile() and not Path(m.name).name.startswith("._")}
        except (tarfile.TarError, OSError, EOFError) as e:
            raise DataError(f"{self.place} is no folder and no tar file ({e})") from None

        def member(name: str) -> io.BytesIO:
            file = tar.extractfile(members[name]) if name in members else None
            if file is None:
                raise UnreadableImage(name, "there is no such file")
            limits.require(members[name].size, f"{self.place}: {name}")
            return io.BytesIO(file.read())

        return member

    def __exit__(self, *_: object) -> None:
        if self.tar is not None:
            self.tar.close()


def digests(part: Captioned) -> list[bytes]:
    """What stands for the pixels of each image."""
    return [split.digest(np.ascontiguousarray(x).tobytes()) for x in part.pixels]


def hold_out(part: Captioned, config: CaptionsConfig) -> tuple[Captioned, Captioned]:
    """Some images with all their captions."""
    aside = split.hold_out(digests(part), None, config.held_out, "images", rule=config.split_rule)
    captions = split.parts(part.captions, aside)
    rows = (np.flatnonzero(aside == side) for side in (False, True))
    train, valid = (Captioned(Chosen(part.pixels, some), told) for some, told in zip(rows, captions, strict=True))
    return train, valid


class CaptionSource(Source):
    """Captions by number, each with its image; all are filled up to one length."""

    def __init__(
        self, part: Captioned, tokenizer: BPE, length: int, augment: Augment | None = None, device: str = "cpu"
    ):
        self.part, self.augment, self.pad = part, augment or Augment(), tokenizer.pad
        self.pixels = kept(part.pixels, device)
        texts = [c for captions in part.captions for c in captions]
        self.image = np.repeat(np.arange(len(part)), [len(captions) for captions in part.captions])
        self.targets = np.full((len(texts), length), NONE, np.int64)
        for row, ids in zip(self.targets, tokenizer.encode_batch(texts), strict=True):
            ids = [*ids[: length - 1], tokenizer.eos]
            row[: len(ids)] = ids

    def __len__(self) -> int:
        return len(self.image)

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> Samples:
        which = self.image[rows]
        if self.pixels is None:
            pixels = torch.from_numpy(self.part.pixels[which])
        else:
            pixels = self.pixels[moved(torch.from_numpy(which), self.pixels.device)]
        if rng is not None and self.augment != Augment():
            pixels, _ = augmented(pixels, torch.zeros(len(rows)), 1, self.augment, rng)
        targets = torch.from_numpy(self.targets[rows])  # B T
        inputs = torch.cat((torch.full_like(targets[:, :1], self.pad), targets[:, :-1]), 1)
        return Samples((pixels, inputs.masked_fill(inputs == NONE, self.pad)), targets, rows)
