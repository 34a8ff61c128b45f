"""The tokenizers of encoders: a text, or a pair of texts, between special tokens.

`wordpiece.WordPiece` is BERT's. `Subwords` are those of published folders with byte-level BPE (RoBERTa, ModernBERT) or
SentencePiece (XLM-R, the multilingual sentence encoders).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from regard.data.tokenizers.opened import guarded, open_tokenizer, vocabulary_size, with_path, write_files
from regard.data.tokenizers.pretrained import content, printable, to_bytes
from regard.errors import CheckpointError, ConfigError
from regard.jsonfile import read_json_if_any

MASK = "[MASK]"  # what a user types, whatever its name in the folder
ROLES = ("pad", "unk", "cls", "sep", "mask")
CASES = ("lower", "Title", "UPPER", "miXed")  # how a word is written; without letters, as "lower"
ROBERTA = dict(zip(ROLES, ("<pad>", "<unk>", "<s>", "</s>", "<mask>"), strict=True))


@dataclass(frozen=True)
class Encoded:
    """A text or pair as an encoder reads it, with [CLS] and [SEP]. All lists have the same length."""

    ids: list[int]
    sentences: list[int]  # 0, and 1 for the second text of a pair with its [SEP]
    offsets: list[tuple[int, int]]  # of the token in its text; (0, 0) for [CLS] and [SEP]
    words: list[int | None]  # the index of the word in its text; None for [CLS] and [SEP]
    cut: int = 0  # tokens cut to fit
    cases: tuple[int, ...] = ()  # of each token's word, in `CASES`, if the model reads them

    @property
    def types(self) -> Sequence[int]:
        """The segment of each token, as the model reads it."""
        return self.cases or self.sentences


class EncoderTokenizer:
    """[CLS] text [SEP], or [CLS] text `between` pair [SEP]. Special tokens in a text are recognised."""

    def __init__(self, tokenizer: Tokenizer, config: dict[str, Any], special: Sequence[str]):
        self.tokenizer, self.config = tokenizer, config
        self.size = vocabulary_size(tokenizer)
        self.pad, self.unk, self.cls, self.sep, self.mask = (self._id(token, special) for token in special)
        self.between = [self.sep]

    def _id(self, token: str, special: Sequence[str]) -> int:
        id = self.tokenizer.token_to_id(token)
        if id is None:
            raise CheckpointError(f"expected an encoder's vocabulary with {' '.join(special)}; it has no {token}")
        return id

    # -- text and ids ---------------------------------------------------------------------------------------------

    def encode(self, text: str, pair: str | None = None, max_length: int = 0) -> Encoded:
        """A text or a pair; at most `max_length` tokens (0: no limit)."""
        return self.encode_batch([text], None if pair is None else [pair], max_length)[0]

    @guarded
    def encode_batch(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, max_length: int = 0
    ) -> list[Encoded]:
        """`encode` for many texts, on all cores."""
        first = self.tokenizer.encode_batch(self.typed(texts), add_special_tokens=False)
        if pairs is None:
            return [self._assembled([a], max_length) for a in first]
        second = self.tokenizer.encode_batch(self.typed(pairs), add_special_tokens=False)
        return [self._assembled([a, b], max_length) for a, b in zip(first, second, strict=True)]

    @guarded
    def encode_words(self, words: Sequence[str], max_length: int = 0) -> Encoded:
        """A text already split into words: `Encoded.words` are their indices, and offsets are within a word."""
        encoding = self.tokenizer.encode(list(words), is_pretokenized=True, add_special_tokens=False)
        encoded = self._assembled([encoding], max_length)
        if not self.marks_case:
            return encoded
        return replace(encoded, cases=tuple(0 if word is None else case_of(words[word]) for word in encoded.words))

    @guarded
    def encode_ids(self, texts: Sequence[str], max_length: int = 0) -> tuple[list[list[int]], int]:
        """Only the ids of each text, which is faster, and how many texts were cut to fit."""
        every = [e.ids for e in self.tokenizer.encode_batch_fast(self.typed(texts), add_special_tokens=False)]
        room = max_length - 2 if max_length else max(map(len, every), default=0)
        return [[self.cls, *ids[:room], self.sep] for ids in every], sum(len(ids) > room for ids in every)

    def typed(self, texts: Sequence[str]) -> list[str]:
        """Texts with the user's [MASK] replaced by the tokenizer's own."""
        return list(texts)

    # -- how words are written ------------------------------------------------------------------------------------

    @property
    def lowers(self) -> bool:
        """Whether it lower-cases texts."""
        normalizer = self.tokenizer.normalizer
        return normalizer is not None and normalizer.normalize_str("A") == "a"

    @property
    def marks_case(self) -> bool:
        """Whether segments say how words are written; written to tokenizer_config.json."""
        return self.config.get("token_types") == "case"

    def mark_case(self, marks: bool) -> None:
        self.config = {k: v for k, v in self.config.items() if k != "token_types"}
        self.config |= {"token_types": "case"} if marks else {}

    def _assembled(self, parts: list[Any], max_length: int) -> Encoded:
        ends = [*([self.between] if len(parts) > 1 else []), [self.sep]]
        sizes = [len(part.ids) for part in parts]
        kept = _fitting(sizes, max_length, 1 + sum(map(len, ends))) if max_length else sizes
        ids, sentences, offsets = [self.cls], [0], [(0, 0)]
        words: list[int | None] = [None]
        for number, (part, n, end) in enumerate(zip(parts, kept, ends, strict=True)):
            ids += [*part.ids[:n], *end]
            sentences += [number] * (n + len(end))
            offsets += [*part.offsets[:n], *[(0, 0)] * len(end)]
            words += [*part.word_ids[:n], *[None] * len(end)]
        return Encoded(ids, sentences, offsets, words, sum(sizes) - sum(kept))

    @guarded
    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, spaced like the tokens; special tokens are left out."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)

    def piece(self, id: int) -> str:
        """The token with this id."""
        raise NotImplementedError

    def continues(self, id: int) -> bool:
        """Whether the token continues a word."""
        raise NotImplementedError

    def save(self, folder: Path, max_length: int = 512) -> None:
        """Write the files that `transformers.AutoTokenizer` reads, for a model of `max_length` positions."""
        write_files(folder, self.tokenizer, self.config | {"model_max_length": max_length}, common={})


class Subwords(EncoderTokenizer):
    """The tokenizer of a published encoder; its special tokens have the names of its files.

    A token is shown as the text it adds, so one that starts a word starts with a space.
    """

    def __init__(self, tokenizer: Tokenizer, config: dict[str, Any]):
        names = {role: content(config.get(f"{role}_token")) or ROBERTA[role] for role in ROLES}
        super().__init__(tokenizer, config | {f"{role}_token": name for role, name in names.items()}, [*names.values()])
        self.mask_token = names["mask"]
        self.is_bytes = type(tokenizer.decoder).__name__ == "ByteLevel"
        self.between = self._between()

    @guarded
    def _between(self) -> list[int]:
        """The tokens between two texts; for RoBERTa, two </s>."""
        both = self.tokenizer.encode("a", "a")
        text = [place for place, special in enumerate(both.special_tokens_mask) if not special]
        if not text:
            raise CheckpointError("expected a tokenizer that can encode the letter a")
        return [both.ids[place] for place in range(text[0], text[-1]) if place not in text] or [self.sep]

    @classmethod
    def load(cls, folder: Path) -> "Subwords":
        folder = Path(folder)
        path = folder / "tokenizer.json"
        config = read_json_if_any(folder / "special_tokens_map.json") | read_json_if_any(
            folder / "tokenizer_config.json"
        )
        return with_path(path, cls, open_tokenizer(path), config)

    def typed(self, texts: Sequence[str]) -> list[str]:
        return [text.replace(MASK, self.mask_token) for text in texts]

    def encode_words(self, words: Sequence[str], max_length: int = 0) -> Encoded:
        """A byte-level token that starts a word includes its space, even if words are given one by one."""
        return super().encode_words([f" {word}" if self.is_bytes else word for word in words], max_length)

    def piece(self, id: int) -> str:
        name = self.tokenizer.id_to_token(id) or ""
        return printable(to_bytes(name)) if self.is_bytes else name.replace("▁", " ")

    def continues(self, id: int) -> bool:
        return not self.piece(id).startswith(" ")


def case_of(word: str) -> int:
    """How a word is written, in `CASES`."""
    letters = [c for c in word if c.isalpha()]
    if not any(map(str.isupper, letters)):
        return 0
    if len(letters) > 1 and all(map(str.isupper, letters)):
        return 2
    return 1 if letters[0].isupper() and not any(map(str.isupper, letters[1:])) else 3


def _fitting(sizes: list[int], length: int, special: int) -> list[int]:
    """How much of one or two parts is kept: the longer is cut first (`longest_first`)."""
    room = length - special
    if room < len(sizes):
        raise ConfigError(f"a length of {length} leaves no room for text next to {special} special tokens")
    if sum(sizes) <= room:
        return sizes
    if len(sizes) == 1:
        return [room]
    short = min(*sizes, room // 2)
    return [short, room - short] if sizes[0] <= sizes[1] else [room - short, short]
