"""WordPiece (Schuster and Nakajima 2012; Wu et al. 2016), as in BERT: repeatedly the longest piece that matches.

Words are first separated from punctuation; a piece that continues a word starts with `##`. `[CLS]` precedes a text and
`[SEP]` follows it, and the second text of a pair.
"""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from regard.data.tokenizers.encoder import EncoderTokenizer
from regard.data.tokenizers.opened import open_tokenizer, with_path, write_files
from regard.errors import CheckpointError, ConfigError, DataError
from regard.jsonfile import read_json_if_any

PAD, UNK, CLS, SEP, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
INSIDE = "##"
MOST_CHARACTERS = 1_000  # characters with their own piece; a word with any other is [UNK]
VOCABULARY = "vocab.txt"  # one piece per line, in the order of ids


class WordPiece(EncoderTokenizer):
    """BERT's tokenizer. `[MASK]` and the other special tokens in a text are recognised, as in transformers."""

    def __init__(self, tokenizer: Tokenizer, config: dict[str, Any] | None = None):
        super().__init__(tokenizer, config or {}, SPECIAL)

    # -- training, reading and writing ----------------------------------------------------------------------------

    @classmethod
    def train(cls, lines: Iterable[str], size: int, lower: bool = True) -> "WordPiece":
        """Learn a vocabulary of `size`, deterministically. `lines` is read twice: give a list, not a generator."""
        learner = _empty(lower, None, True, {UNK: 0})
        characters = _characters(lines, learner)
        if not characters:
            raise DataError("no text to learn a vocabulary from")
        least = len(SPECIAL) + 2 * len(characters)
        if size < least:
            raise ConfigError(
                f"a vocabulary of {size} is too small: {len(characters)} characters, starting a word or not, and "
                f"{len(SPECIAL)} special tokens make {least}"
            )
        # The library numbers `##x` in an order that differs from run to run; passed as special tokens, all characters
        # are numbered first.
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
        """Whether a folder has vocab.txt and no newer file."""
        return (Path(folder) / VOCABULARY).is_file() and not (Path(folder) / "tokenizer.json").is_file()

    @classmethod
    def load(cls, folder: Path) -> "WordPiece":
        """The tokenizer of a model folder: tokenizer.json, or vocab.txt with tokenizer_config.json."""
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

    def piece(self, id: int) -> str:
        """The piece with this id; one that continues a word starts with `##`."""
        return self.tokenizer.id_to_token(id) or f"[unused{id}]"

    def continues(self, id: int) -> bool:
        return self.piece(id).startswith(INSIDE)


def _empty(lower: bool, accents: bool | None, chinese: bool, vocab: dict[str, int]) -> Tokenizer:
    """BERT's own pipeline: clean and lower-case, split at spaces and punctuation, then longest pieces of `vocab`."""
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
    """vocab.txt, read with the settings of tokenizer_config.json."""
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
    """The most frequent characters of the cleaned text, sorted."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(learner.normalizer.normalize_str(line))
    visible = [c for c in counts if not c.isspace()]
    return sorted(sorted(visible, key=lambda c: (-counts[c], c))[:MOST_CHARACTERS])
