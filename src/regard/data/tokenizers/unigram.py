"""T5's tokenizer: SentencePiece's unigram model (Kudo 2018), one vocabulary for input and output."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from regard.data.tokenizers.bpe import EOS, PAD, SPACE, UNK, group_words
from regard.data.tokenizers.opened import guarded, open_tokenizer, vocabulary_size, with_path, write_files
from regard.errors import CheckpointError
from regard.jsonfile import read_json_if_any


class Unigram:
    """With the interface of `BPE`: ids come without `</s>`."""

    def __init__(self, tokenizer: Tokenizer, config: dict[str, Any]):
        self.tokenizer, self.config, self.size = tokenizer, config, vocabulary_size(tokenizer)
        vocab = tokenizer.get_vocab(with_added_tokens=True)
        if missing := [token for token in (EOS, UNK, PAD) if token not in vocab]:
            raise CheckpointError(f"expected a tokenizer with {EOS}, {UNK} and {PAD}; it has no {missing[0]}")
        self.eos, self.unk, self.pad = vocab[EOS], vocab[UNK], vocab[PAD]
        self.pieces = [tokenizer.id_to_token(i) or "" for i in range(self.size)]
        self.starts = np.array([piece.startswith(SPACE) for piece in self.pieces])

    @classmethod
    def load(cls, folder: Path) -> "Unigram":
        path = Path(folder) / "tokenizer.json"
        return with_path(path, cls, open_tokenizer(path), read_json_if_any(path.with_name("tokenizer_config.json")))

    def save(self, folder: Path, max_length: int = 512) -> None:
        """Write tokenizer.json and tokenizer_config.json, as `transformers.AutoTokenizer` reads them."""
        write_files(folder, self.tokenizer, self.config | {"model_max_length": max_length}, common={})

    @guarded
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [e.ids for e in self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    encode_targets = encode_batch  # one vocabulary for both sides

    @guarded
    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`; special tokens, and ids beyond the vocabulary, are left out."""
        return self.tokenizer.decode([i for i in ids if i < self.size], skip_special_tokens=True)

    def piece(self, id: int) -> str:
        """The token with this id, with `▁` for a space; "" for an id beyond the vocabulary, as padded heads have."""
        return self.pieces[id] if id < self.size else ""

    def words(self, ids: Sequence[int]) -> list[list[int]]:
        """Positions in `ids` grouped into words: a word starts at a token that starts with `▁`; `</s>` is in none."""
        return group_words(ids, self.starts, {self.eos, self.pad})
