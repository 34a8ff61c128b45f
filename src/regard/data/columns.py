"""Tables of numbers by column: CSV, TSV, Parquet, NPZ; times as numbers or dates."""

import csv
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.examples import semicolons
from regard.data.pairs import read_lines
from regard.errors import DataError, MissingExtra

Columns = dict[str, np.ndarray]
TABS = (".tsv", ".tab", ".txt")
MISSING = ("", "na", "n/a", "nan", "null", "none", "-", "?")
DATES = ("%m/%d/%Y", "%m/%d/%y", "%d.%m.%Y", "%Y%m%d", "%m/%d/%Y %H:%M", "%d.%m.%Y %H:%M")
DAY = 86_400.0
LARGEST = 1e18  # of a number that is of use: the square of one much larger is infinite in 32 bits


def ending(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def read_columns(path: Path) -> Columns:
    """Every column by its name, as the file has it; without a header they are called 1, 2 and so on."""
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    kind = ending(path)
    if kind == ".npz":
        return _arrays(path)
    if kind in (".parquet", ".pq"):
        return _parquet(path)
    return read_cells(path, list(read_lines(path)))


def read_cells(path: Path, lines: Sequence[str]) -> Columns:
    """The columns of a CSV or TSV file, given its lines. Its first line is a header if half of it are words."""
    tabs = ending(path) in TABS
    if tabs and lines and "\t" not in lines[0]:
        rows = [line.split() for line in lines if line.strip()]
    else:
        rows = [row for row in csv.reader(lines, delimiter="\t" if tabs else ",") if any(cell.strip() for cell in row)]
    if not rows:
        raise DataError(f"{path} is empty; wanted rows of numbers")
    width = len(rows[0])
    if wrong := semicolons(rows[0]):
        raise DataError(f"{path}: one column, {rows[0][0][:40]!r}{wrong}")
    for number, row in enumerate(rows, 1):
        if len(row) != width:
            raise DataError(f"{path} row {number}: {len(row)} columns, wanted {width} as in the first row")
    first = [cell.strip() for cell in rows[0]]
    header = 2 * sum(not is_number(cell) and not _is_date(cell) for cell in first) >= width
    names = first if header else [str(i + 1) for i in range(width)]
    if len(set(names)) < width:
        raise DataError(f"{path}: two columns have the same name; there are: {', '.join(names)}")
    body = rows[1:] if header else rows
    if not body:
        raise DataError(f"{path} holds a header and no rows")
    return {name: np.array(cells) for name, cells in zip(names, zip(*body, strict=True), strict=True)}


def _arrays(path: Path) -> Columns:
    try:
        with np.load(path, allow_pickle=False) as box:
            return {name: box[name] for name in box.files}
    except (OSError, ValueError) as e:
        raise DataError(f"{path} cannot be read as NPZ ({e})") from None


def _parquet(path: Path) -> Columns:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise MissingExtra("a Parquet file", "data") from None
    try:
        table = parquet.read_table(path)
    except (ArrowException, OSError) as e:
        raise DataError(f"{path} cannot be read as Parquet ({e})") from None
    return {name: np.asarray(table.column(name).to_numpy()) for name in table.column_names}


def place(columns: Columns, path: Path, asked: str, usual: Sequence[str], what: str, needed: bool = True) -> str:
    """The name of the column that is meant: the one asked for, else one with a usual name; "" where there is none."""
    lower = {name.lower(): name for name in columns}
    if asked:
        if asked.lower() not in lower:
            raise DataError(f"{path} has no column {asked!r}; there are: {', '.join(columns)}")
        return lower[asked.lower()]
    found = next((lower[name] for name in usual if name in lower), "")
    if needed and not found:
        way = "--label NAME" if what == "label" else f"--set data.{what}=NAME"
        there = ", ".join(columns)
        raise DataError(
            f"{path}: which column is the {what}? there are: {there}; call it {what!r}, or train with {way}"
        )
    return found


def numbers(cells: np.ndarray, where: str) -> np.ndarray:
    """Cells as float64; what is missing is NaN. A word where a number should be is an error that names its row."""
    if cells.dtype.kind in "fiub":
        return cells.astype(np.float64)
    try:
        return cells.astype(np.float64)
    except (ValueError, TypeError):
        return np.array([_number(cell, where, row) for row, cell in enumerate(cells.tolist(), 1)])


def usable(numbers: np.ndarray) -> np.ndarray:
    """Which of them are finite, and will be when they are squared."""
    return np.abs(numbers) <= LARGEST


def is_dated(cells: np.ndarray) -> bool:
    """Whether these times are dates."""
    return cells.dtype.kind == "M" or (cells.dtype.kind not in "fiub" and any(_is_date(str(c)) for c in cells[:100]))


def moments_of(cells: np.ndarray, where: str) -> np.ndarray:
    """Times as float64: numbers as they are, dates in days since 1970."""
    if cells.dtype.kind == "M":
        return cells.astype("datetime64[us]").astype(np.int64) / (1e6 * DAY)
    if not is_dated(cells):
        return numbers(cells, where)
    texts = cells.tolist()
    found = [_date(str(cell)) for cell in texts]
    for row, (cell, date) in enumerate(zip(texts, found, strict=True), 1):
        if date is None and str(cell).strip().lower() not in MISSING:
            raise DataError(f"{where}, row {row}: {cell!r} is no date")
    return np.array([np.nan if date is None else date for date in found])


def words(cells: np.ndarray) -> list[str]:
    """Cells as names: 15.0 and 15 are the same one."""
    if cells.dtype.kind == "f" and np.isfinite(cells).all() and (cells == np.round(cells)).all():
        cells = cells.astype(np.int64)
    return [str(cell).strip() for cell in cells.tolist()]


def _number(cell: Any, where: str, row: int) -> float:
    text = "" if cell is None else str(cell).strip()
    if text.lower() in MISSING:
        return np.nan
    try:
        return float(text)
    except ValueError:
        raise DataError(f"{where}, row {row}: {text[:40]!r} is no number") from None


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_date(text: str) -> bool:
    return not is_number(text) and _date(text) is not None


def _date(text: str) -> float | None:
    """Days since 1970, of a date in one of the usual forms; without a zone, it is taken as UTC."""
    text = text.strip()
    tries = [lambda: datetime.fromisoformat(text.replace("/", "-"))]
    tries += [lambda form=form: datetime.strptime(text, form) for form in DATES]
    for attempt in tries:
        try:
            found = attempt()
        except ValueError:
            continue
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() / DAY
    return None
