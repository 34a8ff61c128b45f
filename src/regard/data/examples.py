"""Labelled text as people keep it: CSV, TSV and JSONL tables, and CoNLL files of words and tags."""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.documents import is_jsonl
from regard.data.pairs import read_lines
from regard.errors import DataError

TEXTS = ("text", "sentence", "review", "sentence1", "text1", "premise", "question1", "first", "content", "comment")
SECONDS = ("sentence2", "text2", "hypothesis", "question2", "second")
LABELS = ("label", "labels", "sentiment", "class", "category", "target", "tag", "polarity", "gold_label")
WORDS, TAGS = ("tokens", "words"), ("tags", "ner_tags", "upos", "labels", "label")
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
TABS = (".tsv", ".tab")
csv.field_size_limit(1 << 27)


@dataclass(frozen=True)
class Example:
    """A text, or two, and its class; "" where it is not known. `line` is where it stands in its file."""

    text: str
    second: str | None = None
    label: str = ""
    line: int = 0


@dataclass(frozen=True)
class Tagged:
    """The words of a sentence and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    line: int = 0


@dataclass(frozen=True)
class Table:
    """Rows by column, each with its line number. Without a header the columns are called 1, 2 and so on."""

    path: Path
    columns: list[str]
    rows: list[tuple[int, list[str]]]

    def place(self, asked: str, usual: Sequence[str], what: str, otherwise: int | None) -> int:
        """Which column is meant: the one asked for by name or number, else one with a usual name, else `otherwise`."""
        lower = [name.lower() for name in self.columns]
        there = ", ".join(self.columns)
        if asked:
            if asked in self.columns:
                return self.columns.index(asked)
            if asked.lower() in lower:
                return lower.index(asked.lower())
            if asked.isdigit() and 1 <= int(asked) <= len(self.columns):
                return int(asked) - 1
            raise DataError(f"{self.path} has no column {asked!r}; there are: {there}")
        for name in usual:
            if name in lower:
                return lower.index(name)
        if otherwise is None or otherwise >= len(self.columns):
            raise DataError(f"{self.path}: which column is the {what}? there are: {there}; type --{what} NAME")
        return otherwise


def read_table(path: Path, named: Sequence[str] = ()) -> Table:
    """A CSV, TSV or JSONL file, .gz too. `named` are columns somebody asked for, which tell a header from a row.

    A first line is a header if it holds a column asked for or a usual name, or if its last cell, unlike a label, never
    comes again. Of a .txt every line is a text.
    """
    path = Path(path)
    if is_jsonl(path):
        return _objects(path)
    ending = Path(path.name.removesuffix(".gz")).suffix.lower()
    if ending == ".txt":
        return Table(path, ["text"], [(number, [line]) for number, line in enumerate(read_lines(path), 1)])
    rows = list(_cells(path, tabs=ending in TABS))
    if not rows:
        raise DataError(f"{path} is empty; wanted rows of text and label")
    width = len(rows[0][1])
    for number, cells in rows:
        if len(cells) != width:
            what = "tab" if ending in TABS else "comma (a text with commas wants quotes)" + semicolons(rows[0][1])
            raise DataError(f"{path} line {number}: {len(cells)} columns, wanted {width}, separated by a {what}")
    first = [cell.strip() for cell in rows[0][1]]
    if _is_header(first, [cells[-1].strip() for _, cells in rows[1:]], named):
        return Table(path, first, rows[1:])
    return Table(path, [str(i + 1) for i in range(width)], rows)


def semicolons(first: list[str]) -> str:
    """What to do about the CSV of a spreadsheet that writes decimals with a comma."""
    return "; these look like semicolons: save it with commas" if len(first) == 1 and ";" in first[0] else ""


def _is_header(first: list[str], rest: list[str], named: Sequence[str]) -> bool:
    lower = {cell.lower() for cell in first}
    names = {name.lower() for name in named if name and not name.isdigit()}
    if names:
        return True  # who names columns has a header; a name that is not in it is told as missing
    return bool(lower & {*TEXTS, *SECONDS, *LABELS}) or (bool(rest) and first[-1] not in set(rest))


def _cells(path: Path, tabs: bool) -> Iterator[tuple[int, list[str]]]:
    lines = (line + "\n" for line in read_lines(path))
    how: Any = dict(delimiter="\t", quoting=csv.QUOTE_NONE) if tabs else dict(strict=True)
    reader = csv.reader(lines, **how)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, cells
    except csv.Error as e:
        raise DataError(f"{path} line {reader.line_num}: not CSV ({e})") from None


def _objects(path: Path) -> Table:
    columns: dict[str, None] = {}
    found: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            found.append((number, _object(path, number, line)))
            columns |= dict.fromkeys(found[-1][1])
    rows = [(number, [_plain(row.get(name)) for name in columns]) for number, row in found]
    return Table(path, list(columns), rows)


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as e:
        raise DataError(f"{path} line {number}: not JSON ({e})") from None
    if not isinstance(row, dict):
        raise DataError(f"{path} line {number}: wanted an object, as in {{'text': …, 'label': …}}, got {line[:40]!r}")
    return row


def _plain(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def read_examples(
    path: Path, text: str = "", second: str = "", label: str = "", pairs: bool = False, labelled: bool = True
) -> list[Example]:
    """The rows of a table; `labelled` wants a label in each."""
    table = read_table(path, (text, second, label))
    column, other, given = places(table, text, second, label, pairs, labelled)
    examples = []
    for number, cells in table.rows:
        name = cells[given].strip() if given is not None else ""
        if labelled and not name:
            raise DataError(f"{path} line {number}: no label; fill in the column {table.columns[given or 0]!r}")
        examples.append(Example(cells[column], None if other is None else cells[other], name, number))
    return examples


def places(
    table: Table, text: str, second: str, label: str, pairs: bool, labelled: bool
) -> tuple[int, int | None, int | None]:
    """The columns of text, second text and label; None where there is none."""
    width = len(table.columns)
    if width < 1 + pairs + labelled:
        wanted = f"text{', second text' * pairs}{' and label' * labelled}"
        raise DataError(
            f"{table.path}: {width} column{'s' * (width > 1)}, wanted {1 + pairs + labelled}: {wanted}, "
            f"separated by commas, or in a .tsv by tabs{semicolons(table.columns)}"
        )
    if (hint := semicolons(table.columns)) and " " not in table.columns[0]:  # names, not a sentence
        raise DataError(f"{table.path}: one column, {table.columns[0][:40]!r}{hint}")
    few = width <= 2 + pairs or all(name.isdigit() for name in table.columns)  # then order tells, where names do not
    column = table.place(text, TEXTS, "text", 0 if few else None)
    other = table.place(second, SECONDS, "second", 1 if few else None) if pairs else None
    given = table.place(label, LABELS, "label", width - 1 if few else None) if labelled else None
    if len({column, other, given} - {None}) < 1 + pairs + labelled:
        wanted = "text, second text and label" if pairs else "text and label"
        raise DataError(f"{table.path}: {wanted} are different columns; there are: {', '.join(table.columns)}")
    return column, other, given


def read_tagged(path: Path, text: str = "", label: str = "", labelled: bool = True) -> list[Tagged]:
    """Sentences of words and tags; if they need not be `labelled`, of words alone, whatever stands for their tags.

    CoNLL: a word and its columns a line, the tag last; an empty line, or one of white space alone, ends a sentence.
    `.conllu`: the form and, unless `label` names another column, the UPOS tag. JSONL: a list of words, a list of tags.
    """
    path = Path(path)
    if is_jsonl(path):
        return _tagged_objects(path, text, label, labelled)
    universal = path.name.removesuffix(".gz").lower().endswith(".conllu")
    sentences: list[Tagged] = []
    words: list[str] = []
    tags: list[str] = []
    width = 0
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            _close(sentences, words, tags, number)
            continue
        if (universal and line.startswith("#")) or line.startswith("-DOCSTART-"):
            continue
        cells = line.split("\t") if "\t" in line else line.split()
        if universal and not cells[0].isdigit():
            if len(cells) == 10 and cells[0].replace("-", "").replace(".", "").isdigit():
                continue  # 3-4 is two words written as one, 5.1 a word that is not there
            raise DataError(f"{path} line {number}: wanted a CoNLL-U line that opens with a number, got {line[:40]!r}")
        width = width or len(cells)
        word, tag = (
            _column(cells, name, i) for name, i in ((text, 1 if universal else 0), (label, 3 if universal else -1))
        )
        if len(cells) != width or width < 1 + labelled or not word or (labelled and not tag):
            wanted = f"{width} columns" if width > 1 else "a word and its tag" if labelled else "a word"
            raise DataError(f"{path} line {number}: broken CoNLL line, wanted {wanted}, got {line[:40]!r}")
        words.append(word)
        tags.append(tag)
    _close(sentences, words, tags, 0)
    if not sentences:
        raise DataError(f"{path} holds no sentence; wanted a word and its tag on each line")
    return sentences


def _close(sentences: list[Tagged], words: list[str], tags: list[str], number: int) -> None:
    if words:
        sentences.append(Tagged(tuple(words), tuple(tags), number - len(words)))
        words.clear()
        tags.clear()


def _column(cells: list[str], asked: str, usual: int) -> str:
    if asked:
        usual = CONLLU.index(asked.lower()) if asked.lower() in CONLLU else int(asked) - 1 if asked.isdigit() else 99
        if usual == 99:
            raise DataError(f"no column {asked!r} in CoNLL; type its number, or one of: {', '.join(CONLLU)}")
    return cells[usual].strip() if usual < len(cells) else ""


def _tagged_objects(path: Path, text: str, label: str, labelled: bool) -> list[Tagged]:
    asked_for = (("text", text, WORDS), ("label", label, TAGS)) if labelled else (("text", text, WORDS),) * 2
    found = []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        row = _object(path, number, line)
        lists = []
        for what, asked, usual in asked_for:
            name = next((n for n in ([asked] if asked else usual) if n in row), None)
            if name is None:
                there = ", ".join(row)
                raise DataError(
                    f"{path} line {number}: which column holds the {what}s? there are: {there}; --{what} NAME"
                )
            if not isinstance(row[name], list):
                raise DataError(f"{path} line {number}: {name!r} wants a list, got {str(row[name])[:40]!r}")
            lists.append(tuple(str(x) for x in row[name]))
        if len(lists[0]) != len(lists[1]):
            raise DataError(f"{path} line {number}: {len(lists[0])} words but {len(lists[1])} tags")
        if lists[0]:
            found.append(Tagged(lists[0], lists[1], number))
    return found
