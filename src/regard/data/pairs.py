"""Parallel text: two files whose n-th lines are translations of each other."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from regard.data.files import open_bytes, read_bounded_lines
from regard.data.folders import silent
from regard.errors import DataError

BOM = b"\xef\xbb\xbf"
SIDES = {  # names of their columns
    "source": ("source", "src", "text", "article", "document"),
    "target": ("target", "tgt", "translation", "summary"),
}


@dataclass(frozen=True)
class PairFiles:
    """The files of a parallel corpus. Without `valid_*`, some training sentences are held out."""

    train_source: Path
    train_target: Path
    valid_source: Path | None = None
    valid_target: Path | None = None
    test_source: Path | None = None
    test_target: Path | None = None


def clean(line: str) -> str:
    """The line as in training: runs of white space become one space, none at the ends."""
    return " ".join(line.split())


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 text file, plain or compressed, without line ends, streamed."""
    path = Path(path)
    with open_bytes(path, "a text file, one sentence per line") as file:
        number = 0
        for number, line in enumerate(read_bounded_lines(file, str(path)), 1):
            if number == 1:
                line = line.removeprefix(BOM)
            try:
                yield line.decode().removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError as e:
                raise DataError(_not_utf8(path, number, line, e)) from None
        if number == 0:
            raise DataError(f"{path} is empty; expected at least one line")


def read_side(path: Path, side: str) -> Iterator[str]:
    """The lines of a text file, or one column of a table: that named after the `side`, otherwise the first for sources
    and the second for targets."""
    from regard.data.tables import is_table, read_table

    if not is_table(path):
        return read_lines(path)
    table = read_table(path, say=silent, strict=False)
    place = 0 if len(table.columns) == 1 else list(SIDES).index(side)
    return iter(table.text(table.find("", SIDES[side], side, place)))


def read_pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """Line n of `source` with line n of `target`, or two columns of tables; `DataError` at the end if one has more
    lines."""
    sources, targets = read_side(source, "source"), read_side(target, "target")
    for count, (first, second) in enumerate(zip_longest(sources, targets)):
        if first is None or second is None:
            more = 1 + sum(1 for _ in (sources if second is None else targets))
            left, right = (count + more, count) if second is None else (count, count + more)
            raise DataError(
                f"{source} has {left:,} lines and {target} has {right:,}; "
                "line n of one must translate line n of the other"
            )
        yield first, second


def _not_utf8(path: Path, number: int, line: bytes, e: UnicodeDecodeError) -> str:
    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
        return f"{path} is UTF-16; expected UTF-8, type: iconv -f utf-16 -t utf-8 {path} > {path}.utf8"
    return (
        f"{path}: line {number} is not UTF-8 (byte 0x{line[e.start]:02x} at position {e.start + 1}); "
        f"if it is Latin-1, type: iconv -f latin1 -t utf-8 {path} > {path}.utf8"
    )
