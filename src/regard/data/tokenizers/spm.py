"""The tokenizer of public Marian folders (OPUS-MT): a SentencePiece model per side, and one list of ids for both."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.tokenizers.bpe import EOS, PAD, SPACE, UNK, group_words
from regard.errors import CheckpointError, MissingExtra, reason
from regard.jsonfile import read_json

SOURCE, TARGET, VOCAB = "source.spm", "target.spm", "vocab.json"


class MarianPieces:
    """With the interface of `BPE`. A piece that `vocab.json` does not list is `<unk>`, whatever SentencePiece says.

    `encode` is for sources and recognises the language token of many-to-many models (`>>fra<< Hello`); `encode_targets`
    segments translations with the other side's model.
    """

    def __init__(self, source: Any, target: Any, ids: dict[str, int]):
        missing = [token for token in (EOS, UNK, PAD) if token not in ids]
        if missing or sorted(ids.values()) != list(range(len(ids))):
            what = f"lacks {', '.join(missing)}" if missing else "does not number its pieces from 0 without gaps"
            raise CheckpointError(f"{VOCAB} {what}; is it Marian's?")
        self.source, self.target, self.ids = source, target, ids
        self.size = len(ids)
        self.eos, self.unk, self.pad = ids[EOS], ids[UNK], ids[PAD]
        self.pieces = sorted(ids, key=ids.__getitem__)
        self.starts = np.array([piece.startswith(SPACE) for piece in self.pieces])

    @classmethod
    def load(cls, folder: Path) -> "MarianPieces":
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError:
            raise MissingExtra(f"the tokenizer of {folder} ({SOURCE})", "spm") from None
        folder = Path(folder)
        path = folder / VOCAB
        try:
            ids = read_json(path)
            source = SentencePieceProcessor(model_proto=(path := folder / SOURCE).read_bytes())
            target = SentencePieceProcessor(model_proto=(path := folder / TARGET).read_bytes())
            return cls(source, target, ids)
        except FileNotFoundError:
            raise CheckpointError(f"{folder} has no {path.name}; a Marian folder has it next to its weights") from None
        except (ValueError, RuntimeError, OSError, TypeError) as e:
            raise CheckpointError(f"{path} cannot be read ({reason(e)}); is the download complete?") from None
        except CheckpointError as e:
            raise CheckpointError(f"{folder}: {e}") from None

    @staticmethod
    def found_in(folder: Path) -> bool:
        return (Path(folder) / SOURCE).is_file()

    def encode(self, text: str) -> list[int]:
        """The ids of a source text, without `</s>`."""
        mark, text = _language(text)
        return [self.ids.get(piece, self.unk) for piece in [*mark, *self.source.encode(text, out_type=str)]]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of translations, without `</s>`."""
        return [[self.ids.get(p, self.unk) for p in self.target.encode(text, out_type=str)] for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`; special tokens are left out."""
        return self.target.decode([self.pieces[i] for i in ids if i not in (self.eos, self.unk, self.pad)])

    def piece(self, id: int) -> str:
        """The token with this id, with `▁` for a space."""
        return self.pieces[id]

    def words(self, ids: Sequence[int]) -> list[list[int]]:
        """Positions in `ids` grouped into words: a word starts at a token that starts with `▁`; `</s>` is in none."""
        return group_words(ids, self.starts, {self.eos, self.pad})


def _language(text: str) -> tuple[list[str], str]:
    """Split `>>fra<< Hello` into the target language, a single token, and the text."""
    if text.startswith(">>") and (end := text.find("<<")) != -1:
        return [text[: end + 2]], text[end + 2 :]
    return [], text
