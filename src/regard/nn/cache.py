"""Keys and values of the tokens decoded so far: owned by the caller, passed as an argument, written in place."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from regard.errors import ConfigError
from regard.nn.masks import Causal, Documents, Everything, Mask, TableMask, UpTo, Window
from regard.nn.positions import restarting


@dataclass
class LayerCache:
    """One layer's cache. `slots` is where this step's tokens are written, `stop` the number of keys to attend to.

    Slots as a tensor let a GPU replay the step; a slice is faster where the host knows the positions.
    """

    keys: Tensor  # B H C K
    values: Tensor  # B H C K
    slots: Tensor | slice  # T, or B T where every row has its own
    stop: int

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write this step's keys and values and return all so far: B H S K each."""
        if isinstance(self.slots, slice):
            self.keys[:, :, self.slots], self.values[:, :, self.slots] = k, v
        elif self.slots.ndim == 2:  # compiled, this happens in place; `scatter_` would copy the cache
            rows, heads = (torch.arange(n, device=k.device) for n in k.shape[:2])
            where = rows[:, None, None], heads[:, None], self.slots[:, None]  # B H T
            self.keys.index_put_(where, k)
            self.values.index_put_(where, v)
        else:
            self.keys.index_copy_(2, self.slots, k)
            self.values.index_copy_(2, self.slots, v)
        return self.keys[:, :, : self.stop], self.values[:, :, : self.stop]


class RaggedCache(LayerCache):
    """Every row is at its own position, on a CPU: `slots`, B·H·T, are indices over all rows, heads and slots."""

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        slots = cast("Tensor", self.slots)
        for whole, new in ((self.keys, k), (self.values, v)):
            whole.view(-1, whole.size(3)).index_copy_(0, slots, new.flatten(0, 2))
        return self.keys[:, :, : self.stop], self.values[:, :, : self.stop]


class Cache:
    """Keys and values of every layer, allocated once for `capacity` tokens."""

    def __init__(self, layers: int, rows: int, heads: int, capacity: int, head_width: int, like: Tensor):
        shape = (rows, heads, capacity, head_width)
        make = torch.zeros if like.is_cuda else torch.empty  # a GPU reads unwritten slots too, with weight 0
        room = [make(shape, dtype=like.dtype, device=like.device) for _ in range(2 * layers)]
        self.keys, self.values = room[:layers], room[layers:]  # separate tensors: a compiled step writes them in place

    def part(self, rows: slice) -> "Cache":
        """A view of these rows."""
        part = object.__new__(Cache)
        part.keys, part.values = [x[rows] for x in self.keys], [x[rows] for x in self.values]
        return part

    def copy(self, source: Tensor, target: Tensor, stop: int) -> None:
        """Copy the first `stop` slots of the rows `source` to the rows `target`."""
        for one in (*self.keys, *self.values):
            one[target, :, :stop] = one[source, :, :stop]

    def layer(self, index: int, slots: Tensor | slice, stop: int) -> LayerCache:
        return LayerCache(self.keys[index], self.values[index], slots, stop)

    def ragged(self, slots: Tensor, stop: int) -> list[LayerCache]:
        """All layers, for slots B T, on a CPU: one index into all keys is faster than an index of three dimensions."""
        rows, heads, capacity, _ = self.keys[0].shape
        starts = torch.arange(rows * heads).view(rows, heads, 1) * capacity
        flat = (starts + slots[:, None]).flatten()
        return [RaggedCache(keys, values, flat, stop) for keys, values in zip(self.keys, self.values, strict=True)]

    def clear(self, slots: slice) -> None:
        """Zero slots that may be read before they are written: weight 0 times uninitialised memory may be NaN."""
        for one in (*self.keys, *self.values):
            one[:, :, slots] = 0.0

    def select(self, rows: Tensor, stop: int) -> None:
        """Keep these rows, in this order, up to slot `stop`. In place unless there are more rows than before."""
        for half in (self.keys, self.values):
            for i, whole in enumerate(half):
                more = len(rows) > whole.size(0)
                new = whole.new_zeros(len(rows), *whole.shape[1:]) if more else whole[: len(rows)]
                new[:, :, :stop] = whole[rows, :, :stop]
                half[i] = new


@dataclass
class Step:
    """What a decoder's layers need to know about the tokens of this pass."""

    where: Tensor  # T or B T: the position of each token in its text
    mask: Mask
    caches: Sequence[LayerCache | None]  # L; None: tokens attend to this pass only
    stop: int = 0  # keys to attend to when there are caches

    @property
    def keys(self) -> Tensor:
        """The positions of the keys, S or B S."""
        return torch.arange(self.stop, device=self.where.device) if self.stop else self.where

    def within(self, window: int) -> Mask:
        """The mask, narrowed to the last `window` tokens; 0: no window."""
        keys = self.stop or self.where.size(-1)
        return Window(self.mask, self.where, self.keys, window) if 0 < window < keys else self.mask


def at_once(ids: Tensor, documents: Tensor | None, layers: int) -> Step:
    """All tokens of B T in one pass, for training and scoring. Positions restart with every document."""
    T, device = ids.size(1), ids.device
    if documents is None:
        return Step(torch.arange(T, device=device), Causal(T, device), [None] * layers)
    return Step(restarting(documents), Documents(documents), [None] * layers)


