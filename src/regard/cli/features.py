"""`regard embed`, `similar`, `fill`: an encoder at work."""

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.common import Device, Json, pick_device, show, show_line
from regard.errors import ConfigError, DataError
from regard.output import check_output, open_output
from regard.ticks import Console
from regard.words import table

if TYPE_CHECKING:
    from regard.data.tokenizers.wordpiece import WordPiece
    from regard.predictors import Embedder

Model = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A BERT: a model folder, or a name (regard model list).", show_default=False),
]
Batch = Annotated[int, typer.Option(metavar="N", min=1, help="Texts read together; changes speed alone.")]
Int8 = Annotated[
    bool,
    typer.Option("--int8", help="Weights in 8 bits, on a CPU: about 1.6 times as fast; minilm's vectors keep a cosine "
                 "of 0.9992 to the exact ones, 0.997 at worst."),
]  # fmt: skip
Column = Annotated[
    str,
    typer.Option("--text", metavar="COLUMN", help="Of a table: the column of the texts, by name or number.",
                 show_default="text, review, … or the first"),
]  # fmt: skip
PUNCTUATION = re.compile(r"[^\w\s]|_")
PLAIN = re.compile(r"(?<=[.!?…])\s+")  # where a sentence ends


def embed(
    ctx: typer.Context,
    model: Model,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Texts, one a line, or a table (CSV, TSV, JSONL, Parquet, Arrow); .gz and .zst too.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the vectors here, as NumPy's .npy.", show_default=False)
    ] = None,
    pooling: Annotated[
        str | None, typer.Option(metavar="NAME", help="mean, cls or max.", show_default="as the folder says, or mean")
    ] = None,
    layer: Annotated[
        str, typer.Option(metavar="N", help="0 is the embeddings, -1 the last layer; last4: four side by side.")
    ] = "-1",
    normalise: Annotated[
        bool | None,
        typer.Option("--normalise/--no-normalise", help="Vectors of length 1.", show_default="as the folder says"),
    ] = None,
    text: Column = "",
    batch: Batch = 32,
    int8: Int8 = False,
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
    if out is None and not json:
        raise ConfigError("name a file for the vectors: --out vectors.npy; or type --json")
    if out is not None:
        check_output(out, file)
    texts = [text for _, text in texts_of(file, text, ctx.obj)]
    embedder = open_embedder(model, device, int8)
    flags: Console = ctx.obj
    with flags.progress("texts", len(texts)):
        found = embedder.features(texts, pooling=pooling, layer=as_layer(layer), normalise=normalise, batch=batch)
    if json:
        for text, vector in zip(texts, found.vectors.tolist(), strict=True):
            show_line({"text": text, "vector": vector})
    if out is not None:
        import numpy as np

        data = io.BytesIO()
        np.save(data, found.vectors)  # NumPy itself cannot write to a pipe
        with open_output(out) as vectors:
            vectors.write(data.getvalue())
    rows, width = found.vectors.shape
    flags.say(f"{rows:,} vectors of {width:,} numbers" + (f" in {out}" if out else ""))
    waste = found.padding / max(1, found.tokens + found.padding)
    flags.say(f"{found.tokens:,} tokens read; padding was {waste:.1%} of the work")
    if found.cut:
        flags.say(f"texts cut at {embedder.settings.max_length} tokens: {found.cut:,}")
    if empty := sum(not text.strip() for text in texts):
        flags.say(f"empty lines: {empty:,}; their vectors stand for nothing")


def texts_of(file: Path, column: str, flags: Console) -> list[tuple[int, str]]:
    """The texts of a file with their line numbers: all lines, or one column of a table."""
    from regard.data.pairs import read_lines
    from regard.data.tables import TEXTS, is_delimited, is_table, read_table

    if is_table(file):
        table = read_table(file, [column])
        first = 0 if len(table.columns) == 1 or table.columns[0].isdigit() else None
        name = table.find(column, TEXTS, "text", first)
        guessed = not name.isdigit() and name.lower() not in (*TEXTS, column.lower())
        if guessed and is_delimited(file):  # it may have been a text
            flags.say(f"the first line of {file} is taken for a header, and {name!r} for the column of the texts")
        return list(zip(table.lines, table.text(name), strict=True))
    if column:
        raise ConfigError(f"--text names a column of a table, but {file} has lines of text; leave it out")
    return list(enumerate(read_lines(file), 1))


