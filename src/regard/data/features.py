"""Tables of numbers and categories: rows to vectors, and the columns that encode further rows the same way."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from regard.data import overlap, split
from regard.data.batch import Samples
from regard.data.cells import decimal_mark, is_missing, is_number, notation, to_number, usable
from regard.data.folders import Say, to_stderr, user_path
from regard.data.loader import Source
from regard.data.settings import TableConfig
from regard.data.tables import LABELS, DataTable, read_table
from regard.data.targets import TARGETS, ClassData
from regard.errors import CheckpointError, ConfigError, DataError
from regard.jsonfile import read_json

SHOWN = 5  # names in a message
MOST = 100  # values of a category; a column with more is left out
FILE = "columns.json"


@dataclass(frozen=True)
class Feature:
    """A column: a number; or a category, one-hot encoded over its `values`."""

    name: str
    values: tuple[str, ...] = ()  # of a category
    usual: float = 0.0  # of a number: the mean, used where it is missing
    decimal: str = "."  # of a number: the decimal mark; percent signs, currencies and thousands separators are dropped

    @property
    def width(self) -> int:
        return len(self.values) or 1

    def encode(self, cells: Sequence[str]) -> np.ndarray:
        """N W numbers; an unknown category is all zeros."""
        if self.values:
            place = {value: i for i, value in enumerate(self.values)}
            return np.array([place.get(cell.strip(), -1) for cell in cells])[:, None] == np.arange(len(place))
        numbers = np.array([self.number(cell, f"row {row}") for row, cell in enumerate(cells, 1)])
        return np.where(usable(numbers), numbers, self.usual)[:, None]

    def number(self, cell: str, place: str) -> float:
        """Parse a cell with the decimal mark of the training data, then with the other one."""
        marks = (self.decimal, "," if self.decimal == "." else ".")
        for mark in marks:
            with suppress(ValueError):
                return to_number(cell, mark)
        raise DataError(f"{place}: the column {self.name!r} expects a number, got {cell.strip()!r}")

    def fault(self, cell: str) -> str:
        """Why a cell is not a number; "" if it is, or is missing."""
        try:
            self.number(cell, "")
        except DataError:
            return f"{cell.strip()[:40]!r} is not a number"
        return ""


@dataclass(frozen=True)
class Vectors:
    """N F numbers and N classes."""

    features: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class TableData(ClassData):
    label: str = ""  # the column
    columns: tuple[Feature, ...] = ()
    content: int = 0

    def spread(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of every input."""
        x = self.train.features.astype(np.float64)
        return tuple(x.mean(0).tolist()), tuple(np.where(x.std(0) > 0, x.std(0), 1.0).tolist())


def load_table(config: TableConfig, columns: Sequence[Feature] = (), say: Say = to_stderr) -> TableData:
    """Both parts of a table, encoded by the `columns` of a trained model or by those inferred from training rows."""
    if not config.path:
        raise ConfigError("train on what? give --data FILE.csv --label COLUMN")
    path = user_path(config.path)
    table = read_table(path, (config.label,), say=say, strict=config.strict)
    label = table.find(config.label, LABELS, "label", len(table.columns) - 1)
    targets = TARGETS[config.targets]
    written = [f"{label!r}: {how}, read as numbers"] if targets.numbers and (how := table.notation(label)) else []
    table = labelled_rows(table, label, config, say)
    train, train_labels = named_rows(table), table.labels(label)
    shared, how = 0, targets.how * (not config.valid)
    if config.valid:
        other = read_table(user_path(config.valid), (label,), say=say, strict=config.strict)
        column = other.find(label, (), "label")
        other = labelled_rows(other, column, config, say)
        valid, valid_labels = named_rows(other), other.labels(column)
        shared = overlap.count([tuple(sorted(r.items())) for r in valid], (tuple(sorted(r.items())) for r in train))
    else:
        digests = [split.digest("\t".join(row.values())) for row in train]
        strata = targets.strata(train_labels)
        aside = split.hold_out(digests, strata, config.held_out, "rows", rule=config.split_rule)
        train, valid = split.parts(train, aside)
        train_labels, valid_labels = split.parts(train_labels, aside)
    labels = tuple(targets.codes(train_labels, valid_labels, str(path)))
    names = [name for name in table.columns if name != label]
    columns, notes = (columns, []) if columns else infer_columns(names, train)
    notes += written + overlap.validation_warning(shared, len(valid), "rows")
    if not columns:
        raise DataError(f"{path}: no column can be read as numbers or categories; {'; '.join(notes)}")
    if config.valid:
        notes += [f"validation: {line}" for line in unlike_training(columns, valid)]
    at = {name: i for i, name in enumerate(labels)}
    train_part, valid_part = (
        Vectors(encode(columns, part), np.array([at[name] for name in classes], np.int64))
        for part, classes in ((train, train_labels), (valid, valid_labels))
    )
    numbers, inputs = sum(not c.values for c in columns), train_part.features.shape[1]
    about = f"{numbers} numbers and {len(columns) - numbers} categories, {inputs} inputs in all"
    content = int(hashlib.sha256(train_part.features.tobytes()).hexdigest()[:12], 16)
    return TableData(labels, train_part, valid_part, tuple(notes), how=how, about=about, targets=targets,
                     classes=f"classes of {label!r}", label=label, columns=tuple(columns), content=content)  # fmt: skip


