"""Where downloaded and prepared data is stored, and how folders are written atomically."""

import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from regard.errors import RegardError, WorkFailed
from regard.ticks import say

Say = Callable[[str], None]


def to_stderr(line: str) -> None:
    """The default `say`: progress goes to stderr, results to stdout."""
    say(line)


def silent(_: str) -> None:
    """A `say` that discards its messages."""


def user_path(path: str | Path) -> Path:
    """A path as the user typed it: `~` is their home, `~name` that of another user, or a file if there is none."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def cache_folder() -> Path:
    """`$REGARD_CACHE`, else `$XDG_CACHE_HOME/regard`, else `~/.cache/regard`."""
    if own := os.environ.get("REGARD_CACHE"):
        return user_path(own)
    return user_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "regard"


@contextmanager
def building(folder: Path, progress: str = "") -> Iterator[Path]:
    """A temporary folder that becomes `folder` if the block succeeds, and is deleted otherwise.

    If another process finished the same folder first, that one stays: the content is a function of the name. A folder
    with a file named `progress` survives an interrupted or killed process, and the next call continues in it.
    """
    with disk_errors(folder), ExitStack() as held:
        _make_room_for(folder)
        temporary, kept = folder.parent / f".{folder.name}-resumable", False
        if not (progress and _claim(temporary, held)):
            temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            yield temporary
            for path in temporary.iterdir():
                _sync(path)
            temporary.chmod(0o755)  # mkdtemp makes it private, but a cache may be shared
            try:
                temporary.rename(folder)
            except OSError as e:
                if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            _sync(folder.parent)
        except (KeyboardInterrupt, SystemExit):
            kept = bool(progress) and (temporary / progress).exists()
            raise
        finally:
            if not kept:
                shutil.rmtree(temporary, ignore_errors=True)


def _claim(folder: Path, held: ExitStack) -> bool:
    """Whether this process has locked `folder` until `held` ends; it may be new, or left by a dead process."""
    folder.mkdir(mode=0o700, exist_ok=True)
    file = os.open(folder, os.O_RDONLY)
    held.callback(os.close, file)
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return folder.stat().st_ino == os.fstat(file).st_ino  # not renamed meanwhile
    return False


@contextmanager
def building_file(path: Path) -> Iterator[Path]:
    """A temporary file that becomes `path`, synced, if the block succeeds."""
    with disk_errors(path):
        _make_room_for(path)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            _sync(temporary)
            temporary.chmod(0o644)
            temporary.replace(path)
            _sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn the errors of a full or read-only disk into `WorkFailed`."""
    try:
        yield
    except RegardError:
        raise
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            raise WorkFailed(f"the disk is full while writing {path}; make room, or set REGARD_CACHE elsewhere") from e
        raise WorkFailed(f"cannot write {path} ({e.strerror or e}); set REGARD_CACHE to a folder you may write") from e


def _make_room_for(path: Path) -> None:
    """Create the parent, and remove what killed processes left there more than a day ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{path.name}-*"):
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > 86_400:
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        if not path.is_dir():  # some file systems cannot sync a folder; the rename is still atomic
            raise
    finally:
        os.close(handle)
