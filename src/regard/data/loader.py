"""The order of training: which examples form a batch, and the order of batches.

A source builds batches from indices of examples; a plan chooses the indices of an epoch's batches. An epoch is a pure
function of (seed, epoch), so a position in the data is two integers.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.errors import CheckpointError, ConfigError, DataError

SORTED_TOGETHER = 200  # batches: enough for little padding, while batches still differ in each epoch


class Source(ABC):
    """Examples by index.

    A source may differ in each epoch (`for_epoch`), and has one form that never changes (`fixed`). For plans that sort
    by length, `widths`, N K, are the padded sizes of its K sides, of which `lengths` are real.
    """

    unit = "samples"  # what an example is called in a saved state
    widths: np.ndarray
    lengths: np.ndarray

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> Any:
        """The batch of these examples, which may be augmented only with `rng`."""

    def for_epoch(self, seed: int, epoch: int, rng: np.random.Generator) -> "Source":
        """The examples of a training epoch; the plan continues with the same `rng`."""
        return self

    def fixed(self) -> "Source":
        """The examples of a validation pass."""
        return self

    def settings(self) -> dict[str, int]:
        """What a position in the data depends on."""
        return {self.unit: len(self)}


class Plan(ABC):
    """How the examples of an epoch are divided into batches."""

    @abstractmethod
    def batches(self, source: Source, rng: np.random.Generator) -> list[np.ndarray]:
        """The epoch's batches in order."""

    @abstractmethod
    def in_order(self, source: Source) -> list[np.ndarray]:
        """The batches of a validation pass: every example once, in a fixed order."""

    def settings(self) -> dict[str, int]:
        """What a position in the data depends on."""
        return {}

    def room(self, source: Source, rows: np.ndarray) -> int:
        """The positions of a batch, with padding."""
        return int(source.widths[rows].max(0).sum()) * len(rows)


class Loader:
    """Endless batches: `next(loader)`. Processes that train together have the same ones, and share each step.

    `content` is a fingerprint of the examples; `files`, if not 0, of their files.
    """

    def __init__(self, source: Source, plan: Plan, seed: int, content: int = 0, files: int = 0):
        self.source, self.plan, self.seed = source, plan, seed
        self.fingerprint = {"files": files} if files else {"content": content}
        self._begin(0, 0)

    def __iter__(self) -> "Loader":
        return self

    def __next__(self) -> Any:
        self.skip()
        rng = np.random.default_rng((self.seed, self.epoch, self.position - 1, 0, 1))
        return self._examples.batch(self._batches[self.position - 1], rng)

    def skip(self) -> None:
        """Skip the next batch without loading it."""
        if self.position == len(self._batches):
            self._begin(self.epoch + 1, 0)
        self.position += 1

    @property
    def batches_per_epoch(self) -> int:
        """Batches of the current epoch; other epochs may have slightly more or fewer."""
        return len(self._batches)

    @property
    def padding(self) -> float:
        """The share of the current epoch that is padding."""
        room = sum(self.plan.room(self._examples, rows) for rows in self._batches)
        return 1 - sum(int(self._examples.lengths[rows].sum()) for rows in self._batches) / room

    def state(self) -> dict[str, int]:
        """The position, and the settings it depends on."""
        return {"epoch": self.epoch, "position": self.position} | self._settings()

    def restore(self, state: dict[str, int]) -> None:
        """Continue from `state`: the next batch is the one that would have followed."""
        check_same(state, self._settings())
        self._begin(state["epoch"], state["position"])

    def _settings(self) -> dict[str, int]:
        return self.source.settings() | self.plan.settings() | {"seed": self.seed} | self.fingerprint

    def _begin(self, epoch: int, position: int) -> None:
        self.epoch, self.position = epoch, position
        rng = np.random.default_rng((self.seed, epoch))
        self._examples = self.source.for_epoch(self.seed, epoch, rng)
        if not len(self._examples):
            raise DataError(f"there are no {self._examples.unit} to train on")
        self._batches = self.plan.batches(self._examples, rng)


def in_order(source: Source, plan: Plan) -> Iterator[Any]:
    """One deterministic pass over all examples, without augmentation, for validation."""
    examples = source.fixed()
    for rows in plan.in_order(examples):
        yield examples.batch(rows)


