"""The table reader: CSV, TSV, JSON, JSONL, Excel, Parquet, Arrow and NPZ, plain or compressed.

The cells of a text file stay text, so that the id 007 and the label 1.0 are preserved; numbers and times are
converted on request.
"""

import json
import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from regard import limits
from regard.data.arrays import read_arrays
from regard.data.arrow import as_text, float64, is_text, is_time, pa, pc, present
from regard.data.cells import DAY, decimal_mark, is_date, is_missing, notation, to_days, to_number
from regard.data.columnar import ARROW, PARQUET, read_columnar
from regard.data.delimited import TABS, Delimited, with_points
from regard.data.files import AUDIO, IMAGES, ending, open_bytes
from regard.data.folders import Say, to_stderr
from regard.data.json_rows import read_objects
from regard.data.skipped import HAS_LABEL, BadRow, Check, date_fault, has, number_fault, report
from regard.data.spreadsheet import EXCEL, read_sheet
from regard.errors import DataError

TEXTS = ("text", "sentence", "review", "sentence1", "text1", "premise", "question1", "first", "content", "comment")
SECONDS = ("sentence2", "text2", "hypothesis", "question2", "second")
LABELS = ("label", "labels", "sentiment", "class", "category", "target", "tag", "polarity", "gold_label")
LONGEST = 1_000  # characters of a name
LISTED = 20  # columns listed in a message
COPIES = 4  # of a file's bytes that reading may need
ENDINGS = (".csv", *TABS, ".json", ".jsonl", *EXCEL, *PARQUET, *ARROW)  # suffixes of files that are always tables
OPTIONS = ("text", "second", "label")  # columns with a command-line option


# A table


