"""What prepared folders are made of: files of numbers as memory maps, in shards, and a manifest of what was done."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from regard.errors import DataError

NARROW = 1 << 16  # pieces that two bytes can name
SHARD = 1 << 27  # numbers in a file, at most


def sha256(path: Path, wanted: str = "a text file") -> str:
    """The hash of a file; `DataError` when it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise DataError(f"no file {path}; check the name, or see the ready-made sets: regard data list") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; wanted {wanted}") from None
    except OSError as e:
        raise DataError(f"cannot read {path}: {e.strerror or e}") from None


def key(*parts: Any) -> str:
    """A folder's name, for all that shapes its content: the same text under another path is the same data."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def id_type(vocab: int) -> np.dtype:
    """The narrowest type that can name `vocab` pieces."""
    return np.dtype(np.uint16 if vocab <= NARROW else np.uint32)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """What the prepared folder says about itself; None where there is none."""
    try:
        return json.loads((folder / "manifest.json").read_text("utf-8"))
    except FileNotFoundError:
        return None


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")


def open_map(path: Path, dtype: np.dtype | type, length: int) -> np.ndarray:
    """A file of `length` numbers, read where it lies."""
    if not path.is_file() or path.stat().st_size != length * np.dtype(dtype).itemsize:
        raise DataError(f"{path} is damaged; remove {path.parent} and run again")
    # A plain view of the map: slicing np.memmap itself is several times slower.
    return np.asarray(np.memmap(path, dtype, "r")) if length else np.zeros(0, dtype)


class Shards:
    """Arrays read as one: all of the same length, the last one of what is left."""

    def __init__(self, arrays: Sequence[np.ndarray]):
        self.arrays = arrays
        self.shard = max(1, len(arrays[0]))
        self.length = sum(map(len, arrays))

    def __len__(self) -> int:
        return self.length

    def read(self, start: int, stop: int) -> np.ndarray:
        """Numbers `start` to `stop`, which is not included."""
        first, last = start // self.shard, max(start, stop - 1) // self.shard
        parts = [
            self.arrays[i][max(0, start - i * self.shard) : stop - i * self.shard]
            for i in range(first, min(last + 1, len(self.arrays)))
        ]
        return parts[0] if len(parts) == 1 else np.concatenate([*parts, self.arrays[0][:0]])


def open_shards(folder: Path, name: str, dtype: np.dtype | type, length: int, shard: int) -> Shards:
    """What a `ShardWriter` wrote: `length` numbers in files of `shard`."""
    sizes = [min(shard, length - start) for start in range(0, max(1, length), shard)]
    return Shards([open_map(folder / f"{name}.{i:03}", dtype, size) for i, size in enumerate(sizes)])


class ShardWriter:
    """Appends numbers to `name.000`, `name.001` and so on, each of `SHARD` at most."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype | type):
        self.folder, self.name, self.dtype = folder, name, np.dtype(dtype)
        self.length = 0
        self._file: BinaryIO | None = None

    def __enter__(self) -> "ShardWriter":
        self._next()
        return self

    def write(self, numbers: Sequence[int] | np.ndarray) -> None:
        new = np.asarray(numbers, self.dtype)
        while len(new):
            if self.length and self.length % SHARD == 0:
                self._next()
            part, new = np.split(new, [SHARD - self.length % SHARD])
            assert self._file is not None
            self._file.write(part.tobytes())
            self.length += len(part)

    def _next(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = (self.folder / f"{self.name}.{self.length // SHARD:03}").open("wb")

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


class TokenFile:
    """The ids of a text, one after the other; or of records, each with the places that are answers."""

    def __init__(self, ids: Shards, offsets: np.ndarray | None = None, answers: Shards | None = None):
        self.ids = ids
        self.offsets = offsets  # of records: N+1 places, where each begins and the last one ends
        self.answers = answers  # of records: for each id, whether it is to be learned

    @classmethod
    def of(
        cls, ids: Sequence[int] | np.ndarray, offsets: np.ndarray | None = None, answers: np.ndarray | None = None
    ) -> "TokenFile":
        """The same over arrays in memory."""
        return cls(Shards([np.asarray(ids)]), offsets, None if answers is None else Shards([np.asarray(answers, bool)]))

    @classmethod
    def open(cls, folder: Path, part: str, manifest: dict[str, Any]) -> "TokenFile":
        about, shard = manifest["parts"][part], manifest["shard"]
        ids = open_shards(folder, f"{part}.ids", np.dtype(manifest["dtype"]), about["tokens"], shard)
        if manifest["kind"] != "records":
            return cls(ids)
        offsets = open_shards(folder, f"{part}.offsets", np.int64, about["records"] + 1, shard)
        answers = open_shards(folder, f"{part}.answers", np.bool_, about["tokens"], shard)
        return cls(ids, offsets.read(0, len(offsets)), answers)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def records(self) -> int:
        """How many records there are; 0 for a text."""
        return 0 if self.offsets is None else len(self.offsets) - 1
