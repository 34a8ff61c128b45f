"""BART's tokenizer: RoBERTa's tokens, in texts that start with <s> on both sides."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from regard.data.tokenizers.bpe import group_words
from regard.data.tokenizers.encoder import Subwords


class BartPieces:
    """With the interface of `BPE`: ids come without `</s>`."""

    def __init__(self, subwords: Subwords):
        self.subwords, self.size, self.unk, self.pad = subwords, subwords.size, subwords.unk, subwords.pad
        self.bos, self.eos = subwords.cls, subwords.sep

    def save(self, folder: Path, max_length: int = 1024) -> None:
        self.subwords.save(folder, max_length)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [ids[:-1] for ids in self.subwords.encode_ids(texts)[0]]

    encode_targets = encode_batch  # one vocabulary for both sides

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`; special tokens, and ids beyond the vocabulary, are left out."""
        return self.subwords.decode(i for i in ids if i < self.size)

    def piece(self, id: int) -> str:
        return self.subwords.piece(id) if id < self.size else ""

    @cached_property
    def starts(self) -> np.ndarray:
        return np.array([not self.subwords.continues(i) for i in range(self.size)])

    def words(self, ids: Sequence[int]) -> list[list[int]]:
        """Positions in `ids` grouped into words: a word starts at a token with a space; <s> and </s> are in none."""
        return group_words(ids, self.starts, {self.bos, self.eos, self.pad})