@dataclass(frozen=True, eq=False)
class DataTable:
    """Columns by name; without a header they are called 1, 2 and so on. `lines` are the first lines of the rows in the
    file, or the rows' numbers if a file has no lines."""

    path: Path
    data: Any  # a pyarrow table
    lines: Sequence[int]
    unit: str = "line"
    skipped: Sequence[BadRow] = ()  # not among the rows; `usable` reports them

    @cached_property
    def columns(self) -> list[str]:
        return self.data.column_names

    @cached_property
    def lower(self) -> dict[str, str]:
        """Columns by lower-case name; of two that differ only in case, the first."""
        return {name.lower(): name for name in reversed(self.columns)}

    def listed(self) -> str:
        """The column names for a message, the first of many."""
        more = len(self.columns) - LISTED
        return ", ".join(self.columns[:LISTED]) + (f" and {more:,} more" if more > 0 else "")

    def __len__(self) -> int:
        return self.data.num_rows

    def where(self, row: int) -> str:
        return f"{self.path} {self.unit} {self.lines[row]}"

    def find(
        self, asked: str, usual: Sequence[str], what: str, otherwise: int | None = None, needed: bool = True
    ) -> str:
        """The column `asked` by name or number, otherwise one with a usual name, otherwise number `otherwise`; "" if
        there is none and none is needed."""
        if asked:
            if asked.lower() in self.lower:
                return asked if asked in self.columns else self.lower[asked.lower()]
            if asked.isdecimal() and 1 <= int(asked) <= len(self.columns):
                return self.columns[int(asked) - 1]
            raise DataError(f"{self.path} has no column {asked!r}; there are: {self.listed()}")
        if name := next((self.lower[name] for name in usual if name in self.lower), ""):
            return name
        if otherwise is not None and otherwise < len(self.columns):
            return self.columns[otherwise]
        if not needed:
            return ""
        way = f"type --{what} NAME" if what in OPTIONS else f"train with --set data.{what}=NAME"
        raise DataError(
            f"{self.path}: which column is the {what}? there are: {self.listed()}; call it {what!r}, or {way}"
        )

    def text(self, name: str) -> list[str]:
        """The cells as text; "" if empty."""
        return ["" if cell is None else cell for cell in as_text(self.data.column(name)).to_pylist()]

    def names(self, name: str) -> list[str]:
        """The cells as names: stripped text, of limited length."""
        names = [cell.strip() for cell in self.text(name)]
        if len(longest := max(names, key=len, default="")) > LONGEST:
            raise DataError(
                f"{self.where(names.index(longest))}, column {name!r}: {len(longest):,} characters, expected a name of "
                f"at most {LONGEST:,}"
            )
        return names

    def labels(self, name: str) -> list[str]:
        """The cells, stripped. (`none` or `?` may be a class.)"""
        return [cell.strip() for cell in self.text(name)]

    def faults(self, checks: Mapping[str, Check]) -> dict[int, BadRow]:
        """The rows with a cell that fails the check of its column, by index."""
        bad: dict[int, BadRow] = {}
        for name, check in checks.items():
            if check is number_fault and self.is_numeric(name):
                continue
            for row, cell in enumerate(self.text(name)):
                if row not in bad and (reason := check(cell)):
                    bad[row] = BadRow(self.lines[row], f"{reason} (column {name!r})")
        return bad

    def usable(self, checks: Mapping[str, Check], strict: bool = False, say: Say = to_stderr) -> "DataTable":
        """The rows whose cells pass the checks of their columns; others, and malformed rows, are reported."""
        bad = self.faults(checks)
        report(self.path, [*self.skipped, *bad.values()], len(self) - len(bad), strict, say, self.unit)
        if not bad:
            return replace(self, skipped=())
        rows = [row for row in range(len(self)) if row not in bad]
        return replace(self, data=self.data.take(rows), lines=[self.lines[row] for row in rows], skipped=())

    def with_gaps(self, checks: Mapping[str, Check], say: Say) -> Iterator[tuple[dict[str, str], bool]]:
        """The cells of every row of the file by column, and whether it can be used; those of a malformed row are empty.
        Unusable rows are reported."""
        bad, silent = self.faults(checks), "no answer for"
        report(self.path, self.skipped, len(self), False, say, self.unit, done=silent)
        report(self.path, list(bad.values()), len(self) - len(bad), False, say, self.unit, done=silent, limit=1)
        broken, gap = deque(sorted(row.line for row in self.skipped)), dict.fromkeys(self.columns, "")
        for row, cells in enumerate(self.rows()):
            while broken and broken[0] < self.lines[row]:
                broken.popleft()
                yield gap, False
            yield dict(zip(self.columns, cells, strict=True)), row not in bad
        yield from ((gap, False) for _ in broken)

    def labelled(
        self, usual: Sequence[str], what: str, label: str, check: Check = HAS_LABEL, strict: bool = False
    ) -> list[tuple[str, str, str]]:
        """The names in a column, each with its label and its location; rows without a name, or whose label fails the
        `check`, are skipped."""
        column, labels = self.find("", usual, what, 0), self.find(label, LABELS, "label", len(self.columns) - 1)
        if column == labels:
            raise DataError(f"{self.path}: {what} and label are different columns; there are: {self.listed()}")
        rows = self.usable({column: has(what), labels: check}, strict)
        places = map(rows.where, range(len(rows)))
        return list(zip(rows.names(column), rows.labels(labels), places, strict=True))

    def rows(self) -> Iterator[list[str]]:
        """The cells of each row as text."""
        return (list(cells) for cells in zip(*map(self.text, self.columns), strict=True))

    def is_numeric(self, name: str) -> bool:
        """Whether every cell is a plain number or missing."""
        try:
            present(self.data.column(name)).cast(pa.float64(), safe=False)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            return False
        return True

    def numbers(self, name: str) -> np.ndarray:
        """The cells as float64, NaN if missing; `DataError` for other cells that are not numbers."""
        cells = present(self.data.column(name))
        try:
            return float64(cells.cast(pa.float64(), safe=False))
        except pa.ArrowNotImplementedError:
            raise DataError(f"{self.path}: the column {name!r} holds {cells.type}, expected numbers") from None
        except pa.ArrowInvalid:
            mark = self.mark(name)
            return np.array([self._number(row, name, cell, mark) for row, cell in enumerate(self.text(name))])

    def mark(self, name: str) -> str:
        """The decimal mark of a column of numbers, which may hold a few words."""
        return "." if self.is_numeric(name) else decimal_mark(self.text(name), words=1.0) or "."

    def number_check(self, name: str) -> Check:
        """The check of a column of numbers."""
        return number_fault if (mark := self.mark(name)) == "." else partial(number_fault, mark=mark)

    def notation(self, name: str) -> str:
        """A description of how a column's numbers are written: percentages, thousands separators; "" if plain."""
        return "" if self.is_numeric(name) else notation(self.text(name), self.mark(name))

    def with_plain(self, name: str) -> "DataTable":
        """The table with the numbers of a column in plain notation; other cells are unchanged."""
        if not self.notation(name):
            return self
        check, mark = self.number_check(name), self.mark(name)
        cells = [c if is_missing(c) or check(c) else repr(to_number(c, mark)) for c in self.text(name)]
        column = pa.array(cells, pa.large_string())
        return replace(self, data=self.data.set_column(self.columns.index(name), name, column))

    def _number(self, row: int, name: str, cell: str, mark: str) -> float:
        try:
            return to_number(cell, mark)
        except ValueError:
            raise DataError(f"{self.where(row)}, column {name!r}: {cell.strip()[:40]!r} is not a number") from None

    def time_check(self, name: str) -> Check:
        """The check of a column of times."""
        return date_fault if self.is_dated(name) else number_fault

    def is_dated(self, name: str) -> bool:
        """Whether these times are dates."""
        column = self.data.column(name)
        return is_time(column.type) or (
            is_text(column.type) and any(is_date(c or "") for c in column[:100].to_pylist())
        )

    def moments(self, name: str) -> np.ndarray:
        """Times as float64: numbers unchanged, dates in days since 1970."""
        if not self.is_dated(name):
            return self.numbers(name)
        cells = present(self.data.column(name))
        for zone in (None, "UTC"):
            try:
                times = cells.cast(pa.timestamp("us", zone), safe=False)
                return float64(times.cast(pa.int64()).cast(pa.float64(), safe=False)) / (1e6 * DAY)
            except pa.ArrowInvalid:
                continue
        days = [math.nan if is_missing(cell) else to_days(cell) for cell in self.text(name)]
        if None in days:
            row = days.index(None)
            raise DataError(f"{self.where(row)}, column {name!r}: {self.text(name)[row]!r} is not a date")
        return np.array(days, np.float64)


