"""`regard tokens`: how a model splits a text into tokens."""

import re
from typing import TYPE_CHECKING, Annotated, Any

from regard.cli.common import Json, Run, argument, flag, show, visible
from regard.errors import ConfigError
from regard.words import table

if TYPE_CHECKING:
    from regard.data.tokenizers.encoder import EncoderTokenizer

PUNCTUATION = re.compile(r"[^\w\s]|_")
SENTENCE_END = re.compile(r"(?<=[.!?…])\s+")


def tokens(
    run: Run,
    text: Annotated[str, argument("TEXT", "Some text.")],
    sentences: Annotated[
        bool, flag("--sentences", "For BERT: two sentences, numbered as in lectures and as in the model.")
    ] = False,
    json: Json = False,
) -> None:
    """Show the pieces, ids and positions of a text.

    \b
    Examples:
      regard tokens runs/demo "some text"
      regard tokens runs/demo "some text" --json
      regard tokens minilm "Be alert! BERT will hurt!" --sentences
    """
    from regard.data.pairs import clean
    from regard.data.tokenizers import load
    from regard.data.tokenizers.encoder import EncoderTokenizer
    from regard.models.fetched import resolve

    pieces = load(resolve(run))
    if isinstance(pieces, EncoderTokenizer):
        show_pieces(pieces, text, sentences, json)
        return
    if sentences:
        raise ConfigError(f"--sentences is for BERT, whose texts come in pairs; {run} is not one; leave it out")
    translates = hasattr(pieces, "encode_targets")  # a translator reads cleaned lines with an end mark
    ids = [*pieces.encode_batch([clean(text)])[0], pieces.eos] if translates else pieces.encode(text)
    if json:
        show([{"position": i, "piece": pieces.piece(n), "id": n} for i, n in enumerate(ids)])
        return
    shown = [pieces.piece(n) if translates else visible(pieces.piece(n)) for n in ids]
    rows = [("POSITION", "PIECE", "ID"), *((str(i), shown[i], str(n)) for i, n in enumerate(ids))]
    print(table(rows, right=[0, 2]))


def show_pieces(pieces: "EncoderTokenizer", text: str, sentences: bool, json: bool) -> None:
    """The pieces of a text; with `sentences`, of its first sentence and the rest, next to the lecture's numbers.

    The lecture counts words, [CLS], [SEP] and sentences from 1 and leaves punctuation out. The model counts pieces and
    sentences from 0 and keeps it.
    """
    first, *rest = SENTENCE_END.split(text.strip(), maxsplit=1) if sentences else [text]
    encoded = pieces.encode(first, rest[0] if rest else None)
    rows: list[dict[str, Any]] = []
    count, last = 0, (-1, -1)
    for place, (id, sentence, word) in enumerate(zip(encoded.ids, encoded.sentences, encoded.words, strict=True)):
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
