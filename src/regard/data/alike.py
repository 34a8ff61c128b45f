"""Pairs of texts that mean the same, or questions and answers, for contrastive learning."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regard.data import fingerprint, split
from regard.data.batch import Samples
from regard.data.folders import Say, to_stderr, user_path
from regard.data.labelled import own_tokenizer
from regard.data.loader import Source
from regard.data.settings import AlikeConfig
from regard.data.skipped import has
from regard.data.tables import read_table
from regard.data.tokenizers.encoder import EncoderTokenizer
from regard.errors import ConfigError, DataError
from regard.words import count

FIRST = ("text", "first", "anchor", "query", "question", "sentence1", "sentence")
SECOND = ("second", "positive", "answer", "passage", "sentence2")
Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class AlikeData:
    train: Pairs
    valid: Pairs
    tokenizer: EncoderTokenizer
    files: int

    def report(self) -> str:
        return f"{count(len(self.train), 'pair')} to train on, {len(self.valid):,} for validation"


def load_alike(config: AlikeConfig, say: Say = to_stderr) -> AlikeData:
    if not config.path:
        raise ConfigError("train on what? give --data pairs.csv, a table with two columns of texts")
    pairs = read(config.path, config, say)
    valid = read(config.valid, config, say) if config.valid else []
    if not valid:
        contents = [split.digest(first) for first, _ in pairs]
        aside = split.hold_out(contents, None, config.held_out, "pairs", rule=config.split_rule)
        pairs, valid = ([p for p, held in zip(pairs, aside, strict=True) if held == side] for side in (False, True))
    if len(pairs) < 2 or len(valid) < 2:
        raise DataError(f"{config.path}: {count(len(pairs) + len(valid), 'pair')}; expected at least 2 in each part")
    files = fingerprint.combined([first for first, _ in pairs], [second for _, second in pairs])
    return AlikeData(pairs, valid, own_tokenizer(config.tokenizer), files)


def read(path: str, config: AlikeConfig, say: Say) -> Pairs:
    table = read_table(user_path(path), (config.text, config.second), say=say, strict=config.strict)
    first = table.find(config.text, FIRST, "text", 0)
    second = table.find(config.second, SECOND, "second", 1)
    table = table.usable({first: has("text"), second: has("second text")}, config.strict, say)
    return list(zip(table.text(first), table.text(second), strict=True))


class AlikeSource(Source):
    """Pairs by number; both sides padded."""

    def __init__(self, pairs: Pairs, tokenizer: EncoderTokenizer, max_length: int):
        self.pad = tokenizer.pad
        self.sides = [tokenizer.encode_ids(side, max_length)[0] for side in map(list, zip(*pairs, strict=True))]

    def __len__(self) -> int:
        return len(self.sides[0])

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> Samples:
        inputs: list[Any] = []
        for side in self.sides:
            inputs += padded([side[row] for row in rows], self.pad)
        return Samples(tuple(inputs), torch.arange(len(rows)), rows)


def padded(texts: Sequence[list[int]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([len(ids) for ids in texts])
    size = int(lengths.max())
    return torch.tensor([ids + [pad] * (size - len(ids)) for ids in texts]), lengths