def check_same(state: dict[str, int], settings: dict[str, int]) -> None:
    """Raise `CheckpointError` if a saved position was for other data or settings."""
    for name, value in settings.items():
        if name in state and state[name] != value:
            changed = f"the saved data position was for {name}={state[name]}, this run has {name}={value}"
            changed = "the data has changed since this run was saved" if name in ("content", "files") else changed
            raise CheckpointError(f"{changed}; resume with the data and settings it was started with")


@dataclass(frozen=True, eq=False)
class FixedSize(Plan):
    """Batches of `size` examples in random order; the last may have fewer.

    Every epoch visits each example once, or with `odds` (one per example, of any sum) samples as many by them.
    """

    size: int
    odds: np.ndarray | None = None

    def __post_init__(self):
        if self.size < 1:
            raise ConfigError(f"a batch must hold at least one sample, got batch={self.size}")

    def batches(self, source: Source, rng: np.random.Generator) -> list[np.ndarray]:
        count = len(source)
        if self.odds is None:
            order = rng.permutation(count)
        else:
            order = rng.choice(count, count, p=self.odds / self.odds.sum())
        return slices(order, self.size)

    def in_order(self, source: Source) -> list[np.ndarray]:
        return slices(np.arange(len(source)), self.size)

    def settings(self) -> dict[str, int]:
        return {"batch": self.size}


@dataclass(frozen=True)
class EvenSize(Plan):
    """Batches in random order of at most `size` examples, all of about equal size."""

    size: int

    def batches(self, source: Source, rng: np.random.Generator) -> list[np.ndarray]:
        order = rng.permutation(len(source))
        return np.array_split(order, -(-len(order) // self.size))

    def in_order(self, source: Source) -> list[np.ndarray]:
        return slices(np.arange(len(source)), self.size)


def slices(order: np.ndarray, size: int) -> list[np.ndarray]:
    return [order[i : i + size] for i in range(0, len(order), size)]


def class_odds(labels: np.ndarray) -> np.ndarray:
    """The odds of each example, so that all classes are sampled equally often."""
    return 1.0 / np.bincount(labels)[labels]


@dataclass(frozen=True)
class TokenBudget(Plan):
    """Batches of examples of similar length, with at most `tokens` padded tokens on the larger side, B * max(S, T).

    A longer example is a batch by itself. `evenly`: batches hold that many tokens on average, and equally many
    examples. Each epoch visits every example exactly once.
    """

    tokens: int
    sorted_together: int = SORTED_TOGETHER
    evenly: bool = False

    def __post_init__(self):
        if self.tokens < 1:
            raise ConfigError(f"a batch must hold at least one token, got tokens={self.tokens}")

    def batches(self, source: Source, rng: np.random.Generator) -> list[np.ndarray]:
        widths = source.widths
        shuffled = rng.permutation(len(widths))
        size = max(1, int(self.sorted_together * self.tokens / widths.max(1).mean()))
        batches: list[np.ndarray] = []
        for chunk in np.array_split(shuffled, max(1, round(len(shuffled) / size))):
            ordered = chunk[np.lexsort(widths[chunk].T)]
            few = min(len(chunk), max(1, round(len(chunk) * self.sorted_together / size)))  # no batch is empty
            batches += np.array_split(ordered, few) if self.evenly else self._cut(ordered, widths)
        return [batches[i] for i in rng.permutation(len(batches))]

    def in_order(self, source: Source) -> list[np.ndarray]:
        return self._cut(np.lexsort(source.widths.T), source.widths)

    def settings(self) -> dict[str, int]:
        return {"tokens": self.tokens}

    def _cut(self, rows: np.ndarray, widths: np.ndarray) -> list[np.ndarray]:
        """Cut sorted rows into the longest runs with (number of rows) * (largest width) <= tokens."""
        cuts, start, widest = [], 0, 0
        for i, width in enumerate(widths[rows].max(1).tolist()):
            wider = max(widest, width)
            if i > start and (i + 1 - start) * wider > self.tokens:
                cuts.append(i)
                start, wider = i, width
            widest = wider
        return np.split(rows, cuts)
