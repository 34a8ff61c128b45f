"""Text to tokens and back."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from regard.errors import CheckpointError
from regard.jsonfile import read_json


class Tokenizer(Protocol):
    """A translator's tokenizer. Ids come without `</s>`."""

    size: int
    eos: int
    unk: int
    pad: int

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]: ...
    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]: ...
    def decode(self, ids: Iterable[int]) -> str: ...
    def piece(self, id: int) -> str: ...
    def words(self, ids: Sequence[int]) -> list[list[int]]: ...


class TextTokenizer(Protocol):
    """A language model's tokenizer: `Characters`, `ByteLevel` or `Pretrained`."""

    size: int
    eos: int | None  # ends a document or an answer
    ends: tuple[int, ...]  # all ids that end generation; `eos` first
    bos: int | None  # the published tokenizer's prefix of a text
    chat_template: str  # "" if there is none
    special: dict[str, str]  # bos_token, eos_token and so on, by the names chat templates use

    def encode(self, text: str, special: bool = False) -> list[int]: ...
    def encode_batch(self, texts: Sequence[str], special: bool = False) -> list[list[int]]: ...
    def decode(self, ids: Iterable[int]) -> str: ...
    def piece(self, id: int) -> str: ...
    def token_bytes(self, id: int) -> bytes: ...
    def save(self, folder: Path, max_length: int = 1024) -> None: ...


FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "source.spm", "target.spm", "vocab.json",
         "spiece.model", "merges.txt", "vocab.txt")  # fmt: skip


def files_of(folder: Path) -> list[Path]:
    """The files of a model folder's tokenizer."""
    return [path for name in FILES if (path := folder / name).is_file()]


def load(folder: Path, writes: bool = False) -> Any:
    """The tokenizer of a model folder: a `TextTokenizer` for a language model, a `Tokenizer` for a translator, an
    `EncoderTokenizer` for BERT and its relatives; for BART, a `Tokenizer` if it `writes`, otherwise an encoder's."""
    from regard.data.tokenizers.bart import BartPieces
    from regard.data.tokenizers.bpe import BPE
    from regard.data.tokenizers.chars import Characters
    from regard.data.tokenizers.encoder import Subwords
    from regard.data.tokenizers.llama import LlamaPieces
    from regard.data.tokenizers.pretrained import Pretrained
    from regard.data.tokenizers.spm import MarianPieces
    from regard.data.tokenizers.unigram import Unigram
    from regard.data.tokenizers.wordpiece import WordPiece

    if MarianPieces.found_in(folder):
        return MarianPieces.load(folder)
    try:
        settings = read_json(Path(folder) / "tokenizer.json")
        model, decoder = settings["model"]["type"], (settings["decoder"] or {}).get("type")
        fallback = LlamaPieces.found_in(settings)
        masks = {token["content"] for token in settings.get("added_tokens") or []} & {"<mask>", "[MASK]"}
    except (OSError, CheckpointError, TypeError, KeyError, AttributeError):
        model, decoder, fallback, masks = "BPE", "", False, set()  # its `load` reports the error
    if model == "WordLevel":
        return Characters.load(folder)
    if model == "WordPiece" or WordPiece.found_in(folder):
        return WordPiece.load(folder)
    if fallback:
        return LlamaPieces.load(folder)
    if masks:
        return BartPieces(Subwords.load(folder)) if writes else Subwords.load(folder)
    if model == "Unigram":
        return Unigram.load(folder)
    return BPE.load(folder) if model == "BPE" and decoder != "ByteLevel" else Pretrained.load(folder)
