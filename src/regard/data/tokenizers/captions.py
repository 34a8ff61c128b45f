"""GPT-2's pieces for a decoder that is begun by padding, as those of our captioners are."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from regard.data.tokenizers.pretrained import Pretrained


class CaptionPieces(Pretrained):
    """Published byte-level pieces and one more, for padding; a piece that begins a word is written `▁…`."""

    @property
    def pad(self) -> int:
        return self.size

    @property
    def unk(self) -> int:
        return self.pad  # never: every text can be written

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
        """The places of the pieces of each word."""
        words: list[list[int]] = []
        for place, id in enumerate(ids):
            if not words or self.token_bytes(id).startswith(b" "):
                words.append([])
            words[-1].append(place)
        return words
