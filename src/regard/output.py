"""Output files: every file that a user names is written here.

A regular file appears under its name when it is complete, and replaces an older one atomically. Symbolic links are
followed and kept. A FIFO, a device or an open descriptor (`/dev/stdout`, `>(gzip)`) receives the bytes as they come.
"""

import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TextIO

from regard.errors import DataError

STDOUT = "-"
MAX_LINKS = 40  # symbolic links in a row before it is a loop, as in Linux
DESCRIPTOR = re.compile(r"/proc/(\d+)(/task/\d+)?/fd/\d+")  # links to open files, which may have no name


def is_stdout(path: str | Path) -> bool:
    return str(path) == STDOUT


def check_output(path: str | Path, *inputs: str | Path) -> None:
    """Raise `DataError` if `path` cannot be written or is one of the `inputs`; call it before the work starts."""
    if is_stdout(path):
        return
    try:
        place = _follow_links(Path(path))
        if place.is_dir():
            raise DataError(f"{path} is a folder; name a file")
        for folder in (Path(path).parent, place.parent):  # as typed, and where a link leads
            if not folder.is_dir():
                raise DataError(f"{folder} is not a folder; create it first: mkdir -p {folder}")
        if place.exists() and not os.access(place, os.W_OK, effective_ids=True):
            raise DataError(f"{path} is write-protected; name another file, or type: chmod u+w {place}")
        if not _is_regular(place):
            return
        if not os.access(place.parent, os.W_OK | os.X_OK, effective_ids=True):
            raise DataError(f"{path}: {place.parent} is write-protected; name a file in another folder")
        if place.exists() and any(Path(name).exists() and place.samefile(name) for name in inputs):
            raise DataError(f"{path} is the input file; name another one")
    except OSError as e:
        raise DataError(f"{path} cannot be written ({e.strerror}); name another file") from None


@contextmanager
def open_output(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write bytes to; `-` is standard output."""
    if is_stdout(path):
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    check_output(path)
    place = _follow_links(Path(path))
    with _replace(place) if _is_regular(place) else _stream(place) as file:
        yield file


@contextmanager
def open_text(path: str | Path) -> Iterator[TextIO]:
    """`open_output` for text in UTF-8, whose lines end in a line feed."""
    if is_stdout(path):
        yield sys.stdout
        return
    with open_output(path) as file:
        text = io.TextIOWrapper(file, "utf-8", errors="surrogateescape", newline="\n")  # names may not be UTF-8
        try:
            yield text
        finally:
            text.detach()  # flushes, and leaves the file open


def _follow_links(path: Path) -> Path:
    """What the symbolic links of `path` lead to, whether it exists or not; an open descriptor is not followed."""
    named = path
    for _ in range(MAX_LINKS):
        path = Path(os.path.realpath(path.parent), path.name)
        if DESCRIPTOR.fullmatch(str(path)) or not path.is_symlink():
            return path
        path = path.parent / path.readlink()
    raise DataError(f"{named} is a symbolic link that leads back to itself; name another file")


def _is_regular(place: Path) -> bool:
    """Whether it is a regular file, or does not exist yet."""
    return not DESCRIPTOR.fullmatch(str(place)) and (place.is_file() or not place.exists())


@contextmanager
def _replace(place: Path) -> Iterator[BinaryIO]:
    """A temporary file that is renamed to `place` once it is complete and on disk, and removed on any failure."""
    draft = place.with_name(f".regard-{os.urandom(8).hex()}.part")
    try:
        with open(draft, "xb") as file:
            if place.exists():
                _copy_permissions(place, file.fileno())
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, place)
    finally:
        draft.unlink(missing_ok=True)


def _copy_permissions(place: Path, file: int) -> None:
    old = place.stat()
    with suppress(PermissionError):  # only root may give a file away
        os.fchown(file, old.st_uid, old.st_gid)
    os.fchmod(file, old.st_mode & 0o7777)


@contextmanager
def _stream(place: Path) -> Iterator[BinaryIO]:
    """A FIFO, a device or a descriptor; one of our own descriptors keeps its position."""
    own = DESCRIPTOR.fullmatch(str(place))
    if own and int(own[1]) == os.getpid():
        sys.stdout.flush()
        file = os.dup(int(place.name))
    else:
        file = os.open(place, os.O_WRONLY)
    with open(file, "wb") as stream:
        yield stream
