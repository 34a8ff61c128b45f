"""Tables of numbers and categories: CSV, TSV or JSONL rows to vectors, and what it takes to read the next row alike."""

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from regard.data.batch import Samples
from regard.data.examples import LABELS, Table, read_table
from regard.data.loader import Source
from regard.data.settings import TableConfig
from regard.errors import CheckpointError, ConfigError, DataError

MOST = 100  # values a category may have; a column of more is a name, a number or a text, and is left out
MISSING = ("", "na", "n/a", "nan", "null", "none", "?")
LARGEST = 3e38  # what 32 bits can hold
FILE = "columns.json"


@dataclass(frozen=True)
class Column:
    """A number; or a category, which becomes a number for each of its `values`: 1 for its own, 0 for the others."""

    name: str
    values: tuple[str, ...] = ()  # of a category
    usual: float = 0.0  # of a number: the mean, for rows where it is missing

    @property
    def width(self) -> int:
        return len(self.values) or 1

    def encode(self, cell: str, where: str = "") -> list[float]:
        cell = cell.strip()
        if self.values:
            return [float(cell == value) for value in self.values]  # one never met: no value of all
        if is_missing(cell):
            return [self.usual]
        try:
            return [float(cell)]
        except ValueError:
            raise DataError(f"{where}the column {self.name!r} wants a number, got {cell!r}") from None


def is_missing(cell: str) -> bool:
    if cell.strip().lower() in MISSING:
        return True
    try:
        return not abs(float(cell)) <= LARGEST  # NaN is not, either
    except ValueError:
        return False


