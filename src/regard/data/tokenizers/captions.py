"""GPT-2's tokens for a decoder that starts with padding, as our captioners' do."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from regard.data.tokenizers.pretrained import Pretrained


class CaptionPieces(Pretrained):
    """Published byte-level tokens and one for padding; a token that starts a word is shown as `▁…`."""

    @property
    def pad(self) -> int:
        return self.size

    @property
    def unk(self) -> int:
        return self.pad  # never used: every text can be encoded

    @classmethod
    def load(cls, folder: Path) -> "CaptionPieces":
        tokenizer = super().load(folder)
        assert isinstance(tokenizer, cls)
        return tokenizer

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        return self.encode_batch(texts)

    def decode(self, ids: Iterable[int]) -> str:
        return super().decode(ids).strip()

    def piece(self, id: int) -> str:
        text = super().piece(id)
        return f"▁{text[1:]}" if text.startswith(" ") else text

    def words(self, ids: Sequence[int]) -> list[list[int]]:
        """The positions of each word's tokens."""
        words: list[list[int]] = []
        for place, id in enumerate(ids):
            if not words or self.token_bytes(id).startswith(b" "):
                words.append([])
            words[-1].append(place)
        return words
