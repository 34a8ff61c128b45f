"""The one place where ranks meet."""

from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

Number = TypeVar("Number", int, float, Tensor)


@dataclass(frozen=True)
class World:
    """Who I am among `size` processes that train one model. A plain `regard train` is a world of one."""

    rank: int = 0
    size: int = 1

    @property
    def main(self) -> bool:
        """Whether this process writes files and talks to the person."""
        return self.rank == 0

    def sum(self, x: Number) -> Number:
        """The sum of `x` over all ranks, on every rank."""
        assert self.size == 1, "several processes are not built yet"
        return x
