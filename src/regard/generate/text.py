"""Ids to text as they arrive: never half a character, and nothing that may become a stop string."""

import codecs
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass

from regard.generate.engine import LOOK_EVERY, STREAM_EVERY, Completion, Engine, Sampling


class TextStream:
    """The text of one row. `feed` and `close` return what may be shown; after `stopped`, nothing more."""

    def __init__(self, token_bytes: Callable[[int], bytes], stop: Sequence[str] = ()):
        self.token_bytes, self.stop = token_bytes, tuple(stop)
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.held = ""  # decoded, but possibly the beginning of a stop string
        self.shown = 0  # characters returned
        self.begins: list[int] = []  # for each id, how many characters were decoded before it
        self.stopped = False

    def feed(self, id: int) -> str:
        """The characters that are final once `id` is added."""
        if self.stopped:
            return ""
        self.begins.append(self.shown + len(self.held))
        return self._add(self.decoder.decode(self.token_bytes(id)))

    def close(self) -> str:
        """The rest, after the last id; incomplete characters become U+FFFD."""
        piece = "" if self.stopped else self._add(self.decoder.decode(b"", True))
        held, self.held = self.held, ""
        self.shown += len(held)
        return piece + held

    @property
    def count(self) -> int:
        """How many ids begin before the end of the text; those of a stop string do not count."""
        return sum(begin < self.shown for begin in self.begins) if self.stopped else len(self.begins)

    def _add(self, new: str) -> str:
        if not new:
            return ""
        text = self.held + new
        stops = [place for s in self.stop if (place := text.find(s)) >= 0]
        self.stopped = bool(stops)
        sure = min(stops) if stops else len(text) - self._open(text)
        self.held = "" if stops else text[sure:]
        self.shown += sure
        return text[:sure]

    def _open(self, text: str) -> int:
        """The length of the longest suffix of `text` that is a prefix of a stop string."""
        longest = max((len(s) - 1 for s in self.stop), default=0)
        ends = range(min(longest, len(text)), 0, -1)
        return next((n for n in ends if any(s.startswith(text[-n:]) for s in self.stop)), 0)


@dataclass
class Written(Completion):
    """A completion and its text, which ends before any stop string."""

    text: str = ""


def stream(
    engine: Engine,
    token_bytes: Callable[[int], bytes],
    prompts: Sequence[Sequence[int]],
    settings: Sampling,
    look_every: int = STREAM_EVERY,
) -> Generator[tuple[int, str], None, list[list[Written]]]:
    """Pieces of text with their row, as soon as they are final; row r continues prompt r // n.

    The generator's return value is that of `write`. Closing it stops the work.
    """
    settings.check_memory(len(prompts))
    rows = [TextStream(token_bytes, settings.stop) for _ in range(len(prompts) * settings.n)]
    results = [Written() for _ in rows]
    pieces = [""] * len(rows)

    def enough(row: int, id: int) -> bool:
        pieces[row] += rows[row].feed(id)
        return rows[row].stopped

    with closing(engine.stream(prompts, settings, enough, look_every)) as events:
        for event in events:
            row, result = event.row, results[event.row]
            result.add(event)
            if event.finish:
                pieces[row] += rows[row].close()
                result.shorten(rows[row].count)
            piece, pieces[row] = pieces[row], ""
            result.text += piece
            if piece:
                yield row, piece
    return [results[i : i + settings.n] for i in range(0, len(results), settings.n)]


def write(
    engine: Engine, token_bytes: Callable[[int], bytes], prompts: Sequence[Sequence[int]], settings: Sampling
) -> list[list[Written]]:
    """The n continuations of each prompt."""
    pieces = stream(engine, token_bytes, prompts, settings, LOOK_EVERY)
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return end.value
