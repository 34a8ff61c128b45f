"""Look inside a model: a `Tap` is a named place in it, free when not watched."""

import fnmatch
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


class Tap(nn.Module):
    """No parameters, no key in the checkpoint. Keeps references only while watched."""

    def __init__(self):
        super().__init__()
        self.seen: list[Any] | None = None

    def see(self, thing: Any) -> None:
        if self.seen is not None:
            self.seen.append(thing)


@contextmanager
def watch(model: nn.Module, pattern: str = "*") -> Iterator[dict[str, list[Any]]]:
    """Record what the taps whose dotted name matches `pattern` see, one list entry per call of the model."""
    taps = {name: m for name, m in model.named_modules() if isinstance(m, Tap) and fnmatch.fnmatch(name, pattern)}
    for tap in taps.values():
        tap.seen = []
    try:
        yield {name: tap.seen for name, tap in taps.items() if tap.seen is not None}
    finally:
        for tap in taps.values():
            tap.seen = None
