"""Messages on the terminal: remarks, passing lines, and the progress of long work."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass

from regard.words import duration

WIPE = "\r\x1b[K"
MOMENT = 2.0  # seconds before progress is shown
PATIENT = 10.0  # seconds between progress lines that cannot be overwritten
_hear: ContextVar[Callable[[int], None] | None] = ContextVar("hear", default=None)


def tick(done: int) -> None:
    """Report `done` more items: texts, images, or whatever is counted."""
    if (hear := _hear.get()) is not None:
        hear(done)


@contextmanager
def on_tick(hear: Callable[[int], None]) -> Iterator[None]:
    """Call `hear` for every `tick` inside the block."""
    before = _hear.set(hear)
    try:
        yield
    finally:
        _hear.reset(before)


_open = ""  # the last line, if it may be overwritten


def say(text: str, passing: bool = False) -> None:
    """Print a line to stderr. A `passing` one is overwritten by the next."""
    global _open
    start, _open = _wipe() if _open else "", text if passing else ""
    _print(start + text + ("" if passing else "\n"))


def end_passing(wipe: bool = False) -> None:
    """Keep the passing line, or wipe it out."""
    global _open
    if _open:
        _print(_wipe() if wipe else "\n")
    _open = ""


def can_overwrite() -> bool:
    """Whether lines on stderr can be overwritten: on a terminal, and in a notebook."""
    return sys.stderr.isatty() or _in_notebook()


def _in_notebook() -> bool:
    return type(sys.stderr).__module__ == "ipykernel.iostream"


def _wipe() -> str:
    return f"\r{' ' * len(_open)}\r" if _in_notebook() else WIPE  # notebooks ignore escape codes but colours


def _print(text: str) -> None:
    with contextlib.suppress(OSError):  # a closed terminal must not end work that may have to be saved
        print(text, end="", file=sys.stderr, flush=True)


@dataclass(frozen=True, kw_only=True)
class Console:
    """Remarks and progress on stderr, or nothing if `quiet`."""

    quiet: bool = False

    def say(self, text: str) -> None:
        if not self.quiet:
            say(text)

    @contextmanager
    def progress(self, what: str, total: int = 0) -> Iterator[None]:
        """Show the progress of the work inside, its rate and the time left, once it takes longer than a moment."""
        line = Line(what, total)
        with nullcontext() if self.quiet else on_tick(line.hear):
            try:
                yield
            finally:
                end_passing(wipe=True)


class Line:
    """A line of progress that overwrites itself; where that is not possible, a new line now and then."""

    def __init__(self, what: str, total: int):
        self.what, self.total, self.done = what, total, 0
        self.live = can_overwrite()
        self.start = time.monotonic()
        self.next = self.start + MOMENT

    def hear(self, done: int) -> None:
        self.done += done
        now = time.monotonic()
        if now < self.next or not self.done:
            return
        self.next = now + (MOMENT / 10 if self.live else PATIENT)
        say(self.text(now - self.start), passing=self.live)

    def text(self, seconds: float) -> str:
        rate = self.done / seconds
        parts = [self.what, f"{self.done:,}" + (f" of {self.total:,}" if self.total else "")]
        parts.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s")
        if self.total:
            parts.append(f"{duration((self.total - self.done) / rate)} left")
        return " · ".join(parts)
