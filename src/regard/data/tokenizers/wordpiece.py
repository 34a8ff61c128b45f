"""WordPiece (Schuster and Nakajima 2012; Wu et al. 2016), as BERT has it: the longest piece that fits, again and again.

A word is cut off its punctuation first; a piece that goes on within a word opens with `##`. `[CLS]` stands before a
text and `[SEP]` after it, and after a second text of a pair.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from regard.data.tokenizers.opened import guarded, open_tokenizer, vocabulary_size, with_path, write_files
from regard.errors import CheckpointError, ConfigError, DataError
from regard.jsonfile import read_json_if_any

PAD, UNK, CLS, SEP, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
INSIDE = "##"
MOST_CHARACTERS = 1_000  # that get a piece of their own; a word with any other is [UNK]
VOCABULARY = "vocab.txt"  # one piece a line, in the order of their ids


@dataclass(frozen=True)
class Encoded:
    """A text, or a pair, as BERT reads it, with [CLS] and [SEP]. All lists are equally long."""

    ids: list[int]
    sentences: list[int]  # 0, and 1 for the second text of a pair with its [SEP]
    offsets: list[tuple[int, int]]  # where the piece stands in its text; (0, 0) for [CLS] and [SEP]
    words: list[int | None]  # the number of the word in its text; None for [CLS] and [SEP]
    cut: int = 0  # pieces left out for want of room


class WordPiece:
    """Pieces of words. `[MASK]` and the other special tokens are found in a text, as transformers finds them."""

    def __init__(self, tokenizer: Tokenizer, config: dict[str, Any] | None = None):
        self.tokenizer, self.config = tokenizer, config or {}
        self.size = vocabulary_size(tokenizer)
        self.pad, self.unk, self.cls, self.sep, self.mask = (self._id(token) for token in SPECIAL)

    def _id(self, token: str) -> int:
        id = self.tokenizer.token_to_id(token)
        if id is None:
            raise CheckpointError(f"expected a WordPiece vocabulary with {' '.join(SPECIAL)}; it has no {token}")
        return id

    # -- making, reading and writing ------------------------------------------------------------------------------

    @classmethod
    def train(cls, lines: Iterable[str], size: int, lower: bool = True) -> "WordPiece":
        """Learn `size` pieces in all. Same lines, same result. `lines` is read twice: give a list, not a generator."""
        learner = _empty(lower, None, True, {UNK: 0})
        characters = _characters(lines, learner)
        if not characters:
            raise DataError("no text to learn a vocabulary from")
        least = len(SPECIAL) + 2 * len(characters)
        if size < least:
            raise ConfigError(
                f"a vocabulary of {size} is too small: {len(characters)} characters, which may open a word or not, and "
                f"{len(SPECIAL)} special tokens make {least}"
            )
        # The library numbers `##x` as it comes upon them, in an order that differs from run to run; given as special
        # tokens, all characters have their numbers before it begins.
        trainer = trainers.WordPieceTrainer(
            vocab_size=size,
            show_progress=False,
            special_tokens=[*SPECIAL, *characters, *(INSIDE + c for c in characters)],
            initial_alphabet=characters,
            limit_alphabet=len(characters),
        )
        learner.train_from_iterator(lines, trainer)
        return cls(_empty(lower, None, True, json.loads(learner.to_str())["model"]["vocab"]), _settings(lower))

    @staticmethod
    def found_in(folder: Path) -> bool:
        """Whether a folder has a vocabulary of this kind and no newer file that says more."""
        return (Path(folder) / VOCABULARY).is_file() and not (Path(folder) / "tokenizer.json").is_file()

    @classmethod
    def load(cls, folder: Path) -> "WordPiece":
        """The tokenizer of a model folder: tokenizer.json, or vocab.txt and what tokenizer_config.json says of it."""
        folder = Path(folder)
        config = read_json_if_any(folder / "tokenizer_config.json")
        path = folder / (VOCABULARY if cls.found_in(folder) else "tokenizer.json")
        tokenizer = _from_list(path, config) if path.name == VOCABULARY else open_tokenizer(path)
        return with_path(path, cls, tokenizer, config)

    def save(self, folder: Path, max_length: int = 512) -> None:
        """Write tokenizer.json, tokenizer_config.json and vocab.txt, as `transformers.AutoTokenizer` reads them."""
        config = _settings(True) | {k: v for k, v in self.config.items() if k != "name_or_path"}
        write_files(folder, self.tokenizer, config | {"model_max_length": max_length}, common={})
        pieces = [self.piece(i) + "\n" for i in range(self.size)]
        (Path(folder) / VOCABULARY).write_text("".join(pieces), "utf-8", newline="\n")

    # -- text and ids ---------------------------------------------------------------------------------------------

    def encode(self, text: str, pair: str | None = None, max_length: int = 0) -> Encoded:
        """[CLS] text [SEP], or [CLS] text [SEP] pair [SEP]; at most `max_length` tokens (0: all there are)."""
        return self.encode_batch([text], None if pair is None else [pair], max_length)[0]

    @guarded
    def encode_batch(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, max_length: int = 0
    ) -> list[Encoded]:
        """`encode` for many texts, on all cores."""
        first = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        if pairs is None:
            return [self._assembled([a], max_length) for a in first]
        second = self.tokenizer.encode_batch(list(pairs), add_special_tokens=False)
        return [self._assembled([a, b], max_length) for a, b in zip(first, second, strict=True)]

    @guarded
    def encode_words(self, words: Sequence[str], max_length: int = 0) -> Encoded:
        """A text that is cut into words already: `Encoded.words` counts these, and offsets are within a word."""
        encoding = self.tokenizer.encode(list(words), is_pretokenized=True, add_special_tokens=False)
        return self._assembled([encoding], max_length)

    @guarded
    def encode_ids(self, texts: Sequence[str], max_length: int = 0) -> tuple[list[list[int]], int]:
        """The ids alone of each text, which is quicker, and how many texts were cut to fit."""
        every = [e.ids for e in self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]
        room = max_length - 2 if max_length else max(map(len, every), default=0)
        return [[self.cls, *ids[:room], self.sep] for ids in every], sum(len(ids) > room for ids in every)

    def _assembled(self, parts: list[Any], max_length: int) -> Encoded:
        sizes = [len(part.ids) for part in parts]
        kept = _fitting(sizes, max_length - 1 - len(parts)) if max_length else sizes
        ids, sentences, offsets = [self.cls], [0], [(0, 0)]
        words: list[int | None] = [None]
        for number, (part, n) in enumerate(zip(parts, kept, strict=True)):
            ids += [*part.ids[:n], self.sep]
            sentences += [number] * (n + 1)
            offsets += [*part.offsets[:n], (0, 0)]
            words += [*part.word_ids[:n], None]
        return Encoded(ids, sentences, offsets, words, sum(sizes) - sum(kept))

    @guarded
    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, lower-cased and spaced as the pieces are; special tokens are left out."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)

    def piece(self, id: int) -> str:
        """The piece with this id; one that goes on within a word opens with `##`."""
        return self.tokenizer.id_to_token(id) or f"[unused{id}]"


def _empty(lower: bool, accents: bool | None, chinese: bool, vocab: dict[str, int]) -> Tokenizer:
    """BERT's own pipeline: tidy and lower-case, cut at spaces and punctuation, then the longest pieces of `vocab`."""
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token=UNK, max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=chinese, strip_accents=accents, lowercase=lower
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix=INSIDE)
    if CLS in vocab and SEP in vocab:
        known = [token for token in SPECIAL if token in vocab]
        tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in known])
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{CLS} $A {SEP}",
            pair=f"{CLS} $A {SEP} $B:1 {SEP}:1",
            special_tokens=[(CLS, vocab[CLS]), (SEP, vocab[SEP])],
        )
    return tokenizer