# Reading


def is_table(path: str | Path) -> bool:
    """Whether a file is a table, by its name."""
    return ending(path) in ENDINGS


def is_delimited(path: str | Path) -> bool:
    """Whether a file is a table whose first line may or may not be a header."""
    return ending(path) in (".csv", *TABS)


def read_table(
    path: Path, asked: Sequence[str] = (), spaces: bool = False, say: Say = to_stderr, strict: bool = True
) -> DataTable:
    """The table in a file. `asked` are columns requested by name, which implies a header.

    Every line of a .txt is a text; with `spaces` it is a table separated by tabs or white space. Malformed rows are an
    error if `strict`, otherwise in the table's `skipped`.
    """
    return parse_table(Path(path), read_data(Path(path)), asked, spaces, say, strict)


def read_data(path: Path) -> bytes:
    """The bytes of a table's file, decompressed."""
    with open_bytes(path, "a table") as file:
        return limits.read_limited(file, limits.budget() // COPIES, str(path), "split it into several files")


def parse_table(
    path: Path, data: bytes, asked: Sequence[str] = (), spaces: bool = False, say: Say = to_stderr, strict: bool = True
) -> DataTable:
    """The table in the bytes of a file called `path`."""
    named = any(name and not name.isdecimal() for name in asked)  # implies a header
    if ending(path) in (*PARQUET, *ARROW):
        table = _from_arrow(path, read_columnar(path, data))
    elif ending(path) == ".npz":
        table = table_of_arrays(path, read_arrays(path, data))
    elif ending(path) in EXCEL:
        names, columns, lines = _header(*read_sheet(path, data, say), named)
        table = DataTable(path, pa.table(columns, names=_unique(path, names)), lines, "row")
    else:
        text = Delimited(path, data, strict)
        if ending(path) in (".json", ".jsonl"):
            table = _from_json(path, text)
        elif ending(path) == ".txt" and not spaces:
            lines = [line.rstrip("\r\n") for line in text.lines()]
            table = _table(path, {"text": lines}, range(1, len(lines) + 1))
        else:
            table = _from_cells(text, named, spaces)
        if text.notes:
            say(f"{path}: {', '.join(text.notes)}")
        table = replace(table, skipped=text.bad)
    if not len(table):
        report(path, table.skipped, 0, strict, say)
        raise DataError(f"{path} has no rows")
    return table


def _from_cells(text: Delimited, named: bool, spaces: bool) -> DataTable:
    split = spaces and ending(text.path) == ".txt" and "\t" not in next(iter(text.lines()), "")
    columns, lines = text.columns(text.split_rows()) if split else text.read(ending(text.path) in (*TABS, ".txt"))
    names, columns, lines = _header(columns, lines, named, text.delimiter == ";")
    if text.delimiter == ";":
        columns = with_points(columns, text.notes)
    return DataTable(text.path, pa.table(columns, names=_unique(text.path, names)), lines)


def _header(
    columns: list[Any], lines: Sequence[int], named: bool, commas: bool = False
) -> tuple[list[str], list[Any], Sequence[int]]:
    """The names of the columns, their cells and the lines of those; with `commas`, commas may be decimal marks."""
    first = [column[0].as_py().strip() for column in columns]
    if named or _is_header([c.replace(",", ".") for c in first] if commas else first, columns[-1]):
        return [name or str(i + 1) for i, name in enumerate(first)], [c.slice(1) for c in columns], lines[1:]
    return [str(i + 1) for i in range(len(first))], columns, lines


def _is_header(first: list[str], last: Any) -> bool:
    """Whether the first row names the columns: it holds a usual name; or it holds no file name, its last cell, unlike a
    label, never occurs again, and at least half of its cells are words."""
    if {cell.lower() for cell in first} & {*TEXTS, *SECONDS, *LABELS}:
        return True
    if any(cell.lower().endswith((*AUDIO, *IMAGES)) for cell in first):
        return False
    below = pc.utf8_trim_whitespace(last.slice(1))
    if not len(below) or pc.any(pc.equal(below, first[-1])).as_py():
        return False
    return 2 * sum(decimal_mark([cell]) is None and not is_date(cell) for cell in first) >= len(first)


def _unique(path: Path, names: list[str]) -> list[str]:
    name, count = max(Counter(names).items(), key=lambda item: item[1], default=("", 0))
    if count > 1:
        raise DataError(f"{path}: two columns have the same name, {name!r}; there are: {', '.join(names)}")
    return names


def _from_json(path: Path, text: Delimited) -> DataTable:
    rows = read_objects(path, text, flat=True)
    columns: dict[str, None] = {}
    for _, row in rows:
        columns |= dict.fromkeys(row)
    limits.require(8 * len(rows) * len(columns), f"{path}: a table of {len(rows):,} rows and {len(columns):,} columns")
    cells = {name: [_plain(row.get(name)) for _, row in rows] for name in columns}
    return _table(path, cells, [number for number, _ in rows])


def _plain(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _table(path: Path, cells: dict[str, list[str]], lines: Sequence[int]) -> DataTable:
    try:
        columns = {name: pa.array(column, pa.large_string()) for name, column in cells.items()}
    except UnicodeEncodeError:
        raise DataError(f"{path} holds half of a surrogate pair; write the file again as UTF-8") from None
    return DataTable(path, pa.table(columns), lines)


def _from_arrow(path: Path, data: Any) -> DataTable:
    names = [name for name in data.column_names if not name.startswith("__index_level_")]  # pandas' own
    _unique(path, names)
    columns = {name: data.column(name) for name in names}
    plain = {n: c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for n, c in columns.items()}
    return DataTable(path, pa.table(plain), range(1, data.num_rows + 1), "row")


def table_of_arrays(path: Path, arrays: dict[str, np.ndarray]) -> DataTable:
    """A column for each array."""
    if len({array.shape for array in arrays.values()}) > 1 or any(array.ndim != 1 for array in arrays.values()):
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise DataError(f"{path}: its columns have different lengths; expected a row for each point, got {shapes}")
    columns = {name: pa.array(x.tolist() if x.dtype.kind in "US" else x) for name, x in arrays.items()}
    return _from_arrow(path, pa.table(columns))
