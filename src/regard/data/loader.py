"""The order of training: which pairs form a batch, and which batch comes when.

An epoch's plan is a pure function of (seed, epoch), so a position in the data is two integers.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from regard.data.batch import Pairs, collate
from regard.data.tokenizers.bpe import Dropout
from regard.errors import CheckpointError, ConfigError, DataError

CHUNK = 200  # batches sorted together: enough for little padding, while sentences still meet new company each epoch


class PairSource(Protocol):
    """What a loader needs: `TokenPairs`, or anything like it."""

    def __len__(self) -> int: ...
    def __getitem__(self, i: int, /) -> tuple[np.ndarray, np.ndarray]: ...
    def lengths(self) -> tuple[np.ndarray, np.ndarray]: ...


class Loader:
    """Batches of pairs of like length, without end: `next(loader)`.

    A batch holds at most `tokens` padded tokens on its larger side, B * max(S, T); a pair longer than that comes alone.
    Each epoch visits every pair exactly once, over all ranks together, and gives every rank as many batches.
    With `dropout` the sentences are cut anew each time, and grow somewhat beyond what was planned.
    """

    def __init__(
        self,
        pairs: PairSource,
        eos: int,
        pad: int,
        tokens: int,
        seed: int,
        rank: int = 0,
        world: int = 1,
        multiple: int = 1,
        dropout: Dropout | None = None,
        content: int = 0,
    ):
        if tokens < 1 or multiple < 1:
            raise ConfigError(f"a batch holds at least one token, got tokens={tokens}, multiple={multiple}")
        if len(pairs) < world:
            raise DataError(f"{len(pairs)} pairs cannot be shared by {world} processes; start fewer")
        self.pairs, self.eos, self.pad, self.dropout = pairs, eos, pad, dropout
        self.tokens, self.seed, self.rank, self.world, self.multiple = tokens, seed, rank, world, multiple
        self.content = content  # a number that is another one for other text
        self._widths = widths(pairs, multiple)
        self._begin(0, 0)

    def __iter__(self) -> "Loader":
        return self

    def __next__(self) -> Pairs:
        if self.position == len(self._plan):
            self._begin(self.epoch + 1, 0)
        rows = self._plan[self.position]
        self.position += 1
        return _load(self.pairs, rows, self.eos, self.pad, self.multiple, self.dropout, self.epoch)

    @property
    def batches_per_epoch(self) -> int:
        """Batches this rank sees in the current epoch; another epoch may have a few more or less."""
        return len(self._plan)

    @property
    def padding(self) -> float:
        """The part of this rank's current epoch that is padding, both sides together."""
        return padding(self._plan, self._widths, self.pairs)

    def state(self) -> dict[str, int]:
        """Where we are, and what the plan depends on."""
        return {"epoch": self.epoch, "position": self.position} | self._depends()

    def restore(self, state: dict[str, int]) -> None:
        """Continue from `state`: the next batch is the one that would have come."""
        check_same(state, self._depends())
        self._begin(state["epoch"], state["position"])

    def _depends(self) -> dict[str, int]:
        names = ("seed", "tokens", "world", "multiple", "content")
        return {"pairs": len(self.pairs)} | {name: getattr(self, name) for name in names}

    def _begin(self, epoch: int, position: int) -> None:
        self.epoch, self.position = epoch, position
        self._plan = plan(self._widths, self.tokens, self.seed, epoch, self.world)[self.rank :: self.world]


def check_same(state: dict[str, int], depends: dict[str, int]) -> None:
    """`CheckpointError` when a saved position was for another plan than the one that `depends` on these numbers."""
    for name, now in depends.items():
        if name in state and state[name] != now:
            raise CheckpointError(
                f"the saved data position was for {name}={state[name]}, this run has {name}={now}; "
                "resume with the data and settings it was started with"
            )


def in_order(pairs: PairSource, eos: int, pad: int, tokens: int) -> Iterator[Pairs]:
    """One pass over all pairs, sorted by length, always the same: for validation."""
    w = widths(pairs)
    for rows in cut(np.lexsort((w[:, 0], w[:, 1])), w, tokens):
        yield _load(pairs, rows, eos, pad)


def widths(pairs: PairSource, multiple: int = 1) -> np.ndarray:
    """N 2: source and target lengths with the end mark, rounded up to `multiple`."""
    lengths = np.stack(pairs.lengths(), 1) + 1
    return -(-lengths // multiple) * multiple


def plan(
    widths: np.ndarray,
    tokens: int,
    seed: int,
    epoch: int,
    world: int = 1,
    sorted_together: int = CHUNK,
    evenly: bool = False,
) -> list[np.ndarray]:
    """The epoch's batches as rows, in order; their number is a multiple of `world`. `evenly`: all have as many rows."""
    random = np.random.default_rng((seed, epoch))
    shuffled = random.permutation(len(widths))
    size = max(1, int(sorted_together * tokens / widths.max(1).mean()))
    batches: list[np.ndarray] = []
    for chunk in np.array_split(shuffled, max(1, round(len(shuffled) / size))):
        w = widths[chunk]
        ordered = chunk[np.lexsort((w[:, 0], w[:, 1]))]
        some = min(len(chunk), max(1, round(len(chunk) * sorted_together / size)))  # no batch is empty
        batches += np.array_split(ordered, some) if evenly else cut(ordered, widths, tokens)
    even_out(batches, widths, world)
    return [batches[i] for i in random.permutation(len(batches))]


def even_out(batches: list[np.ndarray], widths: np.ndarray, world: int) -> None:
    """Make the number of batches a multiple of `world`, in place: nothing dropped, nothing twice."""
    missing = -len(batches) % world
    if missing <= len(widths) - len(batches):
        for _ in range(missing):  # halve the largest
            i = max(range(len(batches)), key=lambda i: len(batches[i]))
            middle = len(batches[i]) // 2
            batches[i : i + 1] = [batches[i][:middle], batches[i][middle:]]
        return
    for _ in range(len(batches) % world):  # hardly a pair per rank: join the smallest, whatever the budget
        batches.sort(key=lambda rows: len(rows) * int(widths[rows].max()))
        batches[:2] = [np.concatenate(batches[:2])]


def padding(batches: list[np.ndarray], widths: np.ndarray, pairs: PairSource) -> float:
    """The part of all padded positions, both sides, that holds no token."""
    room = sum(int(widths[rows].max(0).sum()) * len(rows) for rows in batches)
    used = np.stack(pairs.lengths(), 1) + 1
    return 1 - sum(int(used[rows].sum()) for rows in batches) / room


def cut(rows: np.ndarray, widths: np.ndarray, tokens: int) -> list[np.ndarray]:
    """Cut sorted rows into the longest runs with (number of rows) * (largest width) <= tokens."""
    cuts, start, widest = [], 0, 0
    for i, width in enumerate(widths[rows].max(1).tolist()):
        wider = max(widest, width)
        if i > start and (i + 1 - start) * wider > tokens:
            cuts.append(i)
            start, wider = i, width
        widest = wider
    return np.split(rows, cuts)


def _load(
    pairs: PairSource,
    rows: np.ndarray,
    eos: int,
    pad: int,
    multiple: int = 1,
    dropout: Dropout | None = None,
    epoch: int = 0,
) -> Pairs:
    sources, targets = zip(*(pairs[i] for i in rows.tolist()), strict=True)
    if dropout is not None:
        sources, targets = (dropout(side, rows, epoch, i) for i, side in enumerate((sources, targets)))
    return collate(sources, targets, eos, pad, multiple, rows)
