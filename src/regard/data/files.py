"""Files as bytes, plain or compressed with gzip or Zstandard, and the sentence for one that cannot be read."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from regard.errors import DataError

COMPRESSED = (".gz", ".zst")
IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
SOUNDS = (".wav", ".flac", ".mp3", ".ogg")
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def ending(path: str | Path) -> str:
    """How a file's name ends, in lower case; `rows.csv.gz` is a `.csv`."""
    name = Path(path).name.lower()
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    return Path(name).suffix


@contextmanager
def open_bytes(path: Path, expected: str = "a file") -> Iterator[BinaryIO]:
    """The file at `path`, decompressed on the way; its first bytes tell how, whatever it is called."""
    try:
        with path.open("rb") as file:
            magic = file.peek(4)
            if magic.startswith(GZIP_MAGIC):
                yield cast(BinaryIO, gzip.GzipFile(fileobj=file))
            elif magic.startswith(ZSTD_MAGIC):
                yield _zstd(file)
            else:
                yield file
    except FileNotFoundError:
        raise DataError(f"no file {path}; check the name, or see the ready-made sets: regard data list") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; expected {expected}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise DataError(f"{path} is a damaged gzip file; copy or compress it again") from None
    except OSError as e:
        raise DataError(f"cannot read {path}: {e.strerror or e}") from None


def _zstd(file: BinaryIO) -> BinaryIO:
    import pyarrow as pa

    stream: Any = pa.CompressedInputStream(file, "zstd")
    return cast(BinaryIO, io.BufferedReader(stream))
