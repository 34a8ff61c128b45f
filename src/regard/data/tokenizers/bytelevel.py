"""Byte-level BPE (Radford et al. 2019), learned here: 256 bytes, then merges, then the end token.

The id of a byte is the byte. A vocabulary of 257 has no merges at all: pure bytes.
"""

import json
from collections.abc import Iterable

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from regard.data.tokenizers.pretrained import CHARACTER_OF, Pretrained
from regard.errors import ConfigError

EOS = "<|endoftext|>"
SMALLEST = 256 + 1


class ByteLevel(Pretrained):
    """Byte-level tokens learned from text; merges stay within GPT-2's words."""

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> "ByteLevel":
        """Learn a vocabulary of at most `size`, fewer from little text, deterministically."""
        if size < SMALLEST:
            raise ConfigError(f"a vocabulary of {size} is too small; expected at least {SMALLEST} (256 are bytes)")
        merges: list[tuple[str, str]] = []
        if size > SMALLEST:
            learner = Tokenizer(models.BPE())
            learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            trainer = trainers.BpeTrainer(
                vocab_size=size - 1, min_frequency=2, show_progress=False, initial_alphabet=list(CHARACTER_OF.values())
            )
            learner.train_from_iterator(texts, trainer)
            merges = [(left, right) for left, right in json.loads(learner.to_str())["model"]["merges"]]
        pieces = dict.fromkeys([*(CHARACTER_OF[b] for b in range(256)), *(left + right for left, right in merges)])
        tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens([AddedToken(EOS, special=True, normalized=False)])
        # split_special_tokens: like ours, special tokens in a text are plain text
        return cls(tokenizer, {"eos_token": EOS, "pad_token": EOS, "split_special_tokens": True})
