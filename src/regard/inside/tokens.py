"""The tokens of a text as chips: ids, texts to show, the words they belong to, and their positions."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from regard.data.tokenizers.bpe import SPACE
from regard.data.tokenizers.encoder import Encoded, EncoderTokenizer
from regard.data.tokenizers.pretrained import printable

Token = dict[str, Any]
BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # a piece that is a byte


def raw(tokenizer: Any, id: int) -> tuple[str, list[int] | None]:
    """The text of a token, and its bytes if they are not whole characters; "" beyond the vocabulary."""
    if id >= tokenizer.size:
        return "", None
    if hasattr(tokenizer, "token_bytes"):
        data = tokenizer.token_bytes(id)
        try:
            return data.decode(), None
        except UnicodeDecodeError:
            return tokenizer.piece(id), list(data)
    piece = tokenizer.piece(id)
    if match := BYTE.fullmatch(piece):
        return piece, [int(match[1], 16)]
    return piece.replace(SPACE, " "), None


def special_ids(tokenizer: Any) -> set[int]:
    """The ids of special tokens, which no text encodes to."""
    marks = [getattr(tokenizer, name, None) for name in ("bos", "eos", "pad", "unk")]
    more = (*getattr(tokenizer, "ends", ()), *getattr(tokenizer, "special_ids", ()))
    return {id for id in (*marks, *more) if id is not None}


def candidates(tokenizer: Any, ids: Iterable[int]) -> list[dict[str, Any]]:
    """Each token's id and text, and whether it can be typed: part of a character or a special token cannot."""
    special = special_ids(tokenizer)
    each = [(id, *raw(tokenizer, id)) for id in ids]
    return [
        {"id": id, "text": text, "typable": bool(text) and data is None and id not in special}
        for id, text, data in each
    ]


def vocabulary(predictor: Any) -> dict[str, Any]:
    """The text of every row of a model's head, which may be more than the tokenizer has; and the ids of tokens that
    cannot be typed."""
    all_ = candidates(predictor.tokenizer, range(predictor.model.config.vocab))
    return {"texts": [one["text"] for one in all_], "untypable": [one["id"] for one in all_ if not one["typable"]]}


def token(
    tokenizer: Any, id: int, word: int, special: bool, span: tuple[int, int] = (0, 0), sentence: int = 0
) -> Token:
    text, data = raw(tokenizer, id)
    shown = printable(text.encode()).replace(" ", "␣")
    return {
        "id": id, "text": text, "shown": shown, "word": -1 if special else word, "special": special, "bytes": data,
        "start": span[0], "end": span[1], **({"sentence": sentence} if sentence else {}),
    }  # fmt: skip


def of_writer(tokenizer: Any, ids: Sequence[int], text: str) -> list[Token]:
    """The chips of a language model; a word begins where white space does."""
    specials = {tokenizer.bos, *tokenizer.ends} - {None}
    data = [b"" if id in specials else tokenizer.token_bytes(id) for id in ids]
    ends = np.cumsum([len(part) for part in data])
    whole = b"".join(data)
    if whole == text.encode():
        opens = (np.frombuffer(whole, np.uint8) & 0xC0) != 0x80  # the first byte of each character
        before = np.concatenate([[0], np.cumsum(opens)])  # characters begun before each byte
        starts = [int(before[e - len(p) + 1] - 1) if p else int(before[e]) for e, p in zip(ends, data, strict=True)]
        spans = list(zip(starts, before[ends].tolist(), strict=True))
    else:
        spans = located([raw(tokenizer, id)[0] for id in ids], text)
    chips, word, blank = [], -1, False
    for id, part, span in zip(ids, data, spans, strict=True):
        opening = part[:1].isspace()
        word += (opening and not blank) or word < 0
        blank = part[-1:].isspace() and (opening or blank)
        chips.append(token(tokenizer, id, word, id in specials, span))
    return chips


def of_translator(tokenizer: Any, ids: Sequence[int], text: str) -> list[Token]:
    """The chips of one side of a translator."""
    words = {place: word for word, group in enumerate(tokenizer.words(ids)) for place in group}
    spans = located([raw(tokenizer, id)[0] for id in ids], text)
    ends = (tokenizer.eos, tokenizer.pad)
    return [token(tokenizer, id, words.get(i, -1), id in ends, spans[i]) for i, id in enumerate(ids)]


def of_encoder(
    tokenizer: EncoderTokenizer, encoded: Encoded, spans: Sequence[tuple[int, int]] | None = None
) -> list[Token]:
    """The chips of a text or a pair for BERT; word numbers continue in the second text. `spans` replace its own."""
    first = max(
        (w for w, s in zip(encoded.words, encoded.sentences, strict=True) if w is not None and not s), default=-1
    )
    chips = []
    for i, (id, sentence, word) in enumerate(zip(encoded.ids, encoded.sentences, encoded.words, strict=True)):
        number = -1 if word is None else word + (first + 1) * sentence
        chips.append(token(tokenizer, id, number, word is None, (spans or encoded.offsets)[i], sentence))
    return chips


def located(pieces: Sequence[str], text: str) -> list[tuple[int, int]]:
    """The span of each piece in the text; one that is missing gets an empty span after the last."""
    spans, place = [], 0
    for piece in pieces:
        core = piece.strip()
        at = text.find(core, place) if core else -1
        start, place = (place, place) if at < 0 else (at, at + len(core))
        spans.append((start, place))
    return spans
