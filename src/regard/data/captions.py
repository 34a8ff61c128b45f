"""Images and their captions: a table of image and caption, and a folder or a tar file of images."""

import io
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard import limits
from regard.data import fetch, fingerprint, overlap, split
from regard.data.augment import Augment, augmented
from regard.data.batch import Samples
from regard.data.folders import Say, to_stderr, user_path
from regard.data.images import PATHS, pixel_digests, pixels_of, resident, spread_of
from regard.data.loader import Source
from regard.data.pairs import clean
from regard.data.pixels import Chosen, Pixels, UnreadableImage, decoded
from regard.data.settings import NONE, CaptionsConfig
from regard.data.skipped import has
from regard.data.tables import read_table
from regard.data.tokenizers import load
from regard.data.tokenizers.bpe import BPE
from regard.data.tokenizers.captions import CaptionPieces
from regard.data.tokenizers.pretrained import Pretrained
from regard.errors import ConfigError, DataError, reason

CAPTIONS = ("caption", "captions", "text", "sentence", "description")


@dataclass(frozen=True)
class Captioned:
    """N images, N 3 P P bytes, and the captions of each."""

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
        train, valid = (sum(map(len, part.captions)) for part in (self.train, self.valid))
        line = (
            f"{len(self.train):,} images with {train:,} captions to train on, {len(self.valid):,} with {valid:,} for "
            f"validation, vocabulary of {self.tokenizer.size:,}"
        )
        return "\n".join([line, *self.notes])

    def spread(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of the training pixels."""
        return spread_of(self.train.pixels)


def load_captions(config: CaptionsConfig, say: Say = to_stderr) -> CaptionData:
    table, images, valid_table, valid_images = locate(config)
    train, notes = captioned(table, images, config, say)
    files = train.files
    if valid_table is None:
        train, valid = hold_out(train, config)
    else:
        valid, more = captioned(valid_table, valid_images or images, config, say)
        notes, files = notes + more, fingerprint.combined([str(files), str(valid.files)])
        shared = overlap.count(pixel_digests(valid.pixels), pixel_digests(train.pixels))
        notes += overlap.validation_warning(shared, len(valid), "images")
    texts = [c for captions in train.captions for c in captions]
    tokenizer = load_pieces(Path(config.tokenizer)) if config.tokenizer else BPE.train(texts, config.vocab)
    if cut := sum(len(ids) >= config.max_length for ids in tokenizer.encode_batch(texts)):
        notes.append(f"cut {cut:,} captions: longer than {config.max_length} tokens (--set data.max_length=…)")
    if valid_table is None:
        share = 100 * len(valid) / (len(train) + len(valid))
        notes.append(f"validation: {share:.0f} % of the images {split.BY_CONTENT}")
    return CaptionData(train, valid, tokenizer, tuple(notes), files)


def load_pieces(folder: Path) -> Any:
    """The tokenizer of a captioner: ours, or GPT-2's with a padding token."""
    tokenizer = load(folder)
    return CaptionPieces.load(folder) if isinstance(tokenizer, Pretrained) else tokenizer


def locate(config: CaptionsConfig) -> tuple[Path, Path, Path | None, Path | None]:
    """The training table and images, and those for validation if given."""
    if bool(config.name) == bool(config.path):
        raise ConfigError("train on what? give --data captions.tsv --images FOLDER, or a name, such as flickr8k")
    if config.name:
        files = fetch.get_files(config.name, "captions")
        valid_images = files.valid.with_suffix(".tar") if files.valid else None
        return files.train, files.train.with_suffix(".tar"), files.valid, valid_images
    table = user_path(config.path)
    images, valid, valid_images = (
        user_path(p) if p else None for p in (config.images, config.valid, config.valid_images)
    )
    return table, images or table.parent, valid, valid_images


def captioned(table: Path, images: Path, config: CaptionsConfig, say: Say) -> tuple[Captioned, list[str]]:
    """The readable images of a table, and notes on the others."""
    rows = read_table(table, strict=config.strict)
    image = rows.find("", PATHS, "image", 0)
    caption = rows.find("", CAPTIONS, "caption", len(rows.columns) - 1)
    rows = rows.usable({image: has("image"), caption: has("caption")}, config.strict, say)
    captions: dict[str, list[str]] = defaultdict(list)
    for name, text in zip(rows.names(image), rows.text(caption), strict=True):
        if text := clean(text.lower() if config.lower else text):
            captions[name].append(text)
    where = "give the folder of the images: --images FOLDER"
    if not images.is_dir() and not images.is_file():
        raise DataError(f"no folder or tar file {images}; {where}")
    names = list(captions)
    files = [images / name for name in names] if images.is_dir() else [images]
    pixels, kept, skipped = decoded(names, files, config.size, 3, say, open_images(images))
    if not kept:
        raise DataError(f"{table}: none of its {len(names):,} images can be read in {images}; {where}")
    notes = [f"skipped {len(lost):,} images: {why}; the first is {lost[0]}" for why, lost in skipped]
    digest = fingerprint.combined(fingerprint.digests(str(table), files), captions, *captions.values())
    return Captioned(pixels, [captions[names[i]] for i in kept], digest), notes


@contextmanager
def open_images(place: Path) -> Iterator[Callable[[str], Path | io.BytesIO]]:
    """Images by name from a folder or a tar file, which is read in memory and never unpacked."""
    if place.is_dir():
        yield lambda name: place / name
        return
    try:
        tar = tarfile.open(place)  # noqa: SIM115 - closed below
        members = {Path(m.name).name: m for m in tar if m.isfile() and not Path(m.name).name.startswith("._")}
    except (tarfile.TarError, OSError, EOFError) as e:
        raise DataError(f"{place} is neither a folder nor a tar file ({reason(e)})") from None

    def member(name: str) -> io.BytesIO:
        file = tar.extractfile(members[name]) if name in members else None
        if file is None:
            raise UnreadableImage(name, "no such file")
        limits.require(members[name].size, f"{place}: {name}")
        return io.BytesIO(file.read())

    with tar:
        yield member


def hold_out(part: Captioned, config: CaptionsConfig) -> tuple[Captioned, Captioned]:
    """Training and validation images, each with all its captions."""
    aside = split.hold_out(pixel_digests(part.pixels), None, config.held_out, "images", rule=config.split_rule)
    rows = [np.flatnonzero(~aside), np.flatnonzero(aside)]
    train, valid = (Captioned(Chosen(part.pixels, some), [part.captions[i] for i in some]) for some in rows)
    return train, valid


class CaptionSource(Source):
    """Captions by index, each with its image, padded to one length."""

    def __init__(
        self, part: Captioned, tokenizer: BPE, length: int, augment: Augment | None = None, device: str = "cpu"
    ):
        self.part, self.augment, self.pad = part, augment or Augment(), tokenizer.pad
        self.pixels = resident(part.pixels, device)
        texts = [c for captions in part.captions for c in captions]
        self.image = np.repeat(np.arange(len(part)), [len(captions) for captions in part.captions])
        self.targets = np.full((len(texts), length), NONE, np.int64)
        for row, ids in zip(self.targets, tokenizer.encode_batch(texts), strict=True):
            ids = [*ids[: length - 1], tokenizer.eos]
            row[: len(ids)] = ids

    def __len__(self) -> int:
        return len(self.image)

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> Samples:
        pixels = pixels_of(self.image[rows], self.pixels, self.part.pixels)
        if rng is not None and self.augment != Augment():
            pixels, _ = augmented(pixels, torch.zeros(len(rows)), 1, self.augment, rng)
        targets = torch.from_numpy(self.targets[rows])  # B T
        inputs = torch.cat((torch.full_like(targets[:, :1], self.pad), targets[:, :-1]), 1)
        return Samples((pixels, inputs.masked_fill(inputs == NONE, self.pad)), targets, rows)