class Past:
    """The cache of B rows, each at its own position `places[b]`: row b keeps the key of its token p in slot p.

    A token at p sees slots 0…p. Later slots hold leftovers of padding or of finished rows, which no query sees, so
    rows of different lengths need no other mask. On a GPU a step attends over all slots and decides nothing on the
    host, so every step is the same graph and can be replayed. A CPU reads only the slots that are written.
    """

    def __init__(self, cache: Cache, places: Tensor | None = None, fixed: bool = False):
        self.cache = cache
        keys = cache.keys[0]
        self.capacity = keys.size(2) - 1  # the last slot takes padding beyond the capacity
        self.fixed = fixed or keys.is_cuda
        self.reach = self.capacity
        self.stop = 0  # no row is longer; when `fixed`, the capacity as soon as anything is read
        self.level = True  # all rows have the same length
        self.clean = 0  # slots up to here are initialised in every row: see `reserve`
        if places is None:
            self.places = torch.zeros(keys.size(0), dtype=torch.long, device=keys.device)  # B
        else:
            self.places, self.stop = places, self.capacity
            self._look()

    def part(self, rows: slice, reach: int = 0, fresh: bool = False) -> "Past":
        """A view of these rows: tokens read through it are read here. `reserve` the slots first.

        `reach`: no row gets further than this, so a GPU need not attend further. `fresh`: the rows are empty, so it
        needs no mask table.
        """
        part = Past(self.cache.part(rows), self.places[rows], self.fixed)
        part.reach = min(reach or self.capacity, self.capacity)
        if fresh:
            part.stop, part.level = 0, True
        return part

    def reserve(self, stop: int) -> None:
        """Make slots up to `stop` safe to read in every row, written or not."""
        if stop > self.clean and not self.fixed:
            self.cache.clear(slice(self.clean, stop))
        self.clean = max(self.clean, stop)

    def copy(self, source: Tensor, target: Tensor, stop: int) -> None:
        """Let the rows `target` continue from the state of the rows `source`, of at most `stop` tokens."""
        self.cache.copy(source, target, stop)
        self.places[target] = self.places[source].clamp(max=stop)

    def back(self, tokens: int) -> None:
        """Forget the last tokens of all rows, on a CPU. Their keys are overwritten by the next ones."""
        self.places -= tokens
        self.stop -= tokens

    def rewind(self, rows: slice) -> None:
        """Empty these rows."""
        self.places[rows] = 0

    shares = True  # whether one row can reuse another's prefix, see `share`

    def share(self, source: int, target: int, length: int) -> None:
        """Make row `target` hold exactly the first `length` tokens of row `source`."""
        if source != target:
            for one in (*self.cache.keys, *self.cache.values):
                one[target, :, :length] = one[source, :, :length]
        self.places[target] = length

    def grow(self, tokens: int, lengths: Tensor | None = None) -> Step:
        """Advance every row by `tokens`, of which the first `lengths[b]` are real: B, None for all."""
        self._check(tokens, lengths)
        straight = self.level and self.stop + tokens <= self.capacity
        step = self._straight(tokens) if straight else self._ragged(tokens)
        self.places += tokens if lengths is None else lengths
        self.stop = self.capacity if self.fixed else self.stop + tokens
        if lengths is not None:
            self._look()
        return step

    def _straight(self, T: int) -> Step:
        """All rows are at one position, which the host knows: slices, and the smallest mask that works."""
        start, stop, device = self.stop, self.stop + T, self.places.device
        where = torch.arange(start, stop, device=device)
        if T == 1:
            mask: Mask = Everything()
        elif start == 0:
            mask = Causal(T, device)
        else:
            mask = TableMask(torch.arange(stop, device=device) <= where[:, None])  # T S
        return self._step(where, mask, slice(start, stop), stop)

    def _ragged(self, T: int) -> Step:
        """Every row is at its own position, which only the device knows."""
        device = self.places.device
        where = self.places[:, None] if T == 1 else self.places[:, None] + torch.arange(T, device=device)  # B T
        slots = where.clamp(max=self.capacity)  # B T
        where = where.clamp(max=self.capacity - 1)
        stop = min(self.reach if self.fixed else self.stop + T, self.capacity)
        mask = UpTo(where, stop)
        if self.fixed:
            return self._step(where, mask, slots, stop)
        self.cache.clear(slice(self.stop, stop))
        return Step(where, mask, self.cache.ragged(slots, stop), stop)

    def _step(self, where: Tensor, mask: Mask, slots: Tensor | slice, stop: int) -> Step:
        layers = range(len(self.cache.keys))
        return Step(where, mask, [self.cache.layer(i, slots, stop) for i in layers], stop)

    def select(self, rows: Tensor) -> None:
        self.cache.select(rows, self.stop)
        places = self.places[rows]
        self.places = self.places.copy_(places) if len(rows) == len(self.places) else places
        self._look()

    def restart(self) -> None:
        """Empty all rows, keeping the memory."""
        self.places.zero_()
        self.stop, self.level = 0, True

    def _look(self) -> None:
        """Update `stop` and `level`; a GPU is not queried, which would synchronise."""
        if self.fixed:
            self.level = False
        else:
            self.stop = int(self.places.max())
            self.level = bool((self.places == self.stop).all())

    def _check(self, tokens: int, lengths: Tensor | None) -> None:
        if self.fixed:
            return
        need = self.stop + tokens if lengths is None else int((self.places + lengths).max())
        if need > self.capacity:
            raise ConfigError(
                f"{need} tokens do not fit into a cache for {self.capacity}; create it with a capacity of {need}"
            )
