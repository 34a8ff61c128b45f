"""What a person at the terminal hears: remarks, passing lines, and how far long work has come."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

WIPE = "\r\x1b[K"
PATIENT = 10.0  # seconds between passing lines where they cannot be written over
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


_open = False  # whether the last line may be written over


def say(text: str, passing: bool = False) -> None:
    """A line on stderr, out of the way of results. A `passing` one is written over by what is said next."""
    global _open
    start, _open = WIPE if _open else "", passing
    _print(start + text + ("" if passing else "\n"))


def settle(wipe: bool = False) -> None:
    """A passing line passes no more: it stays, or is wiped out."""
    global _open
    if _open:
        _print(WIPE if wipe else "\n")
    _open = False


def _print(text: str) -> None:
    with contextlib.suppress(OSError):  # a terminal that was closed must not end the work, which may have to be saved
        print(text, end="", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
