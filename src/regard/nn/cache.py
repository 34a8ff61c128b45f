"""Keys and values of the tokens decoded so far. Owned by whoever decodes, passed as an argument, written in place."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import ConfigError
from regard.nn.masks import Causal, Documents, Everything, Mask, TableMask, UpTo, Window
from regard.nn.positions import restarting


@dataclass
class LayerCache:
    """One layer's share. `slots` says where the tokens of this step are written, `stop` how far to look.

    Slots as a tensor let a step be replayed on a GPU; a slice is quicker where the host keeps count.
    """

    keys: Tensor  # B H C K
    values: Tensor  # B H C K
    slots: Tensor | slice  # T, or B T where every row has its own
    stop: int

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write this step's keys and values, return all so far: B H S K each."""
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


class Cache:
    """Room for `capacity` tokens of every layer, taken once."""

    def __init__(self, layers: int, rows: int, heads: int, capacity: int, head_width: int, like: Tensor):
        shape = (rows, heads, capacity, head_width)
        make = torch.zeros if like.is_cuda else torch.empty  # a GPU looks at the unwritten part too, with weight 0
        room = [make(shape, dtype=like.dtype, device=like.device) for _ in range(2 * layers)]
        self.keys, self.values = room[:layers], room[layers:]  # one each: a compiled step writes them where they are

    def part(self, rows: slice) -> "Cache":
        """The share of these rows, in the same memory."""
        part = object.__new__(Cache)
        part.keys, part.values = [x[rows] for x in self.keys], [x[rows] for x in self.values]
        return part

    def copy(self, source: Tensor, target: Tensor, stop: int) -> None:
        """The first `stop` slots of the rows `source` also in the rows `target`."""
        for one in (*self.keys, *self.values):
            one[target, :, :stop] = one[source, :, :stop]

    def layer(self, index: int, slots: Tensor | slice, stop: int) -> LayerCache:
        return LayerCache(self.keys[index], self.values[index], slots, stop)

    def clear(self, slots: slice) -> None:
        """Zeros where somebody may look before anything is written: weight 0 times whatever lay there may be NaN."""
        for one in (*self.keys, *self.values):
            one[:, :, slots] = 0.0

    def select(self, rows: Tensor, stop: int) -> None:
        """Keep these rows, in this order, and what is written of them. In place, unless they have become more."""
        for half in (self.keys, self.values):
            for i, whole in enumerate(half):
                more = len(rows) > whole.size(0)
                new = whole.new_zeros(len(rows), *whole.shape[1:]) if more else whole[: len(rows)]
                new[:, :, :stop] = whole[rows, :, :stop]
                half[i] = new


@dataclass
class Step:
    """What the layers of a decoder need to know of the tokens that go through them now."""

    where: Tensor  # T or B T: the place of each in its text
    mask: Mask
    caches: Sequence[LayerCache | None]  # L; None: the tokens see each other and nothing else
    stop: int = 0  # keys to look at when there are caches

    @property
    def keys(self) -> Tensor:
        """The places of the keys, S or B S."""
        return torch.arange(self.stop, device=self.where.device) if self.stop else self.where

    def within(self, window: int) -> Mask:
        """The mask, narrowed to the last `window` tokens; 0: to nothing less than all."""
        keys = self.stop or self.where.size(-1)
        return Window(self.mask, self.where, self.keys, window) if 0 < window < keys else self.mask


def at_once(ids: Tensor, documents: Tensor | None, layers: int) -> Step:
    """All tokens of B T at the same time: training, and scoring. Places restart with every document."""
    T, device = ids.size(1), ids.device
    if documents is None:
        return Step(torch.arange(T, device=device), Causal(T, device), [None] * layers)
    return Step(restarting(documents), Documents(documents), [None] * layers)


