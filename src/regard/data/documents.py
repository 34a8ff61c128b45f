"""Text files as documents, and documents as chunks that can be encoded one at a time. Everything streams."""

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from regard import limits
from regard.data.files import open_bytes
from regard.data.records import is_records, read_records
from regard.errors import DataError

READ = 1 << 20  # bytes read at a time
ENCODED = 40  # bytes of memory per character and its ids
PIECE = 1 << 13  # approximate characters per chunk
CLEAN = re.compile(r"(?<=\S\n)(?=\S)")  # no tokenizer merges across it
SPACE = re.compile(r"(?<=\S)(?= \S)")

Flow = Iterable[str | None]  # the text of documents in blocks; None between documents


class NotText(DataError):
    """A file that is not UTF-8 text; `encoding` is what it may be instead, "" if it is not text at all."""

    def __init__(self, path: Path, reason: str, encoding: str = ""):
        super().__init__(f"{path} {reason}" + (f"type: {convert(path, encoding)}" if encoding else ""))
        self.reason, self.encoding = reason, encoding


def convert(path: Path, encoding: str) -> str:
    """The command that converts a file to UTF-8; for a folder, its texts into a folder next to it."""
    if not path.is_dir():
        source, target = (quote(str(p)) for p in (path, path.with_name(f"{path.stem}.utf8{path.suffix}")))
        return f"iconv -f {encoding} -t utf-8 {source} > {target}"
    source, target = quote(str(path)), quote(f"{path}-utf8")
    each = f'iconv -f {encoding} -t utf-8 "$f" > {target}/"${{f#{source}/}}"'
    texts = f"find {source} -name '*.txt' -o -name '*.md'"
    return f"cp -r {source} {target}; {texts} | while read -r f; do {each}; done"


def read_text(path: Path) -> Iterator[str]:
    """The text of a UTF-8 file, plain or compressed, in blocks, with `\\n` line ends."""
    decoder, done, held = codecs.getincrementaldecoder("utf-8")(), 0, ""
    with open_bytes(path) as file:
        while True:
            data = file.read(READ)
            if not done and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise NotText(path, "is UTF-16; ", "utf-16")
            if (place := data.find(b"\0")) >= 0:
                raise NotText(path, f"is not text: byte {done + place + 1:,} is zero; expected UTF-8 text")
            pending = len(decoder.getstate()[0])  # the bytes of a character split between blocks
            try:
                text = decoder.decode(data, final=not data)
            except UnicodeDecodeError as e:
                place = done - pending + e.start + 1
                reason = f"is not UTF-8 (byte 0x{e.object[e.start]:02x} at position {place:,}); if it is Latin-1, "
                raise NotText(path, reason, "latin1") from None
            text = held + (text if done else text.removeprefix("\ufeff"))
            held = "\r" if text.endswith("\r") and data else ""
            yield text.removesuffix(held).replace("\r\n", "\n")
            done += len(data)
            if not data:
                return


def text_error(path: Path) -> NotText | None:
    """Why a file is not text, after reading all of it; None if it is."""
    try:
        for _ in read_text(path):
            pass
    except NotText as e:
        return e
    return None


def read_whole(path: Path) -> str:
    """The whole text, to be encoded at once."""
    blocks, size = [], 0
    for block in read_text(path):
        size += len(block)
        limits.require(ENCODED * size, f"reading all of {path}", "use a part of it")
        blocks.append(block)
    return "".join(blocks)


@dataclass
class DocumentReader:
    """The text of files; can be iterated repeatedly. A document is a file, or a line of a JSONL file."""

    paths: list[Path]
    start: int = 0  # characters skipped
    stop: int | None = None  # characters after which to end
    between: str = ""  # inserted between documents if the tokenizer has no end token
    documents: int = 0  # counted while reading
    empty: int = 0

    def __iter__(self) -> Iterator[str | None]:
        place = 0
        for block in self._whole():
            if block is None:
                if self.start < place and (self.stop is None or place < self.stop):
                    yield None
                continue
            stop = len(block) if self.stop is None else self.stop - place
            if part := block[max(0, self.start - place) : max(0, stop)]:
                yield part
            place += len(block)

    def _whole(self) -> Iterator[str | None]:
        self.documents = self.empty = 0
        last = ""  # the previous character
        for document in self._documents():
            begun = False
            for block in filter(None, document):
                if not begun and last:
                    if self.between and last != self.between:
                        yield self.between
                    yield None
                begun, last = True, block[-1]
                yield block
            self.documents += begun
            self.empty += not begun

    def _documents(self) -> Iterator[Iterable[str]]:
        for path in self.paths:
            if not is_records(path):
                yield read_text(path)
                continue
            for text in read_records(path):
                assert isinstance(text, str)
                yield [text]


def pieces(flow: Flow) -> Iterator[str | None]:
    """The text in chunks of about `PIECE` characters, cut where that changes no token, if possible."""
    text = ""
    for block in flow:
        if block is not None:
            text += block
        start = 0
        while len(text) - start > 2 * PIECE:
            cut = _cut(text, start + PIECE, start + 2 * PIECE)
            yield text[start:cut]
            start = cut
        text = text[start:]
        if block is None:
            if text:
                yield text
            yield None
            text = ""
    if text:
        yield text


def _cut(text: str, low: int, high: int) -> int:
    if place := CLEAN.search(text, low, high) or SPACE.search(text, low, high):
        return place.start()
    return text.rfind("\n", low, high) + 1 or high
