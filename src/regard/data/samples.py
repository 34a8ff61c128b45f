"""Batches of things that are no text: images, clips, series, rows of a table; their order depends on seed and epoch."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from regard.data.batch import moved
from regard.data.loader import check_same
from regard.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Samples:
    """B things, what is known of each in `inputs`, and what is to be said of them in `targets`."""

    inputs: tuple[Tensor | None, ...]  # B … each: what the model is called with; None: nothing of that kind here
    targets: Tensor  # B classes, or B … numbers
    rows: np.ndarray  # B: where each stands in its source

    def __len__(self) -> int:
        return len(self.rows)

    def to(self, device: torch.device | str) -> "Samples":
        inputs = tuple(None if x is None else moved(x, device) for x in self.inputs)
        return replace(self, inputs=inputs, targets=moved(self.targets, device))

    def split(self) -> list["Samples"]:
        """Two halves, for a device that cannot hold the whole; a single thing stays whole."""
        if len(self) < 2:
            return [self]
        return [self.part(slice(None, len(self) // 2)), self.part(slice(len(self) // 2, None))]

    def part(self, rows: slice) -> "Samples":
        inputs = tuple(None if x is None else x[rows] for x in self.inputs)
        return Samples(inputs, self.targets[rows], self.rows[rows])


class Source(Protocol):
    """Things by number. `batch` with a generator may change them (augmentation); without one they are as they are."""

    def __len__(self) -> int: ...

    def batch(self, rows: np.ndarray, chance: np.random.Generator | None = None) -> Samples: ...


class SamplesLoader:
    """Batches without end: `next(loader)`. Every epoch visits each thing once, or with `odds` draws by them.

    `odds` (one a thing, of any sum) make rare classes as frequent as common ones; an epoch is as long as before.
    """

    def __init__(
        self,
        source: Source,
        batch: int,
        seed: int,
        odds: np.ndarray | None = None,
        rank: int = 0,
        world: int = 1,
        content: int = 0,
    ):
        if batch < 1:
            raise ConfigError(f"a batch holds at least one sample, got batch={batch}")
        self.source, self.batch, self.seed, self.odds = source, batch, seed, odds
        self.rank, self.world, self.content = rank, world, content
        self._begin(0, 0)

    def __iter__(self) -> "SamplesLoader":
        return self

    def __next__(self) -> Samples:
        if self.position == len(self._plan):
            self._begin(self.epoch + 1, 0)
        rows = self._plan[self.position]
        chance = np.random.default_rng((self.seed, self.epoch, self.position, self.rank, 1))
        self.position += 1
        return self.source.batch(rows, chance)

    @property
    def batches_per_epoch(self) -> int:
        return len(self._plan)

    def state(self) -> dict[str, int]:
        return {"epoch": self.epoch, "position": self.position} | self._depends()

    def restore(self, state: dict[str, int]) -> None:
        """Continue from `state`: the next batch is the one that would have come."""
        check_same(state, self._depends())
        self._begin(state["epoch"], state["position"])

    def _depends(self) -> dict[str, int]:
        return {"samples": len(self.source)} | {n: getattr(self, n) for n in ("seed", "batch", "world", "content")}

    def _begin(self, epoch: int, position: int) -> None:
        """The plan of an epoch: equal batches, but for the last; each rank takes every `world`-th, and as many."""
        self.epoch, self.position = epoch, position
        chance, count = np.random.default_rng((self.seed, epoch)), len(self.source)
        if self.odds is None:
            order = chance.permutation(count)
        else:
            order = chance.choice(count, count, p=self.odds / self.odds.sum())
        batches = [order[i : i + self.batch] for i in range(0, count, self.batch)]
        batches = batches[: max(1, len(batches) // self.world) * self.world]
        self._plan = batches[self.rank :: self.world]


def class_odds(labels: np.ndarray) -> np.ndarray:
    """One for each thing, so that all classes are drawn alike."""
    return 1.0 / np.bincount(labels)[labels]


def in_order(source: Source, batch: int) -> Iterator[Samples]:
    """One pass over all, always the same and unchanged: for validation. No last batch is dropped."""
    for start in range(0, len(source), batch):
        yield source.batch(np.arange(start, min(start + batch, len(source))))
