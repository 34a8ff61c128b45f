"""Keys and values of the tokens decoded so far. Owned by whoever decodes, passed as an argument, written in place."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class LayerCache:
    """One layer's share. `slots` says where the tokens of this step are written, `stop` how far to look.

    Slots as a tensor let a step be replayed on a GPU; a slice is quicker where the host keeps count.
    """

    keys: Tensor  # B H C K
    values: Tensor  # B H C K
    slots: Tensor | slice  # T
    stop: int

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write this step's keys and values, return all so far: B H S K each."""
        if isinstance(self.slots, slice):
            self.keys[:, :, self.slots], self.values[:, :, self.slots] = k, v
        else:
            self.keys.index_copy_(2, self.slots, k)
            self.values.index_copy_(2, self.slots, v)
        return self.keys[:, :, : self.stop], self.values[:, :, : self.stop]


class Cache:
    """Room for `capacity` tokens of every layer, taken once."""

    def __init__(self, layers: int, rows: int, heads: int, capacity: int, head_width: int, like: Tensor):
        shape = (layers, rows, heads, capacity, head_width)
        make = torch.zeros if like.is_cuda else torch.empty  # a GPU looks at the unwritten part too, with weight 0
        self.keys, self.values = (make(shape, dtype=like.dtype, device=like.device) for _ in range(2))

    def layer(self, index: int, slots: Tensor | slice, stop: int) -> LayerCache:
        return LayerCache(self.keys[index], self.values[index], slots, stop)

    def select(self, rows: Tensor, stop: int) -> None:
        """Keep some rows of the batch, in order, and what is written of them: finished sentences leave."""
        for whole in (self.keys, self.values):
            whole[:, : len(rows), :, :stop] = whole[:, rows, :, :stop]
        self.keys, self.values = self.keys[:, : len(rows)], self.values[:, : len(rows)]
