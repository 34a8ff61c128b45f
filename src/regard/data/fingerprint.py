"""Detect changed data: a hash of every file, recomputed only when its size or times have changed."""

import contextlib
import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from regard.data import store
from regard.data.folders import building_file, cache_folder
from regard.errors import DataError, WorkFailed

SETTLED = 2_000_000_000  # nanoseconds: a file changed more recently may change again with the same times


def digests(name: str, files: Sequence[Path]) -> list[str]:
    """The SHA-256 of each file, "" for one that cannot be read. They are cached under `name`, that of the data."""
    place = cache_folder() / "fingerprints" / f"{store.key(name)}.json"
    cached, now = _remembered(place), time.time_ns()
    fresh: dict[str, list] = {}
    hashes = []
    for path in files:
        try:
            status = path.stat()
            stamp = [status.st_size, status.st_mtime_ns, status.st_ctime_ns]
            entry = cached.get(file := str(path.absolute()), [])
            digest = entry[-1] if entry[:-1] == stamp else store.sha256(path)
        except (OSError, ValueError, DataError):
            hashes.append("")
            continue
        hashes.append(digest)
        if now - max(stamp[1:]) > SETTLED:
            fresh[file] = [*stamp, digest]
    if fresh != cached:
        with contextlib.suppress(WorkFailed), building_file(place) as draft:  # otherwise they are hashed again
            draft.write_text(json.dumps(fresh), "utf-8")
    return hashes


def of_array(array: np.ndarray) -> str:
    """The SHA-256 of an array."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def combined(*parts: Iterable[str]) -> int:
    """One fingerprint of lists of digests and names; order matters."""
    return int(store.key([list(part) for part in parts]), 16)


def _remembered(place: Path) -> dict[str, list]:
    try:
        entries = json.loads(place.read_bytes())
        return {name: entry for name, entry in entries.items() if isinstance(entry, list) and entry}
    except (OSError, ValueError, AttributeError):
        return {}
