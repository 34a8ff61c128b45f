"""Labelled text: tables of texts and labels, and CoNLL files of words and tags."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from regard.data.columnar import ARROW, OBJECTS, PARQUET, read_rows
from regard.data.delimited import Delimited
from regard.data.files import ending
from regard.data.folders import Say, to_stderr
from regard.data.json_rows import fault, read_values
from regard.data.pairs import read_lines
from regard.data.skipped import HAS_LABEL, BadRow, Check, has, report
from regard.data.tables import LABELS, SECONDS, TEXTS, DataTable, read_data, read_table
from regard.errors import DataError

WORDS, TAGS = ("tokens", "words"), ("tags", "ner_tags", "upos", "labels", "label")
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


@dataclass(frozen=True)
class Example:
    """A text, or two, and its class; "" if unknown. `line` is its line in the file."""

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
    check: Check = HAS_LABEL, strict: bool = False, say: Say = to_stderr, numbers: bool = False,
) -> list[Example]:  # fmt: skip
    """The rows of a table that have a text and, if `labelled`, a label that passes the `check`; with `numbers`, labels
    are normalised numbers. Other rows are skipped and reported, or an error if `strict`. Inferred columns are
    reported."""
    table = read_table(path, (text, second, label), say=say, strict=strict)
    column, other, target = text_columns(table, text, second, label, pairs, labelled)
    roles = {"text": (text, column), "second text": (second, other), "label": (label, target)}
    used = {what: (asked, name) for what, (asked, name) in roles.items() if name}
    if len(table.columns) > len(used) and not all(asked for asked, _ in used.values()):
        say(f"{path}: " + ", ".join(f"{what} from {name!r}" for what, (_, name) in used.items()))
    table = table.with_plain(target) if numbers and target else table
    checks = {column: has("text"), other: has("second text"), target: check}
    table = table.usable({name: check for name, check in checks.items() if name}, strict, say)
    texts = table.text(column)
    seconds: Sequence[str | None] = table.text(other) if other else [None] * len(table)
    labels = table.labels(target) if target else [""] * len(table)
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
    few = width <= 2 + pairs or all(name.isdigit() for name in table.columns)  # then order decides if names do not
    column = table.find(text, TEXTS, "text", 0 if few else None)
    other = table.find(second, SECONDS, "second", 1 if few else None) if pairs else ""
    target = table.find(label, LABELS, "label", width - 1 if few else None) if labelled else ""
    if len({column, other, target} - {""}) < 1 + pairs + labelled:
        raise DataError(f"{table.path}: {what} are different columns; there are: {table.listed()}")
    return column, other, target


def read_tagged(
    path: Path, text: str = "", label: str = "", labelled: bool = True, strict: bool = False, say: Say = to_stderr,
    gaps: bool = False,
) -> list[Tagged]:  # fmt: skip
    """Sentences of words and tags; if not `labelled`, of words alone.

    CoNLL: a word and its columns per line, the tag last; a blank line ends a sentence. `.conllu`: the form and, unless
    `label` names another column, the UPOS tag. JSON, Parquet and Arrow: lists of words and tags. Malformed sentences
    are skipped and reported, or an error if `strict`; with `gaps` they stay, without words.
    """
    path = Path(path)
    read = _tagged_objects if ending(path) in OBJECTS else _tagged_lines
    sentences, bad = [], []
    for sentence in read(path, text, label, labelled):
        if isinstance(sentence, Tagged):
            sentences.append(sentence)
            continue
        bad.append(sentence)
        if gaps:
            sentences.append(Tagged((), (), sentence.line))
    done = "no answer for" if gaps else "skipped"
    unit = "row" if ending(path) in (*PARQUET, *ARROW) else "line"
    report(path, bad, len(sentences) - len(bad) * gaps, strict, say, unit, what="sentences", done=done)
    if not sentences:
        raise DataError(f"{path} holds no sentence; expected a word and its tag on each line")
    return sentences


def _tagged_lines(path: Path, text: str, label: str, labelled: bool) -> Iterator[Tagged | BadRow]:
    universal = ending(path) == ".conllu"
    words: list[tuple[str, str]] = []
    width = begin = 0
    bad: BadRow | None = None
    for number, line in enumerate(chain(read_lines(path), [""]), 1):
        if not line.strip():
            if words or bad:
                yield bad or Tagged(tuple(w for w, _ in words), tuple(t for _, t in words), begin)
            words, begin, bad = [], 0, None
            continue
        if (universal and line.startswith("#")) or line.startswith("-DOCSTART-"):
            continue
        cells = line.split("\t") if "\t" in line else line.split()
        if universal and not cells[0].isdigit():
            if len(cells) == 10 and cells[0].replace("-", "").replace(".", "").isdigit():
                continue  # 3-4 is a contraction, 5.1 an omitted word
            bad = bad or BadRow(number, f"expected a CoNLL-U line that starts with a number, got {line[:40]!r}")
            continue
        width = width or len(cells)
        word, tag = (
            _column(cells, name, i) for name, i in ((text, 1 if universal else 0), (label, 3 if universal else -1))
        )
        if len(cells) != width or width < 1 + labelled or not word or (labelled and not tag):
            expected = f"{width} columns" if width > 1 else "a word and its tag" if labelled else "a word"
            bad = bad or BadRow(number, f"malformed CoNLL line, expected {expected}, got {line[:40]!r}")
        words.append((word, tag))
        begin = begin or number


def _column(cells: list[str], asked: str, usual: int) -> str:
    if asked:
        usual = CONLLU.index(asked.lower()) if asked.lower() in CONLLU else int(asked) - 1 if asked.isdigit() else 99
        if usual == 99:
            raise DataError(f"no column {asked!r} in CoNLL; type its number, or one of: {', '.join(CONLLU)}")
    return cells[usual].strip() if usual < len(cells) else ""


def _tagged_objects(path: Path, text: str, label: str, labelled: bool) -> Iterator[Tagged | BadRow]:
    asked_for = (("text", text, WORDS), ("label", label, TAGS)) if labelled else (("text", text, WORDS),) * 2
    data, typed = read_data(path), ending(path) in (*PARQUET, *ARROW)
    for number, row in read_rows(path, data) if typed else read_values(path, Delimited(path, data)):
        lists, reason = [], fault(row)
        for what, asked, usual in () if reason else asked_for:
            name = next((n for n in ([asked] if asked else usual) if n in row), None)
            if name is None:
                reason = f"which column holds the {what}s? there are: {', '.join(row)}; --{what} NAME"
                break
            if not isinstance(row[name], list):
                reason = f"{name!r} expects a list, got {str(row[name])[:40]!r}"
                break
            lists.append(tuple(str(x) for x in row[name]))
        if not reason and len(lists[0]) != len(lists[1]):
            reason = f"{len(lists[0])} words but {len(lists[1])} tags"
        if not reason and not lists[0]:
            reason = "no words"
        yield BadRow(number, reason) if reason else Tagged(lists[0], lists[1], number)
