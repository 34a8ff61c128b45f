"""Word error rate: how many words of a transcript must be changed to get the reference."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.errors import LimitError

MOST = 10**9  # pairs of words in one table: some seconds


@dataclass(frozen=True)
class WordErrors:
    """Word errors of all transcripts together; `words` are those of the references."""

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


def word_errors(references: Sequence[str], transcripts: Sequence[str]) -> WordErrors:
    """The fewest changes, summed over all pairs; case and punctuation, which cannot be heard, do not count."""
    each = [_changes(spoken(a), spoken(b)) for a, b in zip(references, transcripts, strict=True)]
    substituted, deleted, inserted = (sum(changes[kind] for changes in each) for kind in range(3))
    return WordErrors(substituted, deleted, inserted, sum(len(spoken(text)) for text in references))


def spoken(text: str) -> list[str]:
    """The words of a text, in lower case and without punctuation but apostrophes inside words."""
    return re.findall(r"\w+(?:'\w+)*", text.lower().replace("’", "'"))


def _changes(reference: list[str], transcript: list[str]) -> tuple[int, int, int]:
    """Words substituted, deleted and inserted on the cheapest path from one to the other (Wagner and Fischer 1974).

    A row of the table at a time; among equally cheap paths a substitution comes first, then a deletion.
    """
    if len(reference) * len(transcript) > MOST:
        raise LimitError(
            f"{len(reference):,} words in the reference and {len(transcript):,} in the transcript of one clip; at most "
            f"{MOST:,} pairs of words are compared: cut it into shorter clips"
        )
    numbers = {word: i for i, word in enumerate({*reference, *transcript})}
    others, places = np.array([numbers[word] for word in transcript]), np.arange(len(transcript) + 1)
    cost, substituted, deleted = places.copy(), np.zeros_like(places), np.zeros_like(places)
    for word in reference:
        differs = np.concatenate(([len(reference) + 1], others != numbers[word]))  # the first has no left neighbour
        replaced, dropped = np.roll(cost, 1) + differs, cost + 1
        replaces = replaced <= dropped
        direct = np.where(replaces, replaced, dropped)  # the cheapest path that does not insert the last word
        best = np.minimum.accumulate(direct - places) + places
        origin = np.maximum.accumulate(np.where(best == direct, places, 0))  # after it, words are inserted
        substituted = np.where(replaces, np.roll(substituted, 1) + differs, substituted)[origin]
        deleted = np.where(replaces, np.roll(deleted, 1), deleted + 1)[origin]
        cost = best
    return int(substituted[-1]), int(deleted[-1]), int(cost[-1] - substituted[-1] - deleted[-1])
