"""Delimited text as rows of cells: encoding, delimiter, quotes, and the line of each row.

Python's `csv` splits the cells: unlike pyarrow's reader, it is strict about quotes and reports line numbers.
"""

import codecs
import csv
import io
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from regard.data.arrow import pa, pc, present
from regard.data.skipped import BadRow
from regard.errors import DataError

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
TABS = (".tsv", ".tab")
SAMPLE = 50  # rows used to detect the delimiter
MOSTLY = 2 / 3  # of them must have the first one's width
SCANNED = 1 << 16  # bytes examined for UTF-16
CELLS = 1_000_000  # held as Python strings at once
ENCODINGS = {"utf-8-sig": "", "cp1252": "not UTF-8, read as Latin-1 (Windows-1252)", "latin-1": "read as Latin-1"}
LIST_COMMA = re.compile(r"(?<!\d),|,(?!\d)")  # a comma not between digits
QUOTED = re.compile(r'(?:^|\t)"((?:[^"\t]|"")+)"(?=\t|\r?\n?$)')
DECIMAL = r"^[+-]?\d+(,\d+)?([eE][+-]?\d+)?$"
THOUSANDS = r"^[+-]?[1-9]\d{0,2},\d{3}$"
csv.field_size_limit(1 << 27)

Row = tuple[int, list[str]]  # its first line, and its cells


