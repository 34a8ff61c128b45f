"""How far long work has come: who works says so, and who watches hears it. Mostly nobody does."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_hear: ContextVar[Callable[[int], None] | None] = ContextVar("hear", default=None)


def tick(done: int) -> None:
    """So many more are dealt with: texts, images, or whatever the watcher counts."""
    if (hear := _hear.get()) is not None:
        hear(done)


@contextmanager
def hearing(hear: Callable[[int], None]) -> Iterator[None]:
    """`hear` is told of every `tick` inside."""
    before = _hear.set(hear)
    try:
        yield
    finally:
        _hear.reset(before)