def labelled_rows(table: DataTable, label: str, config: TableConfig, say: Say) -> DataTable:
    targets = TARGETS[config.targets]
    table = table.with_plain(label) if targets.numbers else table
    return table.usable({label: targets.fault}, config.strict, say)


def named_rows(table: DataTable) -> list[dict[str, str]]:
    """Rows as dicts of cells by column."""
    return [dict(zip(table.columns, cells, strict=True)) for cells in table.rows()]


def infer_columns(names: Sequence[str], rows: Sequence[Mapping[str, str]]) -> tuple[list[Feature], list[str]]:
    """The type of each column, inferred from the training rows; and notes to report."""
    columns, notes = [], []
    for name in names:
        cells = [row[name].strip() for row in rows]
        present = [cell for cell in cells if is_present(cell)]
        values = sorted(set(present))
        if len(values) < 2:
            notes.append(f"left out {name!r}: the same in every row")
        elif mark := decimal_mark(values):
            if how := notation(values, mark):
                notes.append(f"{name!r}: {how}, read as numbers")
            if len(present) < len(cells):
                notes.append(f"{name!r}: {len(cells) - len(present):,} missing, replaced by the mean")
            columns.append(Feature(name, usual=float(np.mean([to_number(c, mark) for c in present])), decimal=mark))
        elif len(values) > MOST:
            notes.append(f"left out {name!r}: {len(values):,} different values are too many for a category")
        else:
            columns.append(Feature(name, tuple(values)))
    return columns, notes


def is_present(cell: str) -> bool:
    """Whether a cell is a word or a usable number."""
    return not is_missing(cell) and (not is_number(cell) or usable(float(cell)))


def encode(columns: Sequence[Feature], rows: Sequence[Mapping[str, str]]) -> np.ndarray:
    """Rows by column name as N F numbers."""
    if not rows:
        return np.zeros((0, sum(c.width for c in columns)), np.float32)
    return np.concatenate([c.encode([row.get(c.name, "") for row in rows]) for c in columns], 1).astype(np.float32)


def unlike_training(columns: Sequence[Feature], rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Notes on how these rows differ from the training data: missing columns and unknown categories."""
    present = {name for row in rows for name in row}
    missing = [c for c in columns if c.name not in present]
    if len(missing) == len(columns):
        names = _some([c.name for c in columns])
        raise DataError(f"the table has none of the columns this model was trained on; expected {names}")
    notes = [f"no column {c.name!r}: replaced by {'none of its values' if c.values else 'its mean'}" for c in missing]
    for c in columns:
        counts = Counter(cell for row in rows if not is_missing(cell := row.get(c.name, "").strip()))
        if c.values and (unknown := {cell: n for cell, n in counts.items() if cell not in c.values}):
            notes.append(f"{c.name!r}: {sum(unknown.values()):,} of {len(rows):,} rows hold values not in "
                         f"the training data, ignored: {_some(list(map(repr, unknown)))}")  # fmt: skip
    return notes


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + ", …" * (len(names) > SHOWN)


def write_columns(folder: Path, label: str, columns: Sequence[Feature]) -> None:
    values = {"label": label, "columns": [asdict(c) for c in columns]}
    (folder / FILE).write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", "utf-8")


def read_columns(folder: Path) -> tuple[str, tuple[Feature, ...]]:
    """The inverse of `write_columns`: the label's column and the others."""
    try:
        values = read_json(folder / FILE)
        return values["label"], tuple(
            Feature(c["name"], tuple(c["values"]), c["usual"], c.get("decimal", ".")) for c in values["columns"]
        )
    except FileNotFoundError:
        raise CheckpointError(f"{folder} has no {FILE}, which describes its inputs") from None
    except (ValueError, KeyError, TypeError) as e:
        raise CheckpointError(f"{folder / FILE}: cannot be read ({e})") from None


class TableSource(Source):
    """Rows by index, for a `Loader`."""

    def __init__(self, rows: Vectors):
        self.features, self.labels = torch.from_numpy(rows.features), torch.from_numpy(rows.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> Samples:
        return Samples((self.features[rows],), self.labels[rows], rows)
