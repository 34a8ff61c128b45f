"""Prepared sentence pairs and labelled texts as sources of batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from regard.data.batch import Labelled, Pairs, collate, collate_labelled
from regard.data.loader import Source, TokenBudget
from regard.data.mentions import Mentions, Text
from regard.data.store import Flat, Ragged
from regard.errors import ConfigError

Resegment = Callable[[Sequence[np.ndarray], np.ndarray, int, int], list[np.ndarray]]  # sentences, rows, epoch, side
SHORT = 3  # tokens of a short source
LABELLED_TOGETHER = 20  # batches: they differ in each epoch, at the price of a little padding


@dataclass(frozen=True, eq=False)
class PairSource(Source):
    """Pairs, with lengths padded to a `multiple`. With `dropout`, training sentences are segmented anew each time, and
    become slightly longer than planned. Those of at most `SHORT` source tokens occur `repeat_short` times."""

    source: Ragged  # ids without end tokens
    target: Ragged
    eos: int
    pad: int
    start: int | None = None  # the decoder's first input; None: `pad`
    multiple: int = 1
    dropout: Resegment | None = None
    repeat_short: int = 1
    epoch: int = 0
    unit = "pairs"
    rows: np.ndarray = field(init=False)

    def __post_init__(self):
        if self.multiple < 1:
            raise ConfigError(f"multiple must be at least 1, got {self.multiple}")
        times = np.where(self.source.lengths <= SHORT, self.repeat_short, 1)
        rows = np.repeat(np.arange(len(self.source)), times)
        lengths = np.stack([self.source.lengths, self.target.lengths], 1)[rows] + 1  # with the end token
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "lengths", lengths)
        object.__setattr__(self, "widths", -(-lengths // self.multiple) * self.multiple)

    def __len__(self) -> int:
        return len(self.rows)

    def for_epoch(self, seed: int, epoch: int, rng: np.random.Generator) -> "PairSource":
        return replace(self, epoch=epoch)

    def settings(self) -> dict[str, int]:
        return {"pairs": len(self), "multiple": self.multiple}

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> Pairs:
        rows = self.rows[rows]
        source, target = ([side[i] for i in rows.tolist()] for side in (self.source, self.target))
        if self.dropout is not None and rng is not None:
            source, target = (self.dropout(side, rows, self.epoch, i) for i, side in enumerate((source, target)))
        return collate(source, target, self.eos, self.pad, self.multiple, rows, self.start)


class LabelledSource(Source):
    """Texts with a label each, or one for each word. With `mentions`, training sentences have other names in them each
    time, and may become slightly longer than planned."""

    unit = "texts"

    def __init__(
        self, ids: Ragged, second: Flat, labels: Flat | Ragged, pad: int, cases: Ragged | None = None,
        mentions: Mentions | None = None,
    ):  # fmt: skip
        self.ids, self.second, self.labels, self.pad, self.cases = ids, second, labels, pad, cases
        self.mentions = mentions
        self.per_piece = isinstance(labels, Ragged)
        self.lengths = self.widths = ids.lengths[:, None]

    def __len__(self) -> int:
        return len(self.ids)

    def plan(self, tokens: int) -> TokenBudget:
        """With a label per word, a batch has at most `tokens` padded tokens. With one per text, it has that many on
        average, and always equally many texts: otherwise those in small batches would count more."""
        return TokenBudget(tokens, LABELLED_TOGETHER, evenly=not self.per_piece)

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> Labelled:
        texts = [self.text(i) for i in rows.tolist()]
        if self.mentions is not None and rng is not None:
            texts = [self.mentions.replace(text, rng) for text in texts]
        ids, labels, cases = zip(*texts, strict=True)
        seconds = [len(x) if self.per_piece else int(self.second[i]) for x, i in zip(ids, rows.tolist(), strict=True)]
        types = None if self.cases is None else cases
        return collate_labelled(list(zip(ids, seconds, labels, strict=True)), self.pad, self.per_piece, rows, types)

    def text(self, row: int) -> Text:
        return self.ids[row], np.atleast_1d(self.labels[row]), None if self.cases is None else self.cases[row]
