"""Word error rate: how many words of a transcript must be changed to have what was said."""

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class WordErrors:
    """Of all transcripts together: words put in the place of others, left out, added, and words that were said."""

    substituted: int
    deleted: int
    inserted: int
    words: int

    @property
    def rate(self) -> float:
        return (self.substituted + self.deleted + self.inserted) / max(1, self.words)


def word_errors(said: Sequence[str], heard: Sequence[str]) -> WordErrors:
    """The fewest changes, summed over all pairs; case and punctuation are not heard, so they do not count."""
    found = [_changes(spoken(a), spoken(b)) for a, b in zip(said, heard, strict=True)]
    substituted, deleted, inserted = (sum(changes[kind] for changes in found) for kind in range(3))
    return WordErrors(substituted, deleted, inserted, sum(len(spoken(text)) for text in said))


def spoken(text: str) -> list[str]:
    """The words of a text: small letters and digits, and apostrophes inside a word."""
    return re.findall(r"\w+(?:'\w+)*", text.lower().replace("’", "'"))


def _changes(said: list[str], heard: list[str]) -> tuple[int, int, int]:
    """Words substituted, deleted and inserted on the cheapest way from one to the other (Wagner and Fischer 1974)."""
    row = [(j, 0, 0, j) for j in range(len(heard) + 1)]  # cost, substituted, deleted, inserted so far
    for i, word in enumerate(said, 1):
        above, row = row, [(i, 0, i, 0)]
        for j, other in enumerate(heard, 1):
            cost, s, d, n = above[j - 1]
            same = word == other
            ways = [(cost + (not same), s + (not same), d, n)]
            cost, s, d, n = above[j]
            ways.append((cost + 1, s, d + 1, n))
            cost, s, d, n = row[j - 1]
            ways.append((cost + 1, s, d, n + 1))
            row.append(min(ways, key=lambda way: way[0]))
    return row[-1][1:]
