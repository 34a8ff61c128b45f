"""Images and their classes: a folder for each class, a table of paths and labels, or a named set.

A user's own images are decoded once, into a prepared folder of bytes; if they fit, all are kept in memory, on the GPU
if the model is there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard import limits
from regard.data import fingerprint, overlap, split
from regard.data.augment import Augment, augmented, bytes_of
from regard.data.batch import Samples, moved
from regard.data.files import IMAGES
from regard.data.folders import Say, to_stderr, user_path
from regard.data.loader import Source
from regard.data.pixels import Chosen, Decoded, Pixels, decoded, with_channels
from regard.data.settings import ImagesConfig
from regard.data.skipped import HAS_LABEL, Check
from regard.data.tables import read_table
from regard.data.targets import TARGETS, ClassData
from regard.errors import ConfigError, DataError

PATHS = ("image", "path", "file", "filename", "file_name", "image_path")
OWN_SIZE = 64  # default pixels a side of a user's own images
PARTS = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test",)}
ROOM = 0.5  # share of the free memory that images may take
AT_ONCE = 1024  # images copied at a time
MEASURED = 10_000  # images, at most, from which mean and spread are computed
EXPECTED = "expected a folder for each class, or a table of paths and labels"


@dataclass(frozen=True)
class Images:
    """N images as bytes, N C P P, and the indices of their classes, N."""

    pixels: Pixels
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, which: np.ndarray) -> "Images":
        return Images(Chosen(self.pixels, np.flatnonzero(which)), self.labels[which])


@dataclass(frozen=True)
class ImageData(ClassData):
    test: Images | None = None

    def spread(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of the training pixels."""
        return spread_of(self.train.pixels)


def load_images(config: ImagesConfig, say: Say = to_stderr) -> ImageData:
    """The images of `config`, decoded now or read from the cache."""
    from regard.data import image_sets

    if bool(config.name) == bool(config.path):
        raise ConfigError("train on what? give --data FOLDER, with a folder per class, a CSV, or a name such as mnist")
    notes: tuple[str, ...] = ()
    if config.name:
        known_set = image_sets.read(config.name, say)
        parts: dict[str, tuple[Pixels, np.ndarray]] = {
            part: (with_channels(resized(x, config.size), config.channels), y)
            for part, (x, y) in known_set.parts.items()
        }
        labels, files = known_set.labels, fingerprint.combined(map(fingerprint.of_array, known_set.parts["train"]))
    else:
        parts, labels, notes, files = own(config, say)
    images = {part: Images(*arrays) for part, arrays in parts.items()}
    train, valid, test = images["train"], images.get("valid"), images.get("test")
    targets = TARGETS[config.targets]
    how = "" if valid else targets.how
    if valid is None:
        train, valid = hold_out(train, config)
    _, C, P, _ = train.pixels.shape
    scored = f"{len(test):,} in the test set; " if test else ""
    about = f"{scored}{P} x {P} pixels, {'grey' if C == 1 else 'in colour'}"
    return ImageData(labels, train, valid, notes, files, how, unit="image", about=about, targets=targets, test=test)


def spread_of(pixels: Pixels) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of N C P P bytes, as numbers in [0, 1]; of many images, those of an even
    sample, as the images of a class are often adjacent."""
    rows = np.unique(np.linspace(0, len(pixels) - 1, min(MEASURED, len(pixels))).astype(int))
    counts = np.zeros((pixels.shape[1], 256), np.int64)
    for some in np.array_split(rows, -(-len(rows) // 64)):  # a few at a time, to save memory
        counts += [np.bincount(channel.ravel(), minlength=256) for channel in pixels[some].swapaxes(0, 1)]
    levels, shares = np.arange(256) / 255, counts / counts.sum(1, keepdims=True)  # C 256
    mean = shares @ levels
    std = np.sqrt((shares * (levels - mean[:, None]) ** 2).sum(1))
    return tuple(round(float(x), 4) for x in mean), tuple(round(max(float(x), 1e-3), 4) for x in std)


def pixel_digests(pixels: Pixels) -> list[bytes]:
    """A digest of each image's pixels."""
    return [split.digest(np.ascontiguousarray(x).tobytes()) for x in pixels]


def hold_out(images: Images, config: ImagesConfig) -> tuple[Images, Images]:
    strata = TARGETS[config.targets].strata(list(map(str, images.labels)))
    aside = split.hold_out(pixel_digests(images.pixels), strata, config.held_out, "images", rule=config.split_rule)
    return images.take(~aside), images.take(aside)


def resized(pixels: np.ndarray, size: int) -> np.ndarray:
    """N C P P bytes resized to `size`."""
    if size in (0, pixels.shape[-1]):
        return pixels
    some = [torch.tensor(pixels[i : i + 1024]).float() for i in range(0, len(pixels), 1024)]
    new = [bytes_of(F.interpolate(x, (size, size), mode="bilinear", antialias=True)) for x in some]
    return torch.cat(new).numpy()


# A user's own


@dataclass(frozen=True)
class ImageFile:
    """An image file, the name of its class ("" if unknown), and where that is written."""

    path: Path
    label: str
    where: str


