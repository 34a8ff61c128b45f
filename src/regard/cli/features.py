"""`regard embed`, `similar`: vectors of texts."""

import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.common import (
    Device,
    Encoder,
    Json,
    Weights,
    argument,
    open_for,
    option,
    pick_device,
    show,
    show_line,
)
from regard.cli.pieces import Piece, files_of, in_pieces, names_folder, write_pieces
from regard.cli.processes import Processes, several_processes, share_between
from regard.errors import ConfigError, DataError, reason
from regard.output import check_output, open_output
from regard.ticks import Console
from regard.words import table

Batch = Annotated[int, option("N", "Texts per batch; changes only the speed.", default=True, min=1)]
SAVED = "The vectors of FILE, as `regard embed` writes them; computed and written here if there are none yet."
ALIKE = 0.98  # least cosine of a text's vector to the saved one; in int8 it is 0.995
COLUMN = "For a table: the column of the texts, by name or number."
Column = Annotated[str, option("COLUMN", COLUMN, "--text", default="text, review, … or the first")]


def embed(
    ctx: typer.Context,
    model: Encoder,
    file: Annotated[
        Path,
        argument("FILE", "Texts, one a line, or a table (CSV, TSV, JSONL, Parquet, Arrow); .gz and .zst too."),
    ],
    out: Annotated[
        str, option("FILE", "Write the vectors here, as NumPy's .npy; FOLDER/ takes pieces, as predict does.")
    ] = "",
    pooling: Annotated[str | None, option("NAME", "mean, cls or max.", default="as the folder says, or mean")] = None,
    layer: Annotated[
        str, option("N", "0 is the embeddings, -1 the last layer; last4: the last four, concatenated.", default=True)
    ] = "-1",
    normalise: Annotated[
        bool | None,
        typer.Option("--normalise/--no-normalise", help="Vectors of length 1.", show_default="as the folder says"),
    ] = None,
    text: Column = "",
    batch: Batch = 32,
    weights: Weights = "fp32",
    processes: Processes = 1,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Turn texts into vectors.

    Row i of the vectors belongs to line i of the file, or to row i of a table. With --json, one line of JSON for each
    text instead.

    \b
    Examples:
      regard embed minilm sentences.txt --out vectors.npy
      regard embed minilm sentences.txt --out cls.npy --pooling cls --layer last4 --no-normalise
      regard embed minilm reviews.csv --text review --json > vectors.jsonl
    """
    if not out and not json:
        raise ConfigError("name a file for the vectors: --out vectors.npy; or type --json")
    console: Console = ctx.obj
    how = dict(pooling=pooling, layer=as_layer(layer), normalise=normalise, batch=batch)
    if names_folder(out):
        share_between(processes, ctx)
        embed_pieces(model, file, Path(out), text, how, device, weights)
        console.say(f"wrote {out}")
        return
    if processes > 1 or several_processes():
        raise ConfigError("several processes write several files; name a folder: --out vectors/")
    if out:
        check_output(out, file)
    texts = [text for _, text in texts_of(file, text, ctx.obj)]
    _, embedder = open_for("embed", model, device, weights)
    with console.progress("texts", len(texts)):
        features = embedder.features(texts, **how)
    if json:
        for text, vector in zip(texts, features.vectors.tolist(), strict=True):
            show_line({"text": text, "vector": vector})
    if out:
        write_vectors(Path(out), features.vectors)
    rows, width = features.vectors.shape
    console.say(f"{rows:,} vectors of {width:,} numbers" + (f" in {out}" if out else ""))
    waste = features.padding / max(1, features.tokens + features.padding)
    console.say(f"{features.tokens:,} tokens read; padding was {waste:.1%} of the work")
    if features.cut:
        console.say(f"texts cut at {embedder.settings.max_length} tokens: {features.cut:,}")
    if empty := sum(not text.strip() for text in texts):
        console.say(f"empty lines: {empty:,}; their vectors mean nothing")


def embed_pieces(
    model: str, file: Path, out: Path, column: str, how: dict[str, Any], device: str, weights: str
) -> None:
    """Write vectors in pieces, as `predict_pieces` writes answers."""
    from regard.models.fetched import resolve
    from regard.training.parallel import join

    chosen = pick_device(device)
    join(chosen)  # selects this process's GPU
    _, embedder = open_for("embed", model, chosen, weights)

    def write(texts: list[str], place: Path) -> None:
        write_vectors(place, embedder.features(texts, **how).vectors)

    def work() -> Iterator[Piece]:
        for path in files_of(file):
            texts = (text for _, text in texts_of(path, column, Console(quiet=True)))
            for name, some in in_pieces(path, texts):
                yield name, partial(write, some)

    job = {"model": str(resolve(model)), "file": str(file), "text": column, "weights": weights, **how}
    write_pieces(work(), out, job, ".npy", chosen)


def texts_of(file: Path, column: str, console: Console) -> list[tuple[int, str]]:
    """The texts of a file with their line numbers: all lines, or a column of a table. A broken row gives ""."""
    from regard.data.pairs import read_lines
    from regard.data.skipped import has
    from regard.data.tables import TEXTS, is_delimited, is_table, read_table

    if is_table(file):
        table = read_table(file, [column], say=console.say, strict=False)
        first = 0 if len(table.columns) == 1 or table.columns[0].isdigit() else None
        name = table.find(column, TEXTS, "text", first)
        assumed = not name.isdigit() and name.lower() not in (*TEXTS, column.lower())
        if assumed and is_delimited(file):  # it may be a text
            console.say(f"the first line of {file} is taken for a header, and {name!r} for the column of the texts")
        texts = [cells[name] if usable else "" for cells, usable in table.with_gaps({name: has("text")}, console.say)]
        return list(zip(sorted([*table.lines, *(row.line for row in table.skipped)]), texts, strict=True))
    if column:
        raise ConfigError(f"--text names a column of a table, but {file} has lines of text; leave it out")
    return list(enumerate(read_lines(file), 1))


def similar(
    ctx: typer.Context,
    model: Encoder,
    query: Annotated[str, argument("TEXT", "What to look for.")],
    in_: Annotated[
        Path,
        option("FILE", "Where to look: texts, one a line, or a table.", "--in"),
    ],
    text: Column = "",
    top: Annotated[int, option("N", "Rows of the table.", default=True, min=1)] = 5,
    vectors: Annotated[Path | None, option("FILE.npy", SAVED)] = None,
    batch: Batch = 32,
    weights: Weights = "fp32",
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Find the lines of a file nearest in meaning to a text, by the cosine of their vectors.

    With --vectors the lines are embedded once: `regard embed` writes such a file, and so does the first search.

    \b
    Examples:
      regard similar minilm "a film worth seeing" --in reviews.txt --top 10
      regard similar minilm "a film worth seeing" --in reviews.txt --vectors reviews.npy
    """
    if not query.strip():
        raise DataError("the text is empty; there is nothing to look for")
    lines = texts_of(in_, text, ctx.obj)
    texts = [line for _, line in lines]
    blank = sum(not line.strip() for line in texts)
    if blank == len(texts):
        raise DataError(f"{in_} has no text in it")
    _, embedder = open_for("similar", model, device, weights)
    saved = saved_vectors(vectors, in_, embedder, texts, batch, ctx.obj) if vectors is not None else None
    if cut := embedder.encode([query, *(texts if saved is None else ())])[1]:
        ctx.obj.say(f"texts cut at {embedder.settings.max_length} tokens: {cut:,}")
    nearest = [s for s in embedder.similar(query, texts, top + blank, batch, saved) if s.text.strip()][:top]
    rows = [{"line": lines[s.index][0], "score": s.score, "text": s.text} for s in nearest]
    if json:
        show(rows)
        return
    cells = [(f"{r['score']:.4f}", str(r["line"]), str(r["text"])) for r in rows]
    print(table([("COSINE", "LINE", "TEXT"), *cells], right=[0, 1]))


def saved_vectors(path: Path, file: Path, embedder: Any, texts: list[str], batch: int, console: Console) -> Any:
    """The unit vectors of a file's texts, read from `path`; computed and written there if it does not exist."""
    import numpy as np

    if not path.exists():
        check_output(path, file)
        with console.progress("texts", len(texts)):
            vectors = embedder.embed(texts, normalise=True, batch=batch)
        write_vectors(path, vectors)
        console.say(f"wrote {path}")
        return vectors
    other = f"; remove it to write it again, or name another: --vectors {file.stem}-2.npy"
    try:
        vectors: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as e:
        raise DataError(f"{path} is not a .npy file of vectors ({reason(e)}){other}") from None
    if vectors.ndim != 2 or len(vectors) != len(texts) or vectors.dtype != np.float32:
        shape = f"an array of {vectors.dtype} {vectors.shape}"
        raise DataError(
            f"{path} holds {shape}, expected a vector for each of the {len(texts):,} lines of {file}{other}"
        )
    some = sorted({0, len(texts) // 2, len(texts) - 1})  # enough to notice another model, or another order
    again = embedder.embed([texts[row] for row in some], normalise=True)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if again.shape[1] != vectors.shape[1] or ((again * vectors[some]).sum(1) < ALIKE * lengths[some, 0]).any():
        raise DataError(f"{path} was not made from {file} by this model{other}")
    return vectors if np.allclose(lengths, 1, atol=1e-3) else vectors / np.maximum(lengths, 1e-12)


def write_vectors(path: Path, vectors: Any) -> None:
    import numpy as np

    data = io.BytesIO()
    np.save(data, vectors)  # NumPy itself cannot write to a pipe
    with open_output(path) as file:
        file.write(data.getvalue())


def as_layer(typed: str) -> int | str:
    """`typed` as a number, if it is one."""
    return int(typed) if typed.removeprefix("-").isdigit() else typed