class Past:
    """What B rows have read, each as far as its `places` says: row b's token at place p has its key in slot p.

    A token at p sees slots 0…p. What lies beyond was left there by padding or by rows that are gone, and nobody sees
    it, so rows of different lengths need nothing else. On a GPU a step looks at all slots and takes no decision
    on the host: all steps are alike and can be replayed. On a CPU only what is written is looked at.
    """

    def __init__(self, cache: Cache, places: Tensor | None = None, fixed: bool = False):
        self.cache = cache
        keys = cache.keys[0]
        self.capacity = keys.size(2) - 1  # the last slot is for padding that has no other
        self.fixed = fixed or keys.is_cuda
        self.reach = self.capacity
        self.stop = 0  # no row has read more than this; when `fixed`, the capacity as soon as anything is read
        self.level = True  # all rows have read equally many
        self.clean = 0  # slots up to here hold numbers in every row, whoever has written them: see `reserve`
        if places is None:
            self.places = torch.zeros(keys.size(0), dtype=torch.long, device=keys.device)  # B
        else:
            self.places, self.stop = places, self.capacity
            self._look()

    def part(self, rows: slice, reach: int = 0, fresh: bool = False) -> "Past":
        """These rows, in the same memory: what is read there is read here. `reserve` the slots first.

        Where the host knows that no row comes further than `reach`, a GPU need not look further either; and where it
        knows that they are `fresh`, having read nothing, not at a table of who may look where.
        """
        part = Past(self.cache.part(rows), self.places[rows], self.fixed)
        part.reach = min(reach or self.capacity, self.capacity)
        if fresh:
            part.stop, part.level = 0, True
        return part

    def reserve(self, stop: int) -> None:
        """Slots up to `stop` may be looked at in every row, though not every row has written there."""
        if stop > self.clean and not self.fixed:
            self.cache.clear(slice(self.clean, stop))
        self.clean = max(self.clean, stop)

    def copy(self, source: Tensor, target: Tensor, stop: int) -> None:
        """The rows `target` go on from where the rows `source` are, at most at `stop`."""
        self.cache.copy(source, target, stop)
        self.places[target] = self.places[source].clamp(max=stop)

    def rewind(self, rows: slice) -> None:
        """These rows have read nothing."""
        self.places[rows] = 0

    shares = True  # whether what one row has read can be read by another, which `share` does

    def share(self, source: int, target: int, length: int) -> None:
        """The row `target` has read the first `length` tokens of the row `source`, and nothing else."""
        if source != target:
            for one in (*self.cache.keys, *self.cache.values):
                one[target, :, :length] = one[source, :, :length]
        self.places[target] = length

    def grow(self, tokens: int, lengths: Tensor | None = None) -> Step:
        """Room for `tokens` more of every row, of which the first `lengths[b]` are real: B, None for all."""
        self._check(tokens, lengths)
        straight = self.level and self.stop + tokens <= self.capacity
        step = self._straight(tokens) if straight else self._ragged(tokens)
        self.places += tokens if lengths is None else lengths
        self.stop = self.capacity if self.fixed else self.stop + tokens
        if lengths is not None:
            self._look()
        return step

    def _straight(self, T: int) -> Step:
        """All rows go on from the same place, which the host knows: slices, and the smallest mask that does."""
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
        """Every row goes on from its own place, which the device knows."""
        device = self.places.device
        where = self.places[:, None] if T == 1 else self.places[:, None] + torch.arange(T, device=device)  # B T
        slots = where.clamp(max=self.capacity)  # B T
        where = where.clamp(max=self.capacity - 1)
        stop = min(self.reach if self.fixed else self.stop + T, self.capacity)
        if not self.fixed:
            self.cache.clear(slice(self.stop, stop))
        return self._step(where, UpTo(where, stop), slots, stop)

    def _step(self, where: Tensor, mask: Mask, slots: Tensor | slice, stop: int) -> Step:
        layers = range(len(self.cache.keys))
        return Step(where, mask, [self.cache.layer(i, slots, stop) for i in layers], stop)

    def select(self, rows: Tensor) -> None:
        self.cache.select(rows, self.stop)
        places = self.places[rows]
        self.places = self.places.copy_(places) if len(rows) == len(self.places) else places
        self._look()

    def restart(self) -> None:
        """Nothing is read yet, in the same memory."""
        self.places.zero_()
        self.stop, self.level = 0, True

    def _look(self) -> None:
        """How far the rows have come; a GPU is not asked, since it would have to be waited for."""
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
                f"{need} tokens do not fit into a cache for {self.capacity}; begin with a capacity of {need}"
            )
