"""Word error rate: how many words of a transcript must be changed to have what was said."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.errors import LimitError

MOST = 10**9  # pairs of words in one table: some seconds


@dataclass(frozen=True)
class WordErrors:
    """Of all transcripts together: words put in the place of others, left out, added, and words that were said."""

    substituted: int
    deleted: int
    inserted: int
    words: int

    @property
    def errors(self) -> int:
        return self.substituted + self.deleted + self.inserted

    @property
    def rate(self) -> float:
        return self.errors / max(1, self.words)

    def __str__(self) -> str:
        counts = f"{self.substituted:,} substituted, {self.deleted:,} deleted, {self.inserted:,} inserted"
        return f"word error rate {self.rate:.2%}\n{counts}"


def word_errors(said: Sequence[str], heard: Sequence[str]) -> WordErrors:
    """The fewest changes, summed over all pairs; case and punctuation are not heard, so they do not count."""
    each = [_changes(spoken(a), spoken(b)) for a, b in zip(said, heard, strict=True)]
    substituted, deleted, inserted = (sum(changes[kind] for changes in each) for kind in range(3))
    return WordErrors(substituted, deleted, inserted, sum(len(spoken(text)) for text in said))


def spoken(text: str) -> list[str]:
    """The words of a text: small letters and digits, and apostrophes inside a word."""
    return re.findall(r"\w+(?:'\w+)*", text.lower().replace("’", "'"))


def _changes(said: list[str], heard: list[str]) -> tuple[int, int, int]:
    """Words substituted, deleted and inserted on the cheapest way from one to the other (Wagner and Fischer 1974).

    A row of the table at a time: of equally cheap ways a substitution comes first, then a deletion.
    """
    if len(said) * len(heard) > MOST:
        raise LimitError(
            f"{len(said):,} words were said and {len(heard):,} heard in one clip; at most {MOST:,} pairs of words are "
            "compared: cut it into shorter clips"
        )
    numbers = {word: i for i, word in enumerate({*said, *heard})}
    others, places = np.array([numbers[word] for word in heard]), np.arange(len(heard) + 1)
    cost, substituted, deleted = places.copy(), np.zeros_like(places), np.zeros_like(places)
    for word in said:
        differs = np.concatenate(([len(said) + 1], others != numbers[word]))  # left of the first is no word
        replaced, dropped = np.roll(cost, 1) + differs, cost + 1
        replaces = replaced <= dropped
        direct = np.where(replaces, replaced, dropped)  # the cheapest way that does not insert the last word
        best = np.minimum.accumulate(direct - places) + places
        origin = np.maximum.accumulate(np.where(best == direct, places, 0))  # after it, words are inserted
        substituted = np.where(replaces, np.roll(substituted, 1) + differs, substituted)[origin]
        deleted = np.where(replaces, np.roll(deleted, 1), deleted + 1)[origin]
        cost = best
    return int(substituted[-1]), int(deleted[-1]), int(cost[-1] - substituted[-1] - deleted[-1])