def own(
    config: ImagesConfig, say: Say
) -> tuple[dict[str, tuple[Pixels, np.ndarray]], tuple[str, ...], tuple[str, ...], int]:
    """A user's own images: pixels and classes of each part, class names, notes to report, and a fingerprint."""
    targets = TARGETS[config.targets]
    column = config.label, targets.fault, config.strict
    listed = list_parts(user_path(config.path), *column)
    if config.valid:
        listed["valid"] = list_images(user_path(config.valid), *column)
    if not listed["train"]:
        raise DataError(f"{config.path}: there are no images; {EXPECTED}")
    others = [image for part in ("valid", "test") for image in listed.get(part, [])]
    cells, places = [image.label for image in others], [image.where for image in others]
    labels = tuple(targets.codes([x.label for x in listed["train"]], cells, config.path, places))
    number = {label: i for i, label in enumerate(labels)}
    parts, notes = {}, []
    for part, images in listed.items():
        pixels, kept, skipped = own_pixels(images, config.size or OWN_SIZE, config.channels, say)
        parts[part] = pixels, np.array([number[images[i].label] for i in kept], np.int64)
        notes += [f"skipped {len(names):,} ({part}): {why}; the first is {names[0]}" for why, names in skipped]
    lost = [labels[i] for i in set(range(len(labels))) - set(parts["train"][1].tolist())]
    if lost and config.targets == "classes":
        raise DataError(f"{config.path}: no image of the class {lost[0]!r} can be read")
    learned = [image for part in ("train", "valid") for image in listed.get(part, [])]
    sums = fingerprint.digests(config.path, [image.path for image in learned])
    shared = overlap.count(held := sums[len(listed["train"]) :], sums[: len(listed["train"])])
    notes += overlap.validation_warning(shared, len(held), "images")
    files = fingerprint.combined(sums, [image.label for image in learned])
    most = max(pixels.shape[1] for pixels, _ in parts.values())  # if some are in colour, all are
    return {name: (with_channels(x, most), y) for name, (x, y) in parts.items()}, labels, tuple(notes), files


def own_pixels(images: Sequence[ImageFile], size: int, channels: int, say: Say) -> Decoded:
    paths = [image.path for image in images]
    pixels, kept, skipped = decoded(list(map(str, paths)), paths, size, channels, say)
    if not kept:
        why = "; ".join(reason for reason, _ in skipped)
        raise DataError(f"none of {len(images):,} images can be read: {why}" if images else "there are no images")
    return pixels, kept, skipped


def list_parts(
    path: Path, label: str = "", check: Check = HAS_LABEL, strict: bool = False
) -> dict[str, list[ImageFile]]:
    """The images by part if the folder has a `train` folder; otherwise all are for training."""
    if path.is_dir() and (path / "train").is_dir():
        inside = {part: next((path / n for n in names if (path / n).is_dir()), None) for part, names in PARTS.items()}
        return {
            part: list_images(folder, label, check, strict) for part, folder in inside.items() if folder is not None
        }
    return {"train": list_images(path, label, check, strict)}


def list_images(path: Path, label: str = "", check: Check = HAS_LABEL, strict: bool = False) -> list[ImageFile]:
    if path.is_dir():
        classes = sorted(folder for folder in path.iterdir() if folder.is_dir() and not folder.name.startswith("."))
        listed = [ImageFile(file, folder.name, str(file)) for folder in classes for file in files_of(folder)]
        if not listed and (loose := sum(1 for _ in files_of(path))):
            raise DataError(
                f"{path} holds {loose:,} images and no folder for each class; give the folder above them, or a table "
                "of paths and labels"
            )
        return listed
    if not path.is_file():
        raise DataError(f"no file or folder {path}; {EXPECTED}")
    rows = read_table(path, (label,), strict=strict).labelled(PATHS, "image", label, check, strict)
    return [ImageFile(path.parent / file, label, where) for file, label, where in rows]


def files_of(folder: Path) -> Iterator[Path]:
    return (file for file in sorted(folder.rglob("*")) if file.suffix.lower() in IMAGES and file.is_file())


# Batches


class ImageSource(Source):
    """Images by index, for a `Loader`. All are kept on `device`, or in memory, if they fit."""

    def __init__(self, images: Images, classes: int, augment: Augment | None = None, device: str = "cpu"):
        self.images, self.classes, self.augment = images, classes, augment or Augment()
        self.pixels = resident(images.pixels, device)
        self.labels = torch.from_numpy(images.labels).to("cpu" if self.pixels is None else device)

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> Samples:
        pixels = pixels_of(rows, self.pixels, self.images.pixels)
        labels = self.labels[moved(torch.from_numpy(rows), self.labels.device)]
        if rng is not None and self.augment != Augment():
            pixels, labels = augmented(pixels, labels, self.classes, self.augment, rng)
        return Samples((pixels,), labels, rows)


def pixels_of(rows: np.ndarray, resident: Tensor | None, pixels: Pixels) -> Tensor:
    """These images, from where all are kept or from the file."""
    if resident is None:
        return torch.from_numpy(pixels[rows])
    return resident[moved(torch.from_numpy(rows), resident.device)]


def resident(pixels: Pixels, device: str) -> Tensor | None:
    """All images on `device` if they fit, otherwise None. A file is read in parts."""
    free = torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else limits.free()
    if pixels.nbytes >= ROOM * free:
        return None
    if isinstance(pixels, np.ndarray) and pixels.flags.writeable:
        return torch.from_numpy(pixels).to(device)
    whole = torch.empty(pixels.shape, dtype=torch.uint8, device=device)
    for start in range(0, len(pixels), AT_ONCE):
        some = np.require(pixels[start : start + AT_ONCE], requirements="W")  # a copy: the file is read-only
        whole[start : start + AT_ONCE] = torch.from_numpy(some)
    return whole
