"""What a file or folder holds, judged by its names and first rows, for `regard start`."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from regard.data.cells import decimal_mark, is_date, is_missing, is_number
from regard.data.files import AUDIO, IMAGES, ending
from regard.data.folders import Say
from regard.data.records import KEYS, is_records, objects
from regard.data.tables import LABELS, DataTable, is_table, read_table
from regard.errors import DataError

ROWS = 1_000  # of a table that are examined
FILES = 10_000  # of a folder
CLASSES = 50  # distinct values of a column of classes, at most
DIGITS = 10  # the same if the values are integers
WORDS = 3  # in a cell of text, on average, at least
TEXTS = (".txt", ".md")
LISTED = 4  # values listed in a reason


@dataclass(frozen=True)
class ColumnContents:
    """A column and what its cells hold: files, dates, ids, numbers, sets (a|b), classes, texts, conversations, or
    other words."""

    name: str
    holds: str
    values: tuple[str, ...]  # distinct, most frequent first

    def __str__(self) -> str:
        more = f", … {len(self.values)} in all" if len(self.values) > LISTED else ""
        return f"{self.name!r} ({', '.join(self.values[:LISTED])}{more})"


@dataclass(frozen=True)
class Contents:
    """A file or folder: the columns of a table; the number of files by suffix in a folder, and the names of its
    non-empty subfolders."""

    path: Path
    columns: tuple[ColumnContents, ...] = ()
    rows: int = 0  # of the table
    endings: Counter[str] = field(default_factory=Counter)
    folders: tuple[str, ...] = ()

    def holding(self, *holds: str) -> list[ColumnContents]:
        """The columns that hold one of these, in order."""
        return [column for column in self.columns if column.holds in holds]

    def labels(self) -> list[ColumnContents]:
        """The columns of classes, first one with a usual name, or else the last."""
        columns = self.holding("classes")
        columns.reverse()
        return sorted(columns, key=lambda column: column.name.lower() not in LABELS)

    def numbers(self) -> list[ColumnContents]:
        """The columns of numbers, even if they have few distinct values."""
        return [c for c in self.holding("numbers", "classes") if decimal_mark(c.values) is not None]

    def named(self, names: tuple[str, ...]) -> ColumnContents | None:
        """The first column with one of these names, ignoring case."""
        return next((column for column in self.columns if column.name.lower() in names), None)

    def count(self, endings: tuple[str, ...]) -> int:
        """The number of files with these suffixes."""
        return sum(self.endings[ending] for ending in endings)

    def mostly(self, endings: tuple[str, ...]) -> bool:
        """Whether more than half of the files have one of these suffixes."""
        return self.count(endings) > sum(self.endings.values()) / 2

    @property
    def prose(self) -> bool:
        """Whether there are texts to read, and not just notes in a folder of images or recordings."""
        return self.count(TEXTS) > 0 and not self.mostly(IMAGES) and not self.mostly(AUDIO)


def look(path: Path, say: Say) -> Contents:
    """The contents of `path`; of a table, only the beginning is examined."""
    if not path.exists():
        raise DataError(f"no file or folder {path}; check the name")
    if path.is_dir():
        files = list(islice((p for p in path.rglob("*") if p.is_file() and not p.name.startswith(".")), FILES))
        folders = {file.relative_to(path).parts[0] for file in files if file.parent != path}
        return Contents(path, endings=Counter(map(ending, files)), folders=tuple(sorted(folders)))
    if not is_table(path):
        return Contents(path, endings=Counter([ending(path)]))
    if conversations := _conversations(path):
        return Contents(path, (ColumnContents(conversations, "conversations", ()),), endings=Counter([ending(path)]))
    table = read_table(path, say=say, strict=False)
    columns = tuple(describe(table, name) for name in table.columns)
    return Contents(path, columns, len(table), Counter([ending(path)]))


def _conversations(path: Path) -> str:
    """The key of the conversations in a file of records, "" if it holds none; these are not cells of a table."""
    _, first = next(objects(path), (0, None)) if is_records(path) else (0, None)
    return next((key for key in KEYS if isinstance(first, dict) and isinstance(first.get(key), list)), "")


def describe(table: DataTable, name: str) -> ColumnContents:
    """A column and what its first cells hold."""
    cells = [cell.strip() for cell in table.text(name)[:ROWS]]
    cells = [cell for cell in cells if not is_missing(cell)]
    values = tuple(value for value, _ in Counter(cells).most_common())
    return ColumnContents(name, _holds(cells, values), values)


def _holds(cells: list[str], values: tuple[str, ...]) -> str:
    def most(test: Any) -> bool:
        return sum(map(test, cells)) > 0.9 * len(cells)

    if not cells:
        return "nothing"
    if most(lambda cell: ending(cell) in (*IMAGES, *AUDIO)):
        return "files"
    few = 1 < len(values) <= min(CLASSES, max(2, len(cells) // 2))
    if most(is_number):
        whole = all(value.removeprefix("-").isdecimal() for value in values)
        if whole and len(values) == len(cells) > 2 and int(values[-1]) - int(values[0]) == len(cells) - 1:
            return "ids"
        return "classes" if whole and few and len(values) <= DIGITS else "numbers"
    if most(is_date):
        return "dates"
    if decimal_mark(cells, words=0.1) is not None:  # €1,200 or 12,5 %
        return "numbers"
    if sum("|" in cell for cell in cells) > len(cells) / 10:
        return "sets"
    if few:
        return "classes"
    return "texts" if sum(len(cell.split()) for cell in cells) >= WORDS * len(cells) else "words"
