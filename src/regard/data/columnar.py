"""Parquet and Arrow files: tables whose columns have types."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard import limits
from regard.data.arrow import pa, parquet
from regard.data.files import ending, read_errors
from regard.errors import DataError, reason

PARQUET, ARROW = (".parquet", ".pq"), (".arrow", ".feather", ".ipc")
OBJECTS = (".json", ".jsonl", *PARQUET, *ARROW)  # formats whose rows may hold lists and objects
CHUNK = 1000  # rows converted to Python objects at a time


def read_columnar(path: Path, data: bytes) -> Any:
    """The pyarrow table in the bytes of a Parquet or Arrow file."""
    kind = "Parquet" if ending(path) in PARQUET else "Arrow"
    try:
        if kind == "Parquet":
            file = parquet.ParquetFile(pa.BufferReader(data))
            about = file.metadata
            stored = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
            limits.require(max(stored, 8 * about.num_rows * about.num_columns), str(path))
            return file.read()
        reader = pa.ipc.open_file(pa.BufferReader(data))
        batches, size = [], 0
        for i in range(reader.num_record_batches):
            batches.append(reader.get_batch(i))
            limits.require(size := size + batches[-1].nbytes, str(path))
        return pa.Table.from_batches(batches, reader.schema)
    except (pa.ArrowException, OSError) as e:
        raise DataError(f"{path} cannot be read as {kind} ({reason(e)})") from None


def stream_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """As `read_rows`, for a Parquet file on disk, with one row group in memory at a time."""
    number = 0
    try:
        with read_errors(path, "a table"), parquet.ParquetFile(path) as file:
            for group in range(file.metadata.num_row_groups):
                size = file.metadata.row_group(group).total_byte_size
                limits.require(size, f"{path}: row group {group + 1}", "write it in smaller row groups")
                for batch in file.iter_batches(CHUNK, [group]):
                    for row in batch.to_pylist():
                        number += 1
                        yield number, {name: value for name, value in row.items() if value is not None}
    except pa.ArrowException as e:
        raise DataError(f"{path} cannot be read as Parquet ({e})") from None


def read_rows(path: Path, data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows as dicts without missing values, with their numbers."""
    number = 0
    for batch in read_columnar(path, data).to_batches(max_chunksize=CHUNK):
        for row in batch.to_pylist():
            number += 1
            yield number, {name: value for name, value in row.items() if value is not None}
