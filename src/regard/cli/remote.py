"""`regard predict --server`: predictions for a file by a model on a `regard serve`."""

import base64
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from regard.cli.common import option, write_lines
from regard.errors import ConfigError, DataError
from regard.ticks import Console, tick

if TYPE_CHECKING:
    from regard.serve.api.client import RemoteModel

TOGETHER = 32  # inputs per request
Server = Annotated[str, option("URL", "Use the model of this name on a `regard serve`; the key is REGARD_API_KEY.")]


def predict_remotely(
    server: str, name: str, file: Path, out: Path | None, text: str, second: str, console: Console
) -> None:
    """Write one output per line, as JSON; null for a line without text."""
    from regard.serve.api.client import RemoteModel

    model = RemoteModel(server, name)
    inputs = read_inputs(model, file, text, second)

    def lines() -> Iterator[str]:
        while some := list(islice(inputs, TOGETHER)):
            full = [one for one in some if one is not None]
            outputs = iter(model.predict(full) if full else ())
            for one in some:
                yield json.dumps(None if one is None else next(outputs), ensure_ascii=False) + "\n"
            tick(len(some))

    write_lines(lines(), out, console, "inputs")


def read_inputs(model: "RemoteModel", file: Path, text: str, second: str) -> Iterator[Any]:
    """The inputs in a file or folder, as a request holds them; None for a blank line."""
    from regard.data.features import named_rows
    from regard.data.pairs import read_lines
    from regard.data.tables import is_table, read_table

    if not file.exists():
        raise DataError(f"no file or folder {file}")
    if model.reads == "text" and not is_table(file):
        yield from (line if line.strip() else None for line in read_lines(file))
    elif model.reads == "text":
        if not text:
            raise ConfigError(f"which column of {file} holds the text? add: --text COLUMN")
        table = read_table(file, [name for name in (text, second) if name])
        columns = [table.text(table.find(name, (), "text")) for name in (text, second) if name]
        for cells in zip(*columns, strict=True):
            yield None if not all(cells) else list(cells) if second else cells[0]
    elif model.reads == "tables":
        for row in named_rows(read_table(file, list(model.columns))):
            yield {name: cell for name, cell in row.items() if name in model.columns and cell}
    else:
        files = sorted(path for path in file.rglob("*") if path.is_file()) if file.is_dir() else [file]
        for path in files:
            yield {"file": base64.b64encode(path.read_bytes()).decode(), "name": path.name}
