"""Micro-batches that fit into memory. Losses are sums divided by one count, so a batch may be cut anywhere."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from regard.errors import WorkFailed
from regard.limits import exhausted_memory
from regard.training.progress import Progress


def fitted(work: Callable[[Any], Tensor], batches: list[Any], at: Progress, undo: Callable[[], None], say: Callable):
    """The sum of `work` over the batches, on the device.

    If memory runs out, it calls `undo` and starts again with smaller pieces; later batches are cut as well.
    """
    while True:
        piece: Any = None
        try:
            total: Any = 0
            for piece in pieces(batches, at.limit):
                total = total + work(piece)
            return total
        except RuntimeError as e:
            if not exhausted_memory(e):
                raise
            total = None
            halves = piece.split()
            if len(halves) < 2:
                raise WorkFailed(
                    f"one example of {size(piece)} padded tokens does not fit into memory; leave such examples out "
                    "with --set data.max_length=…, or use a smaller model"
                ) from None
            at.limit = max(size(half) for half in halves)
        undo()  # outside `except`, whose traceback would keep the failed pass alive
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        say(f"step {at.step}: out of memory; from here on batches are cut to {at.limit} padded tokens")


def pieces(batches: list[Any], limit: int) -> Iterator[Any]:
    """The batches, those above `limit` tokens cut into halves until they fit or are a single example."""
    for batch in batches:
        parts = batch.split() if 0 < limit < size(batch) else [batch]
        yield from pieces(parts, limit) if len(parts) > 1 else parts


def size(batch: Any) -> int:
    """The memory a batch needs, as the number of elements of its matrices."""
    parts = [x for field in vars(batch).values() for x in (field if isinstance(field, tuple) else (field,))]
    return sum(x.numel() for x in parts if isinstance(x, Tensor) and x.ndim > 1)