def _from_list(path: Path, config: dict[str, Any]) -> Tokenizer:
    """vocab.txt, read as tokenizer_config.json says."""
    try:
        pieces = path.read_text("utf-8").split("\n")
    except UnicodeDecodeError as e:
        raise CheckpointError(f"{path} cannot be read ({e})") from None
    vocab = {piece.rstrip("\r"): id for id, piece in enumerate(pieces[:-1] if pieces[-1] == "" else pieces)}
    accents = config.get("strip_accents")
    chinese = config.get("tokenize_chinese_chars") is not False
    return _empty(bool(config.get("do_lower_case", True)), None if accents is None else bool(accents), chinese, vocab)


def _settings(lower: bool) -> dict[str, Any]:
    """tokenizer_config.json."""
    tokens = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    return {"tokenizer_class": "BertTokenizer", "do_lower_case": lower, "tokenize_chinese_chars": True, **tokens}


def _characters(lines: Iterable[str], learner: Tokenizer) -> list[str]:
    """The most frequent characters of the tidied text, sorted."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(learner.normalizer.normalize_str(line))
    visible = [c for c in counts if not c.isspace()]
    return sorted(sorted(visible, key=lambda c: (-counts[c], c))[:MOST_CHARACTERS])


def _fitting(sizes: list[int], room: int) -> list[int]:
    """How much of one part, or of two, is kept: the longer gives first, as everywhere (`longest_first`)."""
    if room < len(sizes):
        raise ConfigError(f"a length of {room + 1 + len(sizes)} leaves no room for text besides [CLS] and [SEP]")
    if sum(sizes) <= room:
        return sizes
    if len(sizes) == 1:
        return [room]
    short = min(*sizes, room // 2)
    return [short, room - short] if sizes[0] <= sizes[1] else [room - short, short]
