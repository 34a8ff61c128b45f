"""Images as bytes: decoded once into a prepared store, grey or in colour, and read from there."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from regard.data import store
from regard.data.augment import GREY
from regard.data.folders import Say
from regard.data.framing import Framing
from regard.data.store import Column, Flat, StoreWriter
from regard.errors import DataError, MissingExtra

VERSION = 1  # of the prepared format
HUGE = 100_000_000  # pixels; a larger image is a mistake or an attack


Pixels: TypeAlias = "np.ndarray | Flat | Chosen"  # N C P P bytes


class Chosen:
    """A selection of images, possibly in a file: N C P P bytes, read on demand."""

    def __init__(self, every: Pixels, rows: np.ndarray):
        self.every, self.rows = every, rows
        self.shape = (len(rows), *every.shape[1:])
        self.nbytes = math.prod(self.shape)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, which: Any) -> np.ndarray:
        return self.every[self.rows[which]]


def grey(pixels: np.ndarray, channels: int) -> np.ndarray:
    """N C P P bytes in grey (1) or in colour (3); 0: as they are."""
    if channels in (0, pixels.shape[1]):
        return pixels
    if channels == 3:
        return np.broadcast_to(pixels, (len(pixels), 3, *pixels.shape[2:]))  # three channels, one in memory
    return (pixels * np.array(GREY, np.float32)[:, None, None]).sum(1, keepdims=True).round().astype(np.uint8)


def with_channels(pixels: Pixels, channels: int) -> Pixels:
    """`grey` for images that may be in a file; they are read only if they must change."""
    return pixels if channels in (0, pixels.shape[1]) else grey(pixels[:], channels)


# Decoding


class UnreadableImage(DataError):
    def __init__(self, name: object, reason: str):
        super().__init__(f"{name}: {reason}")
        self.reason = reason


Decoded = tuple[Flat, list[int], list[tuple[str, list[str]]]]
Opener = Callable[[str], Path | BinaryIO]
ON_DISK: AbstractContextManager[Opener] = nullcontext(Path)


def decoded(
    names: list[str],
    files: Sequence[Path],
    size: int,
    channels: int,
    say: Say,
    opened: AbstractContextManager[Opener] = ON_DISK,
) -> Decoded:
    """The pixels of the readable images, N C P P; which those are; and the others by reason.

    Decoded once, and cached until one of their `files` changes.
    """
    stamps = [(str(file), *_stamp(file)) for file in files]
    ready = store.prepare(
        store.key("images", VERSION, size, channels, names, stamps),
        lambda writer: _decode(names, opened, size, channels, writer),
        say,
        f"decoding {len(names):,} images to {size} x {size} pixels",
    )
    return ready.part("images")["pixels"], ready.manifest["kept"], list(ready.manifest["skipped"].items())


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
        return status.st_size, status.st_mtime_ns
    except OSError:
        return -1, -1


def _decode(
    names: list[str], opened: AbstractContextManager[Opener], size: int, channels: int, writer: StoreWriter
) -> dict[str, Any]:
    kept, skipped, modes = [], defaultdict(list), Counter[int]()
    colours_file = writer.folder / "colours"  # grey images may be followed by ones in colour
    with open(colours_file, "wb") as file, opened as find:
        for i, name in enumerate(names):
            try:
                pixels, colours = read_image(find(name), size)
            except UnreadableImage as e:
                skipped[e.reason].append(name)
                continue
            kept.append(i)
            modes[3 if colours else 1] += 1
            file.write(pixels.tobytes())
    channels = channels or max(modes, default=3)
    with writer.part("images", pixels=Column(np.uint8, shape=(channels, size, size))) as part:
        for x in np.memmap(colours_file, np.uint8, "r", shape=(len(kept), size, size, 3)) if kept else ():
            part.append(pixels=grey(np.moveaxis(x, -1, 0)[None], channels))
    colours_file.unlink()
    return {"kept": kept, "skipped": skipped}


def count_pixels(path: Path) -> int:
    """Width times height, as the header of an image file claims."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("reading images", "vision") from None
    try:
        with Image.open(path) as image:
            return image.width * image.height
    except (Image.DecompressionBombError, OSError, ValueError, SyntaxError):
        raise UnreadableImage(path, "cannot be read; it is damaged or not an image") from None


def read_image(path: Path | BinaryIO, framing: Framing | int = 0) -> tuple[np.ndarray, bool]:
    """The image in a file as H W 3 bytes, resized by `framing`, and whether it is in colour.

    A number as `framing` resizes it to that many pixels a side, 0 keeps its size. Transparent parts become white, EXIF
    orientation is applied, 16 bits become 8.
    """
    framing = Framing(framing) if isinstance(framing, int) else framing
    size = framing.side
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise MissingExtra("reading images", "vision") from None
    try:
        with Image.open(path) as image:
            if image.width * image.height > HUGE:
                raise UnreadableImage(path, f"larger than {HUGE:,} pixels")
            if size and framing.plain:
                image.draft("RGB", (2 * size, 2 * size))  # lets a JPEG be decoded at a smaller size
            image = ImageOps.exif_transpose(image)
            if image.mode.startswith("I;16"):
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            elif image.mode in ("I", "F"):
                raise UnreadableImage(path, f"pixels of mode {image.mode}, which have no range; save it with 8 bits")
            if "A" in image.getbands() or "transparency" in image.info:
                image = image.convert("RGBA")
                image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
            colours = image.mode not in ("1", "L", "LA")
            image = image.convert("RGB")
            if size:
                image = framing(image)
            pixels = np.asarray(image)
    except FileNotFoundError:
        raise UnreadableImage(path, "no such file") from None
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError, SyntaxError):
        raise UnreadableImage(path, "cannot be read; it is damaged or not an image") from None
    return pixels, colours and bool((pixels != pixels[..., :1]).any())
