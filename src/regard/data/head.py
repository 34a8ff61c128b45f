"""The head of a user's data: small copies of its files, for a preview. The originals are only read."""

import json
import os
import tarfile
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from regard.data.arrow import pa, parquet
from regard.data.files import COMPRESSED, TARS, ending, open_bytes
from regard.data.tables import ARROW, ENDINGS, PARQUET
from regard.errors import DataError, reason

LINES = 2_000  # of every text file, since line i may belong to line i of another
BYTES = 1 << 23  # of a text file, at most
FILES = 64  # of a folder, spread over its subfolders
SMALL = 1 << 25  # bytes of an archive that is used as it is
SIBLINGS = 1_000  # entries next to a table that it may name


def head_of(path: Path, folder: Path, lines: int = LINES) -> tuple[Path, bool]:
    """Copy the first lines, rows or files of `path` to `folder`; returns the copy and whether there is more."""
    folder.mkdir(parents=True, exist_ok=True)
    name = path.name
    if path.is_dir():
        return folder / name, _files(path, folder / name)
    if name.lower().endswith(TARS):
        return _members(path, folder)
    if ending(path) in ENDINGS:
        for other in islice(path.absolute().parent.iterdir(), SIBLINGS):  # images and clips have paths relative to it
            if other.name != name:
                (folder / other.name).symlink_to(other)
    if ending(path) in (*PARQUET, *ARROW):
        return _rows(path, folder / name, lines)
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    with open_bytes(path) as file:
        data, more = _lines(file, lines)
    if data.startswith(b"PK"):  # a zip archive: NPZ or Excel
        return _whole(path, folder)
    if ending(path) == ".json" and more:
        data = _records(data, lines)
    (folder / name).write_bytes(data)
    return folder / name, more


def _lines(file: BinaryIO, most: int = LINES) -> tuple[bytes, bool]:
    """The first lines, not ending inside quotes, and whether there are more; UTF-16 is kept whole."""
    data, end, lines = file.read(BYTES), -1, 0
    while (at := data.find(b"\n", end + 1)) >= 0 and (lines < most or data.count(b'"', 0, end) % 2):
        end, lines = at, lines + 1
    if lines < most:
        return data, len(data) == BYTES
    end += 1 + (data[end + 1 : end + 2] == b"\0")  # the second byte of a UTF-16 line break
    return data[:end], len(data) > end


def _records(data: bytes, most: int) -> bytes:
    """The complete objects of a JSON array; lines of objects stay as they are."""
    text = data.decode("utf-8-sig", "ignore")
    if not text.lstrip().startswith("["):
        return data
    decoder, rows, at = json.JSONDecoder(), [], text.index("[") + 1
    while len(rows) < most:
        at += len(text[at:]) - len(text[at:].lstrip(" \t\r\n,"))
        try:
            row, at = decoder.raw_decode(text, at)
        except ValueError:
            break
        rows.append(row)
    return json.dumps(rows).encode()


def _rows(path: Path, copy: Path, most: int) -> tuple[Path, bool]:
    try:
        if ending(path) in PARQUET:
            file = parquet.ParquetFile(path)
            table = pa.Table.from_batches(islice(file.iter_batches(most), 1), file.schema_arrow)
            parquet.write_table(table, copy)
            return copy, file.metadata.num_rows > len(table)
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            batches = [reader.get_batch(0)] if reader.num_record_batches else []
            table = pa.Table.from_batches(batches, reader.schema)
            with pa.OSFile(str(copy), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table.slice(0, most))
            return copy, reader.num_record_batches > 1 or len(table) > most
    except (pa.ArrowException, OSError) as e:
        raise DataError(f"{path} cannot be read ({reason(e)})") from None


def _files(path: Path, copy: Path) -> bool:
    """Link the first files of every subfolder; copy the head of long text files."""
    places = [(Path(place), sorted(names)) for place, _, names in islice(os.walk(path), FILES) if names]
    each, more = max(4, FILES // max(1, len(places))), False
    copy.mkdir()
    for place, names in places:
        inside = copy / place.relative_to(path)
        inside.mkdir(parents=True, exist_ok=True)
        more |= len(names) > each
        for name in names[:each]:
            if ending(name) in (*ENDINGS, ".txt", ".md") and (place / name).stat().st_size > BYTES:
                with open_bytes(place / name) as file:
                    (inside / name).write_bytes(_lines(file)[0])
                more = True
            else:
                (inside / name).symlink_to((place / name).absolute())
    return more


def _members(path: Path, folder: Path) -> tuple[Path, bool]:
    if path.stat().st_size <= SMALL:
        return _whole(path, folder)
    copy = folder / path.name.split(".")[0]
    try:
        with tarfile.open(path) as tar:
            for member in islice((m for m in tar if m.isfile()), FILES):
                parts = [part for part in PurePosixPath(member.name).parts if part not in ("/", "..")]
                (copy.joinpath(*parts)).parent.mkdir(parents=True, exist_ok=True)
                file = tar.extractfile(member)
                copy.joinpath(*parts).write_bytes(b"" if file is None else file.read())
    except (tarfile.TarError, OSError, EOFError) as e:
        raise DataError(f"{path} cannot be read ({reason(e)}); it is damaged or not a tar archive") from None
    return copy, True


def _whole(path: Path, folder: Path) -> tuple[Path, bool]:
    (folder / path.name).symlink_to(path.absolute())
    return folder / path.name, False
