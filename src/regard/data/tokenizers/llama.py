"""The tokenizer of Llama 2, Mistral, TinyLlama and Gemma: SentencePiece's BPE with byte fallback."""

import re
from typing import Any

from tokenizers import AddedToken, Tokenizer

from regard.data.tokenizers.pretrained import Pretrained
from regard.errors import CheckpointError

BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class LlamaPieces(Pretrained):
    """A space is written `▁`. Except in Gemma, a text starts with one, and so does the text of its first token."""

    @staticmethod
    def found_in(known: dict[str, Any]) -> bool:
        """Whether tokenizer.json is one of these: BPE with byte fallback and a start token."""
        marks = {token["content"] for token in known.get("added_tokens") or []}
        bytewise = known["model"]["type"] == "BPE" and known["model"].get("byte_fallback") is True
        return bytewise and bool(marks & {"<s>", "<bos>"})

    def check(self, tokenizer: Tokenizer) -> None:
        if "<0x0A>" not in tokenizer.get_vocab():
            raise CheckpointError("expected a tokenizer with a token for every byte; this one has no <0x0A>")

    def to_bytes(self, piece: str) -> bytes:
        match = BYTE.fullmatch(piece)
        return bytes([int(match[1], 16)]) if match else piece.replace("▁", " ").encode()

    def added_bytes(self, token: AddedToken) -> bytes:
        """Gemma's runs of spaces and line breaks are added tokens."""
        return super().added_bytes(token) if token.special else self.to_bytes(token.content)
