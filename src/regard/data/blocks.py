"""The order of training on text: which tokens form a row, which rows a batch, and which batch comes when.

An epoch's plan is a pure function of (seed, epoch), so a position in the data is two integers. All batches have the
same shape; what is missing is padding that does not count.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from regard.data.batch import Tokens
from regard.data.loader import check_same
from regard.data.store import TokenFile
from regard.errors import ConfigError, DataError

OPEN = 128  # rows that a record may still join while records are packed

Row = list[tuple[int, int]]  # the stretches of tokens in a row: from, to


class Blocks:
    """Batches of rows of `context` targets, without end: `next(blocks)`.

    A text is cut at a place that differs from epoch to epoch into blocks of `context` targets, the first and the last
    of what is left; the epoch visits every target exactly once, over all ranks together, and gives every rank as many
    batches. Records are packed instead, several to a row, each a document of its own; one that is longer than a row is
    cut at its end.
    """

    def __init__(
        self,
        tokens: TokenFile,
        context: int,
        tokens_per_batch: int,
        seed: int,
        rank: int = 0,
        world: int = 1,
        content: int = 0,
    ):
        if context < 1 or tokens_per_batch < 1:
            raise ConfigError(f"a batch wants at least one token, got {tokens_per_batch} in rows of {context}")
        if not tokens.records and len(tokens) <= context:
            raise DataError(
                f"the text has {len(tokens):,} tokens to train on, one row wants {context + 1:,}; "
                f"give more text, or a context of at most {max(1, len(tokens) - 1)}"
            )
        self.tokens, self.context, self.tokens_per_batch = tokens, context, tokens_per_batch
        self.seed, self.rank, self.world = seed, rank, world
        self.content = content  # a number that is another one for other text
        self.rows = max(1, tokens_per_batch // context)
        self._begin(0, 0)

    def __iter__(self) -> "Blocks":
        return self

    def __next__(self) -> Tokens:
        if self.position == self.batches_per_epoch:
            self._begin(self.epoch + 1, 0)
        chosen = self._plan[self.position]
        self.position += 1
        return _load(self.tokens, [self._rows[i] for i in chosen.tolist()], self.rows, self.context, chosen)

    @property
    def batches_per_epoch(self) -> int:
        """Batches this rank sees in the current epoch; another epoch may have one more or less."""
        return len(self._plan)

    def state(self) -> dict[str, int]:
        """Where we are, and what the plan depends on."""
        return {"epoch": self.epoch, "position": self.position} | self._depends()

    def restore(self, state: dict[str, int]) -> None:
        """Continue from `state`: the next batch is the one that would have come."""
        check_same(state, self._depends())
        self._begin(state["epoch"], state["position"])

    def _depends(self) -> dict[str, int]:
        names = ("context", "tokens_per_batch", "seed", "world", "content")
        return {"length": len(self.tokens)} | {name: getattr(self, name) for name in names}

    def _begin(self, epoch: int, position: int) -> None:
        self.epoch, self.position = epoch, position
        random = np.random.default_rng((self.seed, epoch))
        if self.tokens.records:
            self._rows = _packed(self.tokens, self.context, random.permutation(self.tokens.records))
        else:
            self._rows = _Stretches(len(self.tokens), self.context, int(random.integers(self.context)))
        if len(self._rows) < self.world:
            raise DataError(f"{len(self._rows)} rows cannot be shared by {self.world} processes; start fewer")
        order = random.permutation(len(self._rows))
        batches = -(-len(order) // (self.rows * self.world)) * self.world
        self._plan = np.array_split(order, batches)[self.rank :: self.world]


def in_order(tokens: TokenFile, context: int, tokens_per_batch: int) -> Iterator[Tokens]:
    """One pass over every target, always the same, each seen with what its row holds before it: for validation."""
    rows = max(1, tokens_per_batch // context)
    if tokens.records:
        all_rows = _packed(tokens, context, np.arange(tokens.records))
    else:
        all_rows = _Stretches(len(tokens), context, 0)
    for start in range(0, len(all_rows), rows):
        chosen = np.arange(start, min(start + rows, len(all_rows)))
        yield _load(tokens, [all_rows[i] for i in chosen.tolist()], rows, context, chosen)


class _Stretches:
    """A text in rows of one stretch each. Neighbours share a token: the last target here is the first input there."""

    def __init__(self, length: int, context: int, first: int):
        starts = np.arange(first, length - 1, context)
        self.starts = np.concatenate([[0], starts]) if first else starts
        self.stops = np.append(self.starts[1:], length - 1) + 1

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, i: int) -> Row:
        return [(int(self.starts[i]), int(self.stops[i]))]


def _packed(tokens: TokenFile, context: int, order: np.ndarray) -> list[Row]:
    """The records, in this order, each into the first open row with room for it (first fit, Johnson 1973)."""
    assert tokens.offsets is not None
    starts = tokens.offsets[:-1]
    lengths = np.minimum(np.diff(tokens.offsets), context + 1)
    free = np.zeros(OPEN, np.int64)
    rows: list[Row] = []
    place = np.full(OPEN, -1)  # of each open row in `rows`
    for i in order.tolist():
        start, length = int(starts[i]), int(lengths[i])
        slot = int(np.argmax(free >= length))
        if free[slot] < length:
            slot = int(np.argmin(free))  # no room anywhere: the fullest row is closed
            free[slot], place[slot] = context + 1, len(rows)
            rows.append([])
        rows[place[slot]].append((start, start + length))
        free[slot] -= length
    return rows


def _load(tokens: TokenFile, rows: Sequence[Row], size: int, context: int, numbers: np.ndarray) -> Tokens:
    """The batch of these rows, padded to `size` rows of `context` targets."""
    ids = np.zeros((size, context + 1), np.int64)
    counts = np.zeros((size, context), bool)
    documents = np.zeros((size, context), np.int64) if tokens.answers is not None else None
    for row, stretches in enumerate(rows):
        place = 0
        for document, (start, stop) in enumerate(stretches, 1):
            end = place + stop - start
            ids[row, place:end] = tokens.ids.read(start, stop)
            # The first token of a stretch is no target: nothing before it is to be seen.
            counts[row, place : end - 1] = True if tokens.answers is None else tokens.answers.read(start + 1, stop)
            if documents is not None:
                documents[row, place:end] = document
            place = end
    full = bool(counts.all())
    return Tokens(
        ids=torch.from_numpy(ids),
        counts=None if full else torch.from_numpy(counts),
        documents=None if documents is None else torch.from_numpy(documents),
        rows=np.concatenate([numbers, np.full(size - len(rows), -1)]),
        host_counts=None if full else counts,
    )
