"""Tables in memory: written to a file that our table reader reads, and returned with answers added.

A table is one of pandas, polars or pyarrow, a dict of columns, or a list of dicts; a list of texts, or a column of a
table, is a table of one column. Neither pandas nor polars is imported here.
"""

import hashlib
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.data.arrow import pa
from regard.data.folders import building_file
from regard.errors import DataError

ARROW, JSONL, LINES = ".arrow", ".jsonl", ".txt"  # how a task reads a table: columns, records, or texts line by line


def is_table(data: Any) -> bool:
    """Whether `data` holds rows, rather than naming a file."""
    return has_columns(data) or bool(as_list(data))


def has_columns(data: Any) -> bool:
    """Whether `data` is a table with columns; a dict of single values is a row."""
    if isinstance(data, Mapping):
        return any(as_list(column) for column in data.values())
    return hasattr(data, "columns")


def as_list(data: Any) -> list[Any]:
    """Rows or texts as a list; empty for anything with columns."""
    if isinstance(data, list | tuple):
        return list(data)
    if hasattr(data, "columns"):
        return []
    ways = ("to_list", "tolist", "to_pylist")  # of a column: pandas and polars, NumPy, pyarrow
    return next((getattr(data, way)() for way in ways if hasattr(data, way)), [])


def to_arrow(data: Any) -> Any:
    """The table as pyarrow's."""
    try:
        if rows := as_list(data):
            if not all(isinstance(row, Mapping) for row in rows):
                return pa.table({"text": pa.array(rows)})
            names = dict.fromkeys(name for row in rows for name in row)
            return pa.table({name: [row.get(name) for row in rows] for name in names})
        if isinstance(data, Mapping):
            return pa.table({str(name): pa.array(as_list(column)) for name, column in data.items()})
        return _plain(pa.table(data))
    except (pa.ArrowException, TypeError, AttributeError) as e:
        raise DataError(
            f"this {type(data).__name__} is not a table ({e}); every column must hold values of one type"
        ) from e


def _plain(table: Any) -> Any:
    """Without the view types of newer Arrow versions, which not every function supports."""
    types = [pa.large_string() if pa.types.is_string_view(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema(list(zip(table.column_names, types, strict=True))))


def write(data: Any, folder: Path, ending: str = ARROW, files: bool = False) -> Path:
    """Write the table to a file of `folder` named after its content. `files`: columns of file names, relative to the
    working folder, become absolute."""
    table = to_arrow(data)
    if not table.num_rows:
        raise DataError("the table has no rows")
    content = _bytes(_absolute(table) if files else table, ending)
    path = folder / f"{hashlib.sha256(content).hexdigest()[:16]}{ending}"
    if not path.is_file():
        with building_file(path) as temporary:
            temporary.write_bytes(content)
    return path


def _bytes(table: Any, ending: str) -> bytes:
    if ending == ARROW:
        buffer = io.BytesIO()
        with pa.ipc.new_file(buffer, table.schema) as file:
            file.write_table(table.combine_chunks())
        return buffer.getvalue()
    if ending == JSONL:
        rows = ({name: cell for name, cell in row.items() if cell is not None} for row in table.to_pylist())
        return "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows).encode()
    if table.num_columns != 1:
        raise DataError(f"expected texts, got a table of {', '.join(table.column_names)}; pass one column of it")
    return "".join(" ".join(str(text).split("\n")) + "\n" for text in table.column(0).to_pylist()).encode()


def _absolute(table: Any) -> Any:
    for i, name in enumerate(table.column_names):
        cells = table.column(name).to_pylist()
        if isinstance(cells[0], str) and Path(cells[0]).is_file():
            table = table.set_column(i, name, pa.array([cell and str(Path(cell).absolute()) for cell in cells]))
    return table


def with_answers(data: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
    """A table of the same library as `data`: its rows with the cells of `rows` added; or `rows` themselves if they are
    not the same rows, as in a forecast."""
    before = to_arrow(data).column_names
    added = len(rows) == to_arrow(data).num_rows and all(name in rows[0] for name in before)
    names = [name for name in (rows[0] if rows else ()) if not (added and name in before)]
    columns = {name: _cells([row[name] for row in rows]) for name in names}
    library: Any = sys.modules.get(type(data).__module__.split(".")[0])
    if isinstance(data, Mapping):
        return {**data, **columns} if added else columns
    if hasattr(data, "assign"):  # pandas
        return data.assign(**columns) if added else library.DataFrame(columns)
    if hasattr(data, "with_columns"):  # polars
        new = library.DataFrame(columns)
        return data.hstack(new.get_columns()) if added else new
    new = pa.table(columns)
    return pa.Table.from_arrays([*to_arrow(data).columns, *new.columns], [*before, *names]) if added else new


def _cells(values: list[Any]) -> list[Any]:
    """Values of one type: an empty cell among numbers becomes None."""
    if all(isinstance(value, str) for value in values):
        return values
    return [None if value == "" else value for value in values]
