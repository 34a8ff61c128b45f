"""Parquet and Arrow files: tables whose columns have types."""

from pathlib import Path
from typing import Any

from regard import limits
from regard.data.arrow import pa, parquet
from regard.data.files import ending
from regard.errors import DataError

PARQUET, ARROW = (".parquet", ".pq"), (".arrow", ".feather", ".ipc")


def read_columnar(path: Path, data: bytes) -> Any:
    """The table in the bytes of a Parquet or Arrow file, as pyarrow has it."""
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
        raise DataError(f"{path} cannot be read as {kind} ({e})") from None