def similar(
    ctx: typer.Context,
    model: Model,
    query: Annotated[str, typer.Argument(metavar="TEXT", help="What to look for.", show_default=False)],
    in_: Annotated[
        Path,
        typer.Option("--in", metavar="FILE", help="Where to look: texts, one a line, or a table.", show_default=False),
    ],
    text: Column = "",
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Rows of the table.")] = 5,
    batch: Batch = 32,
    int8: Int8 = False,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """The lines of a file that say something like it, by the cosine of their vectors.

    \b
    Examples:
      regard similar minilm "a film worth seeing" --in reviews.txt --top 10
    """
    if not query.strip():
        raise DataError("the text is empty; there is nothing to look for")
    lines = [(number, found) for number, found in texts_of(in_, text, ctx.obj) if found.strip()]
    if not lines:
        raise DataError(f"{in_} has no text in it")
    embedder = open_embedder(model, device, int8)
    texts = [text for _, text in lines]
    if cut := embedder.encode([query, *texts])[1]:
        ctx.obj.say(f"texts cut at {embedder.settings.max_length} tokens: {cut:,}")
    found = embedder.similar(query, texts, top, batch)
    rows = [{"line": lines[s.index][0], "score": s.score, "text": s.text} for s in found]
    if json:
        show(rows)
        return
    cells = [(f"{r['score']:.4f}", str(r["line"]), str(r["text"])) for r in rows]
    print(table([("COSINE", "LINE", "TEXT"), *cells], right=[0, 1]))


def fill(
    model: Model,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A text with [MASK] in it.", show_default=False)],
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Rows of the table.")] = 5,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """The likeliest words for the gaps of a text, from a BERT that kept its masked-word head.

    \b
    Examples:
      regard fill runs/bert "BERT, lift your [MASK]."
      regard fill runs/bert "The [MASK] kitten climbed the [MASK]." --top 10 --json
    """
    from regard.predictors import Filler

    filler = open_embedder(model, device)
    if not isinstance(filler, Filler):
        raise ConfigError(f"{model} has no masked-word head, it cannot fill in words; regard train mlm makes one")
    found = filler.fill(text, top)
    if json:
        show([[vars(word) for word in gap] for gap in found])
        return
    for number, gap in enumerate(found, 1):
        if len(found) > 1:
            print(f"{chr(10) if number > 1 else ''}gap {number}")
        cells = [(str(rank), w.piece, f"{w.probability:.2%}") for rank, w in enumerate(gap, 1)]
        print(table([("RANK", "WORD", "PROBABILITY"), *cells], right=[0, 2]))


def open_embedder(model: str, device: str, int8: bool = False) -> "Embedder":
    from regard.predictors import Embedder
    from regard.tasks.load import load

    found = load(model, device=pick_device(device), int8=int8)
    if not isinstance(found, Embedder):
        raise ConfigError(f"{model} is no encoder; vectors come from a BERT, as regard model get minilm fetches one")
    return found


def as_layer(typed: str) -> int | str:
    """A number, where it is one."""
    return int(typed) if typed.removeprefix("-").isdigit() else typed


def show_pieces(pieces: "WordPiece", text: str, sentences: bool, json: bool) -> None:
    """The pieces of a text; with `sentences`, of its first sentence and the rest, beside the lecture's numbers.

    The lecture counts words, [CLS] and [SEP] from 1, sentences from 1, and leaves punctuation out. The model counts
    pieces from 0, sentences from 0, and keeps it.
    """
    first, *rest = PLAIN.split(text.strip(), maxsplit=1) if sentences else [text]
    found = pieces.encode(first, rest[0] if rest else None)
    rows: list[dict[str, Any]] = []
    count, last = 0, (-1, -1)
    for place, (id, sentence, word) in enumerate(zip(found.ids, found.sentences, found.words, strict=True)):
        piece, counted = pieces.piece(id), None
        if word is None or (not PUNCTUATION.fullmatch(piece) and (sentence, word) != last):
            counted = count = count + 1
        last = (sentence, -1 if word is None else word)
        row = {"piece": piece, "id": id, "position": place, "sentence": sentence}
        rows.append(row | ({"lecture_position": counted, "lecture_sentence": sentence + 1} if sentences else {}))
    if json:
        show(rows)
        return
    names = ("POSITION", "PIECE", "ID", "SENTENCE")
    cells = [[str(r[name.lower()]) for name in names] for r in rows]
    if not sentences:
        print(table([names, *cells], right=[0, 2, 3]))
        return
    for row, line in zip(rows, cells, strict=True):
        number = row["lecture_position"]
        line += [str(number), str(row["lecture_sentence"])] if number else ["", ""]
    print(table([(*names, "LECTURE'S POSITION", "ITS SENTENCE"), *cells], right=[0, 2, 3, 4, 5]))
