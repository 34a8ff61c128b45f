"""The prepared store: a folder of named columns, memory-mapped and in shards, and a manifest.

Everything streams, so memory does not grow with the data. A folder's name is a fingerprint of the settings and input
files; the same request finds the same folder and does no work.

    train.ids.000  train.ids.001  train.ids.offsets.000  train.label.000  …  manifest.json
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from regard.data.files import read_errors
from regard.data.folders import Say, building, cache_folder
from regard.errors import DataError
from regard.jsonfile import write_json

FORMAT = 2
NARROW = 1 << 16  # ids that fit in two bytes
SHARD = 1 << 27  # numbers per file, at most
BUFFER = 1 << 16  # numbers buffered before writing
PROGRESS = "progress.json"  # of an unfinished folder

Numbers = Sequence[int] | np.ndarray


def sha256(path: Path, expected: str = "a text file") -> str:
    """The hash of a file; `DataError` if it cannot be read."""
    with read_errors(path, expected), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def key(*parts: Any) -> str:
    """A fingerprint of all that determines the content: the same text under another path is the same data."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def id_type(vocab: int) -> np.dtype:
    """The narrowest type for ids below `vocab`."""
    return np.dtype(np.uint16 if vocab <= NARROW else np.uint32)


# Reading


class Flat:
    """A column with one entry per row: a number, or an array of one shape. Memory-mapped, over all its shards."""

    def __init__(self, shards: Sequence[np.ndarray]):
        self.shards = shards  # all with equally many rows, except the last
        self.rows_per_shard = max(1, len(shards[0]))
        self.shape = (sum(map(len, shards)), *shards[0].shape[1:])
        self.nbytes = sum(shard.nbytes for shard in shards)

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop`, exclusive."""
        if len(self.shards) == 1:
            return self.shards[0][start:stop]
        size = self.rows_per_shard
        shards = range(start // size, min(max(start, stop - 1) // size + 1, len(self.shards)))
        pieces = [self.shards[i][max(0, start - i * size) : stop - i * size] for i in shards]
        return pieces[0] if len(pieces) == 1 else np.concatenate([*pieces, self.shards[0][:0]])

    def __getitem__(self, rows: Any) -> np.ndarray:
        """A row, a slice of rows, or the rows of these indices."""
        if len(self.shards) == 1:
            return self.shards[0][rows]
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            return self.read(start, max(start, stop)) if step == 1 else self[np.arange(start, stop, step)]
        which, place = np.divmod(rows, self.rows_per_shard)
        if np.ndim(rows) == 0:
            return self.shards[which][place]  # an IndexError beyond the last
        out = np.empty((*which.shape, *self.shape[1:]), self.shards[0].dtype)
        for i in np.unique(which):
            out[which == i] = self.shards[i][place[which == i]]
        return out


class Ragged:
    """A column with a list of numbers per row: all values concatenated, and the offsets of the rows."""

    def __init__(self, values: Flat, offsets: np.ndarray):
        self.values, self.offsets = values, offsets  # N+1

    @classmethod
    def of(cls, rows: Sequence[Numbers]) -> "Ragged":
        """From lists in memory."""
        offsets = np.cumsum([0, *map(len, rows)])
        return cls(Flat([np.concatenate([np.zeros(0, np.int64), *map(np.asarray, rows)])]), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        return self.values.read(self.offsets[row], self.offsets[row + 1])

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Store:
    """A prepared folder, open for reading. Preparers return subclasses with a tokenizer and the parts."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def content(self) -> int:
        """The fingerprint of the data, which a loader stores with its position."""
        return int(self.folder.name.partition(".")[0], 16)

    def part(self, name: str) -> dict[str, Any]:
        """The columns of a part by name, each `Flat` or `Ragged`."""
        return {column: self._column(f"{name}.{column}", about) for column, about in self._about(name).items()}

    def length(self, part: str, column: str) -> int:
        """The number of values or entries of a column, over all rows."""
        return self._about(part)[column]["length"]

    def _about(self, part: str) -> dict[str, Any]:
        return self.manifest["parts"][part]["columns"]

    def _column(self, name: str, about: dict[str, Any]) -> Flat | Ragged:
        values = self._flat(name, about["dtype"], about["length"], tuple(about["shape"]))
        if not about["ragged"]:
            return values
        offsets = self._flat(f"{name}.offsets", "int64", about["rows"] + 1)
        return Ragged(values, offsets.read(0, len(offsets)))

    def _flat(self, name: str, dtype: str, length: int, shape: tuple[int, ...] = ()) -> Flat:
        rows = max(1, self.manifest["shard"] // prod(shape))
        sizes = [min(rows, length - start) for start in range(0, max(1, length), rows)]
        return Flat([_mapped(self.folder / f"{name}.{i:03}", dtype, (n, *shape)) for i, n in enumerate(sizes)])


def _mapped(path: Path, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """A file of numbers, memory-mapped."""
    if not path.is_file() or path.stat().st_size != prod(shape) * np.dtype(dtype).itemsize:
        raise DataError(f"{path} is damaged; remove {path.parent} and run again")
    if not prod(shape):
        return np.zeros(shape, dtype)
    # A plain view of the map: slicing np.memmap itself is several times slower.
    return np.asarray(np.memmap(path, dtype, "r")).reshape(shape)


# Writing


@dataclass(frozen=True)
class Column:
    """What a column holds per row: a list of numbers if `ragged`, otherwise a number or an array of one `shape`."""

    dtype: np.dtype | type
    ragged: bool = False
    shape: tuple[int, ...] = ()


class _Numbers:
    """Appends numbers to `name.000`, `name.001` and so on, without splitting an entry."""

    def __init__(self, path: Path, dtype: np.dtype | type, entry: int = 1, written: int = 0):
        self.path, self.dtype = path, np.dtype(dtype)
        self.room = max(1, SHARD // entry) * entry  # per file
        self.written, self.waiting = written, []
        self.file = self._reopen() if written else self._open()

    @property
    def length(self) -> int:
        return self.written + len(self.waiting)

    def write(self, numbers: Numbers) -> None:
        if isinstance(numbers, np.ndarray):
            self.flush()
            self._put(numbers.reshape(-1).astype(self.dtype, copy=False))
        else:
            self.waiting.extend(numbers)
            if len(self.waiting) >= BUFFER:
                self.flush()

    def flush(self) -> None:
        new, self.waiting = np.array(self.waiting, self.dtype), []
        self._put(new)

    def _put(self, new: np.ndarray) -> None:
        while len(new):
            if self.written and self.written % self.room == 0:
                self.file.close()
                self.file = self._open()
            now, new = np.split(new, [self.room - self.written % self.room])
            self.file.write(now.tobytes())
            self.written += len(now)

    def _open(self) -> BinaryIO:
        return self._shard(self.written // self.room).open("wb")

    def _reopen(self) -> BinaryIO:
        """The last file, truncated to the first `written` numbers."""
        last = (self.written - 1) // self.room
        file = self._shard(last).open("r+b")
        file.truncate((self.written - last * self.room) * self.dtype.itemsize)
        file.seek(0, os.SEEK_END)
        return file

    def _shard(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number:03}")


class PartWriter:
    """Appends rows to the columns of a part."""

    def __init__(self, folder: Path, part: str, columns: dict[str, Column], saved: dict[str, Any] | None = None):
        """`saved` is the `state` of a killed process, to continue from."""
        done = saved or {"rows": 0, "values": {}, "offsets": {}}
        self.columns, self.rows = columns, done["rows"]
        self.values = {
            name: _Numbers(folder / f"{part}.{name}", c.dtype, prod(c.shape), done["values"].get(name, 0))
            for name, c in columns.items()
        }
        ragged = [name for name, c in columns.items() if c.ragged]
        self.offsets = {
            name: _Numbers(folder / f"{part}.{name}.offsets", np.int64, 1, done["offsets"].get(name, 0))
            for name in ragged
        }
        for offsets in self.offsets.values():
            if not offsets.written:
                offsets.write([0])

    def state(self) -> dict[str, Any]:
        """How much is in the files, after flushing."""
        for file in (*self.values.values(), *self.offsets.values()):
            if not file.file.closed:
                file.flush()
                file.file.flush()
        values, offsets = ({name: file.written for name, file in of.items()} for of in (self.values, self.offsets))
        return {"rows": self.rows, "values": values, "offsets": offsets}

    def append(self, **row: Any) -> None:
        """One row: a value of each column."""
        for name, value in row.items():
            self.values[name].write(value if name in self.offsets or isinstance(value, np.ndarray) else [value])
            if name in self.offsets:
                self.offsets[name].write([self.values[name].length])
        self.rows += 1

    def extend(self, **rows: Numbers) -> None:
        """Append many rows of columns with one number each."""
        for name, values in rows.items():
            self.values[name].write(values)
        self.rows += len(next(iter(rows.values())))

    def length(self, column: str) -> int:
        """The number of values or entries of a column so far."""
        return self.values[column].length // prod(self.columns[column].shape)

    def about(self) -> dict[str, Any]:
        columns = {}
        for name, c in self.columns.items():
            column = {"dtype": np.dtype(c.dtype).name, "ragged": c.ragged, "shape": list(c.shape)}
            columns[name] = column | {"rows": self.rows, "length": self.length(name)}
        return {"rows": self.rows, "columns": columns}

    def __enter__(self) -> "PartWriter":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with ExitStack() as files:
            for file in (*self.values.values(), *self.offsets.values()):
                files.callback(file.file.close)
                if kind is None:
                    file.flush()


class StoreWriter:
    """A prepared folder being written, part by part. `saved` is the progress of a killed process."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.parts: dict[str, PartWriter] = {}
        progress = folder / PROGRESS
        self.saved: dict[str, Any] = json.loads(progress.read_text("utf-8")) if progress.is_file() else {}
        for left in folder.iterdir() if not self.saved else ():
            left.unlink()

    def part(self, name: str, **columns: Column) -> PartWriter:
        """A writer for a part: `with store.part("train", ids=Column(np.uint16, ragged=True)) as part: …`"""
        saved = self.saved.get("parts", {}).get(name)
        return self.parts.setdefault(name, PartWriter(self.folder, name, columns, saved))

    def save(self, **progress: Any) -> None:
        """Save the preparer's `progress`, from which another process continues if this one is killed."""
        self.saved |= progress | {"parts": {name: part.state() for name, part in self.parts.items()}}
        temporary = self.folder / f"{PROGRESS}.new"
        temporary.write_text(json.dumps(self.saved), "utf-8")
        temporary.replace(self.folder / PROGRESS)

    def finish(self, manifest: dict[str, Any]) -> None:
        parts = {name: part.about() for name, part in self.parts.items()}
        whole = {"format": FORMAT, **manifest, "shard": SHARD, "parts": parts}
        (self.folder / PROGRESS).unlink(missing_ok=True)
        write_json(self.folder / "manifest.json", whole)


# What every preparer does


def prepare(fingerprint: str, build: Callable[[StoreWriter], dict[str, Any]], say: Say, doing: str) -> Store:
    """The store of this fingerprint: found in the cache, or built there atomically.

    `build` writes the parts and returns the rest of the manifest.
    """
    folder = cache_folder() / "prepared" / f"{fingerprint}.{FORMAT}"
    if (ready := find(folder)) is None:
        say(f"preparing: {doing} ...")
        with building(folder, PROGRESS) as temporary:
            writer = StoreWriter(temporary)
            writer.finish(build(writer))
        ready = find(folder)
        assert ready is not None
    return ready


def find(folder: Path) -> Store | None:
    """The store in a folder; None if there is none."""
    try:
        return Store(folder, json.loads((folder / "manifest.json").read_text("utf-8")))
    except FileNotFoundError:
        return None
