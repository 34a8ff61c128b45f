"""Labelled text: tables of texts and labels, and CoNLL files of words and tags."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.delimited import Delimited
from regard.data.files import ending
from regard.data.folders import Say, to_stderr
from regard.data.json_rows import is_array, read_array, read_object
from regard.data.pairs import read_lines
from regard.data.tables import LABELS, SECONDS, TEXTS, DataTable, read_data, read_table
from regard.errors import DataError

WORDS, TAGS = ("tokens", "words"), ("tags", "ner_tags", "upos", "labels", "label")
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


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


def read_examples(
    path: Path, text: str = "", second: str = "", label: str = "", pairs: bool = False, labelled: bool = True,
    empty: bool = False, strict: bool = False, say: Say = to_stderr,
) -> list[Example]:  # fmt: skip
    """The rows of a table that have a text and, if they are `labelled`, a label, unless that may be `empty`. The others
    are skipped and reported, or an error if `strict`."""
    table = read_table(path, (text, second, label), say=say, strict=strict)
    column, other, target = text_columns(table, text, second, label, pairs, labelled)
    needed = {column: "text", other: "second text"} | ({} if empty else {target: "label"})
    table = table.usable({name: what for name, what in needed.items() if name}, strict, say)
    texts = table.text(column)
    seconds: Sequence[str | None] = table.text(other) if other else [None] * len(table)
    labels = table.labels(target, empty) if target else [""] * len(table)
    return [Example(*cells) for cells in zip(texts, seconds, labels, table.lines, strict=True)]


def text_columns(
    table: DataTable, text: str, second: str, label: str, pairs: bool, labelled: bool
) -> tuple[str, str, str]:
    """The columns of text, second text and label; "" for what is not needed."""
    width = len(table.columns)
    what = f"text{', second text' * pairs}{' and label' * labelled}"
    if width < 1 + pairs + labelled:
        raise DataError(
            f"{table.path}: {width} column{'s' * (width > 1)}, expected {1 + pairs + labelled}: {what}, "
            "separated by commas, or in a .tsv by tabs"
        )
    few = width <= 2 + pairs or all(name.isdigit() for name in table.columns)  # then order tells, where names do not
    column = table.find(text, TEXTS, "text", 0 if few else None)
    other = table.find(second, SECONDS, "second", 1 if few else None) if pairs else ""
    target = table.find(label, LABELS, "label", width - 1 if few else None) if labelled else ""
    if len({column, other, target} - {""}) < 1 + pairs + labelled:
        raise DataError(f"{table.path}: {what} are different columns; there are: {table.listed()}")
    return column, other, target


def read_tagged(path: Path, text: str = "", label: str = "", labelled: bool = True) -> list[Tagged]:
    """Sentences of words and tags; if they need not be `labelled`, of words alone.

    CoNLL: a word and its columns a line, the tag last; an empty line, or one of white space alone, ends a sentence.
    `.conllu`: the form and, unless `label` names another column, the UPOS tag. JSON, JSONL: lists of words and tags.
    """
    path = Path(path)
    if ending(path) in (".json", ".jsonl"):
        return _tagged_objects(path, text, label, labelled)
    universal = ending(path) == ".conllu"
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
            raise DataError(
                f"{path} line {number}: expected a CoNLL-U line that opens with a number, got {line[:40]!r}"
            )
        width = width or len(cells)
        word, tag = (
            _column(cells, name, i) for name, i in ((text, 1 if universal else 0), (label, 3 if universal else -1))
        )
        if len(cells) != width or width < 1 + labelled or not word or (labelled and not tag):
            expected = f"{width} columns" if width > 1 else "a word and its tag" if labelled else "a word"
            raise DataError(f"{path} line {number}: broken CoNLL line, expected {expected}, got {line[:40]!r}")
        words.append(word)
        tags.append(tag)
    _close(sentences, words, tags, 0)
    if not sentences:
        raise DataError(f"{path} holds no sentence; expected a word and its tag on each line")
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


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON file, an array or one a line, with their lines."""
    if ending(path) == ".json" and is_array(path, text := Delimited(path, read_data(path))):
        return read_array(path, text)
    lines = enumerate(read_lines(path), 1)
    return ((number, read_object(f"{path} line {number}", line)) for number, line in lines if line.strip())


def _tagged_objects(path: Path, text: str, label: str, labelled: bool) -> list[Tagged]:
    asked_for = (("text", text, WORDS), ("label", label, TAGS)) if labelled else (("text", text, WORDS),) * 2
    sentences = []
    for number, row in _objects(path):
        lists = []
        for what, asked, usual in asked_for:
            name = next((n for n in ([asked] if asked else usual) if n in row), None)
            if name is None:
                there = ", ".join(row)
                raise DataError(
                    f"{path} line {number}: which column holds the {what}s? there are: {there}; --{what} NAME"
                )
            if not isinstance(row[name], list):
                raise DataError(f"{path} line {number}: {name!r} expects a list, got {str(row[name])[:40]!r}")
            lists.append(tuple(str(x) for x in row[name]))
        if len(lists[0]) != len(lists[1]):
            raise DataError(f"{path} line {number}: {len(lists[0])} words but {len(lists[1])} tags")
        if lists[0]:
            sentences.append(Tagged(lists[0], lists[1], number))
    return sentences
