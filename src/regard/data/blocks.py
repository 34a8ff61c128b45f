"""Text in rows of one shape: which tokens form a row. Padding does not count."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch

from regard import limits
from regard.data.batch import Tokens
from regard.data.loader import EvenSize, Source
from regard.data.text import TokenFile
from regard.errors import ConfigError, DataError

OPEN = 128  # rows open for further records while packing

Row = list[tuple[int, int]]  # the spans of tokens in a row: from, to


@dataclass(frozen=True)
class TextRows(Source):
    """Rows of `context` targets, `size` of them in every batch.

    A text is cut into blocks of `context` targets from an offset that differs by epoch, with shorter blocks at both
    ends; an epoch visits every target exactly once. Records are packed instead, several to a row, each its own
    document; one that is longer than a row is truncated.
    """

    tokens: TokenFile
    context: int
    tokens_per_batch: int
    rows: Sequence[Row] = ()  # of an epoch
    unit = "rows"

    def __post_init__(self):
        if self.context < 1 or self.tokens_per_batch < 1:
            raise ConfigError(
                f"a batch must hold at least one token, got {self.tokens_per_batch} in rows of {self.context}"
            )

        limits.require(
            3 * 8 * self.tokens_per_batch, f"a batch of {self.tokens_per_batch:,} tokens", "--set tokens=4096"
        )

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def size(self) -> int:
        """Rows of a batch."""
        return max(1, self.tokens_per_batch // self.context)

    @property
    def plan(self) -> EvenSize:
        return EvenSize(self.size)

    def for_epoch(self, seed: int, epoch: int, rng: np.random.Generator) -> "TextRows":
        if self.tokens.records:
            every = self._mixed([stop - start for start, stop in self._sources()], rng)
            return self._with_records(rng.permutation(every))
        length = len(self.tokens)
        if length <= self.context:
            raise DataError(
                f"the text has {length:,} tokens to train on, one row needs {self.context + 1:,}; "
                f"give more text, or a context of at most {max(1, length - 1)}"
            )
        first = int(rng.integers(self.context))
        rows = [_cut(start, stop, self.context, first) for start, stop in self._sources()]
        return replace(self, rows=_Stretches(np.concatenate(rows)[self._mixed([*map(len, rows)], rng)]))

    def _sources(self) -> Iterator[tuple[int, int]]:
        """The start and end of each source, in ids or records."""
        ends = [end for end, _ in self.tokens.sources] or [self.tokens.records or len(self.tokens)]
        return pairwise([0, *ends])

    def _mixed(self, counts: list[int], rng: np.random.Generator) -> np.ndarray:
        """The rows of an epoch: those of each source repeated by its weight, the fractional part at random."""
        if not self.tokens.sources:
            return np.arange(sum(counts))
        chosen, first = [], 0
        for count, (_, weight) in zip(counts, self.tokens.sources, strict=True):
            times, fraction = divmod(weight, 1)
            chosen += [first + np.tile(np.arange(count), int(times))]
            chosen += [first + rng.permutation(count)[: round(fraction * count)]]
            first += count
        return np.concatenate(chosen)

    def fixed(self) -> "TextRows":
        if self.tokens.records:
            return self._with_records(np.arange(self.tokens.records))
        return replace(self, rows=_Stretches(_cut(0, len(self.tokens), self.context, 0)))

    def settings(self) -> dict[str, int]:
        return {"length": len(self.tokens), "context": self.context, "tokens_per_batch": self.tokens_per_batch}

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> Tokens:
        tokens, shape = self.tokens, (self.size, self.context)
        ids = np.zeros((self.size, self.context + 1), np.int64)
        counts = np.zeros(shape, bool)
        documents = np.zeros(shape, np.int64) if tokens.answers is not None else None
        for row, number in enumerate(rows.tolist()):
            place = 0
            for document, (start, stop) in enumerate(self.rows[number], 1):
                end = place + stop - start
                ids[row, place:end] = tokens.ids.read(start, stop)
                # The first token of a span is not a target: nothing before it is visible.
                counts[row, place : end - 1] = True if tokens.answers is None else tokens.answers.read(start + 1, stop)
                if documents is not None:
                    documents[row, place:end] = document
                place = end
        full = bool(counts.all())
        return Tokens(
            ids=torch.from_numpy(ids),
            counts=None if full else torch.from_numpy(counts),
            documents=None if documents is None else torch.from_numpy(documents),
            rows=np.concatenate([rows, np.full(self.size - len(rows), -1)]),
            host_counts=None if full else counts,
        )

    def _with_records(self, order: np.ndarray) -> "TextRows":
        """The records, in this order, each in the first open row with room (first fit, Johnson 1973)."""
        offsets = self.tokens.offsets
        assert offsets is not None
        lengths = np.minimum(np.diff(offsets), self.context + 1)
        free = np.zeros(OPEN, np.int64)
        rows: list[Row] = []
        place = np.full(OPEN, -1)  # the index of each open row in `rows`
        for i in order.tolist():
            start, length = int(offsets[i]), int(lengths[i])
            slot = int(np.argmax(free >= length))
            if free[slot] < length:
                slot = int(np.argmin(free))  # no room anywhere: the fullest row is closed
                free[slot], place[slot] = self.context + 1, len(rows)
                rows.append([])
            rows[place[slot]].append((start, start + length))
            free[slot] -= length
        return replace(self, rows=rows)


def _cut(begin: int, end: int, context: int, first: int) -> np.ndarray:
    """R 2: the start and end of a text's rows, the first of which ends after `first` targets. Neighbours share a token:
    one's last target is the next one's first input."""
    starts = np.arange(begin + first, end - 1, context)
    starts = np.concatenate([[begin], starts]) if first else starts
    return np.stack([starts, np.append(starts[1:], end - 1) + 1], 1)


class _Stretches(Sequence[Row]):
    """Rows of one span each."""

    def __init__(self, stretches: np.ndarray):
        self.stretches = stretches  # R 2

    def __len__(self) -> int:
        return len(self.stretches)

    def __getitem__(self, i: int) -> Row:  # type: ignore[override]
        start, stop = self.stretches[i].tolist()
        return [(start, stop)]
