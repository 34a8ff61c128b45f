"""Texts as documents, and documents as sentences in order, for next-sentence prediction.

A document ends at the end of a file, at blank lines, or at every line. A sentence ends at the end of a line, and after
. ! or ? before what may start the next one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.data.documents import read_text
from regard.data.pairs import clean
from regard.data.records import Record, is_records, read_records

END = re.compile(r"""(?<=[.!?…])(["'”’)\]]*)\s+(?=["'“‘(\[]*[A-Z0-9ÀÁÂÄÅÇÈÉÊËÍÎÑÓÔÖÚÜÆØ¿¡])""")
SHORT = re.compile(r"(?:^|[\s(\"'])(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|e\.g|i\.e|cf|No|Fig|Eq|[A-Z])\.$")  # no end
LONGEST = 8  # at least the most characters that `SHORT` matches


@dataclass(frozen=True)
class Corpus:
    """The documents of some files, each a list of lines with normalised white space; can be iterated repeatedly."""

    paths: list[Path]
    border: str = "blank"

    def __iter__(self) -> Iterator[list[str]]:
        for path in self.paths:
            if is_records(path):
                documents = (_text(record).split("\n") for record in read_records(path))
            elif self.border == "files":
                documents = iter([list(_lines(path))])
            elif self.border == "lines":
                documents = ([line] for line in _lines(path))
            else:
                documents = _paragraphs(_lines(path))
            for lines in documents:
                if kept := [line for line in map(clean, lines) if line]:
                    yield kept


def sentences(line: str) -> list[str]:
    """The sentences of a line."""
    parts, start = [], 0
    for end in END.finditer(line):
        if SHORT.search(line, max(start, end.start() - LONGEST), end.start()):
            continue
        parts.append(line[start : end.end(1)])
        start = end.end()
    return [*parts, line[start:]] if start < len(line) else parts


def _text(record: str | Record) -> str:
    return record if isinstance(record, str) else "\n".join(message["content"] for message in record.messages)


def _lines(path: Path) -> Iterator[str]:
    held = ""
    for block in read_text(path):
        *whole, held = (held + block).split("\n")
        yield from whole
    if held:
        yield held


def _paragraphs(lines: Iterator[str]) -> Iterator[list[str]]:
    held: list[str] = []
    for line in lines:
        if line.strip():
            held.append(line)
        elif held:
            yield held
            held = []
    if held:
        yield held
