"""Files as bytes, plain or compressed with gzip or Zstandard, and the errors for those that cannot be read."""

import gzip
import io
import itertools
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeVar, cast

from regard import limits
from regard.data.arrow import pa
from regard.errors import DataError, LimitError, reason

COMPRESSED = (".gz", ".zst")
IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
AUDIO = (".wav", ".flac", ".mp3", ".ogg")
TARS = (".tar", ".tar.gz", ".tgz")
BLOCK = 1 << 17  # bytes decompressed at a time
RATIO, FREE = 100, 1 << 28  # the largest expansion of a compressed file, and bytes that any may hold
LINES = 32  # this many lines of the greatest length fit the memory budget
T = TypeVar("T")
R = TypeVar("R")
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def ending(path: str | Path) -> str:
    """A file's suffix, in lower case; `rows.csv.gz` is a `.csv`."""
    name = Path(path).name.lower()
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    return Path(name).suffix


@contextmanager
def open_bytes(path: Path, expected: str = "a file") -> Iterator[BinaryIO]:
    """The file at `path`, decompressed according to its first bytes, not its name."""
    with read_errors(path, expected), path.open("rb") as file:
        magic = file.peek(4)
        if magic.startswith(GZIP_MAGIC):
            yield _limited(path, cast(BinaryIO, gzip.GzipFile(fileobj=file)))
        elif magic.startswith(ZSTD_MAGIC):
            yield _limited(path, cast(BinaryIO, io.BufferedReader(pa.CompressedInputStream(file, "zstd"))))
        else:
            yield file


@contextmanager
def read_errors(path: Path, expected: str) -> Iterator[None]:
    """Turn errors of reading a file into a `DataError`. Devices, which may never end, are refused."""
    if path.is_char_device() or path.is_block_device():
        raise DataError(f"{path} is a device; expected {expected}")
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"no file {path}; check the name, or see the ready-made sets: regard data list") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; expected {expected}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise DataError(f"{path} is a damaged gzip file; copy or compress it again") from None
    except OSError as e:
        raise DataError(f"cannot read {path}: {e.strerror or e}") from None


def in_groups(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of `size`, the last possibly shorter (`itertools.batched`, which Python 3.11 lacks)."""
    items = iter(items)
    while group := list(itertools.islice(items, size)):
        yield group


def one_ahead(work: Callable[[T], R], items: Iterable[T]) -> Iterator[tuple[T, R]]:
    """Each item with `work(item)`, computed one item ahead by a thread, for work that releases the GIL."""
    with ThreadPoolExecutor(1) as thread:
        last: tuple[T, Future[R]] | None = None
        for item in items:
            following = item, thread.submit(work, item)
            if last:
                yield last[0], last[1].result()
            last = following
        if last:
            yield last[0], last[1].result()


def read_bounded_lines(file: BinaryIO, where: str) -> Iterator[bytes]:
    """The lines of a file with their ends; `LimitError` for one longer than memory allows."""
    limit = limits.budget() // LINES
    for number in itertools.count(1):
        if not (line := file.readline(limit)):
            return
        if len(line) == limit and not line.endswith(b"\n"):
            raise LimitError(f"{where} line {number} is longer than {limits.raise_hint(limit, 'split it')}")
        yield line


def read_tar(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """The files of an archive with a `wanted` name, sorted, without links and hidden files."""
    size = 0
    try:
        with tarfile.open(path) as tar:
            for member in sorted(tar, key=lambda member: member.name):
                name = PurePosixPath(member.name).name
                if member.isfile() and wanted(name) and not name.startswith(".") and (file := tar.extractfile(member)):
                    limits.require(size := size + member.size, f"{path}: its files", "unpack it")
                    yield member.name, file.read()
    except (tarfile.TarError, EOFError, zlib.error, OSError) as e:
        raise DataError(f"{path} cannot be read ({reason(e)}); it is damaged or not a tar archive") from None


class _Limited(io.RawIOBase):
    """A decompressor that stops when a file holds far more than text of its size can."""

    def __init__(self, path: Path, file: BinaryIO):
        self.path, self.file, self.done = path, file, 0
        self.limit = max(FREE, RATIO * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.file.read(len(buffer))
        buffer[: len(data)] = data
        self.done += len(data)
        if self.done > self.limit:
            size, limit = map(limits.show_size, (self.path.stat().st_size, self.limit))
            raise LimitError(
                f"{self.path}: {size} compressed hold more than {limit}, which text does not; if it is intended, "
                "decompress the file first"
            )
        return len(data)


def _limited(path: Path, file: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(_Limited(path, file), BLOCK))