@dataclass(frozen=True)
class Rows:
    """N F numbers and N classes."""

    features: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class TableData:
    labels: tuple[str, ...]
    label: str  # the column
    columns: tuple[Column, ...]
    train: Rows
    valid: Rows
    notes: tuple[str, ...]
    content: int

    def report(self) -> str:
        counts = Counter(self.train.labels.tolist())
        shown = ", ".join(f"{name} {counts[i]:,}" for i, name in enumerate(self.labels))
        numbers = sum(not c.values for c in self.columns)
        return "\n".join(
            [
                f"{len(self.train):,} rows to train on, {len(self.valid):,} for validation; {numbers} numbers and "
                f"{len(self.columns) - numbers} categories, {self.train.features.shape[1]} inputs in all",
                f"{len(self.labels)} classes of {self.label!r}: {shown}",
                *(f"one row only: {name}" for i, name in enumerate(self.labels) if counts[i] == 1),
                *self.notes,
            ]
        )

    def spread(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of every input."""
        x = self.train.features.astype(np.float64)
        return tuple(x.mean(0).tolist()), tuple(np.where(x.std(0) > 0, x.std(0), 1.0).tolist())


def load_table(config: TableConfig) -> TableData:
    if not config.path:
        raise ConfigError("train on what? give --data FILE.csv --label COLUMN")
    path = Path(config.path).expanduser()
    table = read_table(path, (config.label,))
    given = table.place(config.label, LABELS, "label", len(table.columns) - 1)
    rows, names = labelled_rows(table, given)
    if config.valid:
        other = read_table(Path(config.valid).expanduser(), (table.columns[given],))
        train, (valid, theirs) = rows, labelled_rows(other, other.place(table.columns[given], (), "label", None))
        valid = reordered(other, valid, table.columns)
        train_names, valid_names = names, theirs
    else:
        aside = held_out(rows, names, config.held_out)
        train, valid = ([r for r, a in zip(rows, aside, strict=True) if a == side] for side in (False, True))
        train_names, valid_names = (
            [n for n, a in zip(names, aside, strict=True) if a == side] for side in (False, True)
        )
    labels = tuple(sorted(set(train_names)))
    if len(labels) < 2:
        raise DataError(
            f"{path}: all rows have the {table.columns[given]} {labels[0]!r}; there is nothing to tell apart"
        )
    if odd := set(valid_names) - set(labels):
        raise DataError(f"the class {min(odd)!r} is not among those trained on: {', '.join(labels)}")
    columns, notes = understood(table, given, train)
    if not columns:
        raise DataError(f"{path}: no column can be read as numbers or categories; {'; '.join(notes)}")
    place = {name: table.columns.index(name) for name in (c.name for c in columns)}
    at = {label: i for i, label in enumerate(labels)}
    learned, watched = (
        Rows(
            encode(columns, [{name: row[i] for name, i in place.items()} for row in part]),
            np.array([at[n] for n in told], np.int64),
        )
        for part, told in ((train, train_names), (valid, valid_names))
    )
    content = int(hashlib.sha256(learned.features.tobytes()).hexdigest()[:12], 16)
    return TableData(labels, table.columns[given], tuple(columns), learned, watched, tuple(notes), content)


def labelled_rows(table: Table, given: int) -> tuple[list[list[str]], list[str]]:
    """The cells of every row, and its class."""
    for line, cells in table.rows:
        if is_missing(cells[given]):
            raise DataError(f"{table.path} line {line}: no label; fill in the column {table.columns[given]!r}")
    if not table.rows:
        raise DataError(f"{table.path} has no rows")
    return [cells for _, cells in table.rows], [cells[given].strip() for _, cells in table.rows]


def reordered(table: Table, rows: list[list[str]], wanted: Sequence[str]) -> list[list[str]]:
    """The same rows in another file's order of columns; what that file does not have is missing."""
    places = [table.columns.index(name) if name in table.columns else -1 for name in wanted]
    return [[row[i] if i >= 0 else "" for i in places] for row in rows]


def held_out(rows: list[list[str]], names: list[str], share: float) -> list[bool]:
    """Some rows of every class: by rng, but always the same, and equal rows on the same side."""
    keys = [hashlib.sha256("\t".join(row).encode()).digest() for row in rows]
    groups: dict[str, set[bytes]] = defaultdict(set)
    for key, name in zip(keys, names, strict=True):
        groups[name].add(key)
    chosen = {key for group in groups.values() for key in sorted(group)[: round(share * len(group))]}
    chosen = chosen or {min(max(groups.values(), key=len))}
    if len(set(keys)) < 2:
        raise DataError(f"{len(rows)} rows are too few to hold some out; give more, or --valid FILE")
    return [key in chosen for key in keys]


def understood(table: Table, given: int, rows: list[list[str]]) -> tuple[list[Column], list[str]]:
    """What each column is, judged by the training rows; and what there is to tell."""
    columns, notes = [], []
    for i, name in enumerate(table.columns):
        if i == given:
            continue
        cells = [row[i].strip() for row in rows]
        known = [cell for cell in cells if not is_missing(cell)]
        values = sorted(set(known))
        if len(values) < 2:
            notes.append(f"left out {name!r}: it is the same in every row")
        elif all(is_number(value) for value in values):
            if len(known) < len(cells):
                notes.append(f"{name!r}: {len(cells) - len(known):,} missing, taken for the mean")
            columns.append(Column(name, usual=float(np.mean([float(cell) for cell in known]))))
        elif len(values) > MOST:
            notes.append(f"left out {name!r}: {len(values):,} different values are no category")
        else:
            columns.append(Column(name, tuple(values)))
    return columns, notes


def is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def encode(columns: Sequence[Column], rows: Sequence[Mapping[str, str]]) -> np.ndarray:
    """N F numbers of rows by column name."""
    found = [
        [x for c in columns for x in c.encode(row.get(c.name, ""), f"row {number}: ")]
        for number, row in enumerate(rows, 1)
    ]
    return np.array(found, np.float32).reshape(len(rows), sum(c.width for c in columns))


def write_columns(folder: Path, label: str, columns: Sequence[Column]) -> None:
    known = {"label": label, "columns": [asdict(c) for c in columns]}
    (folder / FILE).write_text(json.dumps(known, indent=2, ensure_ascii=False) + "\n", "utf-8")


def read_columns(folder: Path) -> tuple[str, tuple[Column, ...]]:
    """The label's column and the others, as `write_columns` was given them."""
    try:
        known = json.loads((folder / FILE).read_text("utf-8"))
        return known["label"], tuple(Column(c["name"], tuple(c["values"]), c["usual"]) for c in known["columns"])
    except FileNotFoundError:
        raise CheckpointError(f"{folder} has no {FILE}, which says what its inputs are") from None
    except (ValueError, KeyError, TypeError) as e:
        raise CheckpointError(f"{folder / FILE}: cannot be read ({e})") from None


class RowSource(Source):
    """Rows by number, for a `Loader`."""

    def __init__(self, rows: Rows):
        self.features, self.labels = torch.from_numpy(rows.features), torch.from_numpy(rows.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> Samples:
        return Samples((self.features[rows],), self.labels[rows], rows)