class Delimited:
    """The cells of a file's bytes: text columns, the line of each row, and notes on what was unusual in the file."""

    def __init__(self, path: Path, data: bytes, strict: bool = True):
        self.path, self.data, self.notes, self.strict = path, data, list[str](), strict
        self.bad: list[BadRow] = []  # rows that `read` could not use; empty if strict
        self.delimiter = ""  # set by `read`
        self.encoding = encoding_of(path, data)
        if note := ENCODINGS.get(self.encoding, f"read as {self.encoding[:6].upper()}"):
            self.notes.append(note)

    def lines(self) -> Iterable[str]:
        return io.TextIOWrapper(io.BytesIO(self.data), self.encoding, newline="")

    def rows(self, delimiter: str, quoted: bool) -> Iterator[Row]:
        """Non-blank rows."""
        quoting = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
        reader, line = csv.reader(self.lines(), delimiter=delimiter, quoting=quoting, strict=True), 1
        try:
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    yield line, cells
                line = reader.line_num + 1
        except csv.Error as e:
            raise DataError(f"{self.path} line {line}: not CSV ({e})") from None

    def split_rows(self) -> Iterator[Row]:
        """Rows split at white space."""
        return ((number, cells) for number, line in enumerate(self.lines(), 1) if (cells := line.split()))

    def read(self, tabs: bool) -> tuple[list[Any], Sequence[int]]:
        """The columns as text, including the header row, and the line of every row."""
        usual = "\t" if tabs else ","
        self.delimiter = delimiter = self.sniff(usual)
        if delimiter != usual:
            self.notes.append(f"columns separated by a {DELIMITERS[delimiter]}")
        if delimiter != "\t":
            return self.columns(self.rows(delimiter, quoted=True), delimiter)
        lenient, ways, errors = not self.strict, (True, False) if self.is_quoted() else (False, True), {}
        for self.strict in (True, False) if lenient else (True,):
            for quoted in ways:
                try:
                    return self.columns(self.rows(delimiter, quoted), delimiter)
                except DataError as e:  # rows may have equal width only if quotes do, or do not, count
                    errors[quoted] = e
        raise errors[False]

    def is_quoted(self) -> bool:
        """Whether quotes in a .tsv delimit cells: they enclose every cell of the first row, or doubled quotes.
        Otherwise they are ordinary characters."""
        lines = iter(self.lines())
        if all(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in next(lines, "").strip().split("\t")):
            return True
        return any('""' in cell[1] for line in lines if '""' in line for cell in QUOTED.finditer(line))

    def sniff(self, usual: str) -> str:
        """The delimiter that splits all, or failing that most, of the first rows into equally many cells; preferably
        the usual one for the file's suffix, unless all commas are within numbers."""
        widths: dict[str, list[int]] = {}
        for delimiter in DELIMITERS:
            try:
                sample = islice(self.rows(delimiter, quoted=delimiter != "\t"), SAMPLE)
                widths[delimiter] = [len(cells) for _, cells in sample]
            except DataError:
                continue
        even = [delimiter for delimiter, sizes in widths.items() if _like_the_first(sizes) == 1]
        if ";" in even and not any(LIST_COMMA.search(line) for line in islice(self.lines(), SAMPLE)):
            return ";"
        if even:
            return usual if usual in even else max(even, key=lambda d: min(widths[d]))
        if near := {d: share for d, sizes in widths.items() if (share := _like_the_first(sizes)) > MOSTLY}:
            return usual if usual in near else max(near, key=near.__getitem__)
        first = next(iter(self.lines()), "")
        return usual if usual in first else max((usual, *DELIMITERS), key=first.count)

    def columns(self, rows: Iterator[Row], delimiter: str = " ") -> tuple[list[Any], Sequence[int]]:
        """The columns of rows as wide as the first; the others go to `bad`, or are an error if strict."""
        lines, chunks, width, size = array("q"), [], 0, 1
        self.bad = []
        while some := list(islice(rows, size)):
            width = width or len(some[0][1])
            size = max(1, CELLS // width)
            bad = [
                BadRow(line, self.ragged(len(cells), width, delimiter), 1 + sum(cell.count("\n") for cell in cells))
                for line, cells in some
                if len(cells) != width
            ]
            if bad and self.strict:
                raise DataError(f"{self.path} line {bad[0].line}: {bad[0].reason}")
            if bad:
                self.bad += bad
                some = [row for row in some if len(row[1]) == width]
            if not some:
                continue
            lines.extend(line for line, _ in some)
            cells = zip(*(cells for _, cells in some), strict=True)
            chunks.append([pa.array(column, pa.large_string()) for column in cells])
        if not chunks:
            raise DataError(f"{self.path} is empty; expected rows of a table")
        return [pa.chunked_array(column) for column in zip(*chunks, strict=True)], lines

    def ragged(self, count: int, width: int, delimiter: str) -> str:
        quotes = f" (a text with a {DELIMITERS[delimiter]} needs quotes)" if delimiter in (",", ";", "|") else ""
        between = f", separated by a {DELIMITERS[delimiter]}{quotes}" if delimiter in DELIMITERS else ""
        return f"{count} columns, expected {width} as in the first row{between}"


def _like_the_first(widths: list[int]) -> float:
    """The share of rows as wide as the first; 0 if that is a single cell."""
    return widths.count(widths[0]) / len(widths) if widths and widths[0] > 1 else 0.0


def with_points(columns: list[Any], notes: list[str]) -> list[Any]:
    """The columns with decimal commas replaced by points, which is noted."""
    points = _decimal_commas(columns)
    if any(points):
        notes.append("decimals written with a comma")
    return [pc.replace_substring(c, ",", ".") if comma else c for c, comma in zip(columns, points, strict=True)]


def _decimal_commas(columns: list[Any]) -> list[bool]:
    """Which columns hold numbers like 3,5; none if all may be thousands, like 1,234."""
    cells = [present(column).drop_null() for column in columns]
    comma = [
        bool(pc.any(pc.match_substring(c, ",")).as_py()) and pc.all(pc.match_substring_regex(c, DECIMAL)).as_py()
        for c in cells
    ]
    decimals = (c.filter(pc.match_substring(c, ",")) for c, has in zip(cells, comma, strict=True) if has)
    sure = any(not pc.all(pc.match_substring_regex(c, THOUSANDS)).as_py() for c in decimals)
    return [has and sure for has in comma]


def encoding_of(path: Path, data: bytes) -> str:
    """The encoding, by the byte order mark, by zeros (UTF-16), or else UTF-8 if valid, or Latin-1."""
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        names = ["utf-32"]
    elif data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        names = ["utf-16"]
    elif b"\0" in data:
        names = _unmarked_utf16(data)
    else:
        names = list(ENCODINGS)
    for name in names:
        try:
            data.decode(name)
        except UnicodeDecodeError:
            continue
        return name
    if names and data[0] in b"\xff\xfe\0":
        raise DataError(f"{path} is damaged {names[0][:6].upper()}; write it again as UTF-8")
    expected = "CSV, TSV, JSON or JSONL, or a name that ends in .parquet or .arrow"
    raise DataError(f"{path} is not text; expected {expected}")


def _unmarked_utf16(data: bytes) -> list[str]:
    """The byte order, if any, in which most characters are ASCII and none is zero."""
    even, odd = data[:SCANNED:2], data[1:SCANNED:2]
    for name, high, low in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        if not len(data) % 2 and high.count(0) > len(high) / 2 and not low.count(0):
            return [name]
    return []
