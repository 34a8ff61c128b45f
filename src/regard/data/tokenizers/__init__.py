"""Text to pieces and back."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol


class Tokenizer(Protocol):
    """What a translator asks of its tokenizer. Ids come without `</s>`."""

    size: int
    eos: int
    unk: int
    pad: int

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]: ...
    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]: ...
    def decode(self, ids: Iterable[int]) -> str: ...
    def piece(self, id: int) -> str: ...
    def words(self, ids: Sequence[int]) -> list[list[int]]: ...


def load(folder: Path) -> Tokenizer:
    """The tokenizer of a model folder: ours, or the SentencePiece pair of a public Marian model."""
    from regard.data.tokenizers.bpe import BPE
    from regard.data.tokenizers.spm import MarianPieces

    return MarianPieces.load(folder) if MarianPieces.found_in(folder) else BPE.load(folder)
