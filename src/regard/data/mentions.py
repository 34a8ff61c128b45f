"""Mention replacement: the sentences of a tagger's training data with other names in them (Dai and Adel 2020).

A tagger that knows the names of its training data by heart has learned little about those it will meet.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.settings import NONE
from regard.data.store import Ragged

RECOMBINED = 0.5  # of the new mentions: their words are those of several mentions, so that the whole is a new name
SENTENCES = 50_000  # whose mentions are used, at most

Word = tuple[np.ndarray, np.ndarray | None]  # the ids of its pieces, and their cases
Text = tuple[np.ndarray, np.ndarray, np.ndarray | None]  # ids, labels and cases of a sentence's pieces


@dataclass(frozen=True)
class Mentions:
    """The mentions of a training set by the code of their B-X. `replace` replaces a `share` of a sentence's by others
    of their type; sentences stay within `longest` pieces. Labels are IOB2."""

    inside: dict[int, int]  # the code of each B-X, and that of its I-X (`NONE`: there is none)
    share: float
    longest: int
    pool: dict[int, list[list[Word]]]

    @classmethod
    def of(
        cls, labels: Sequence[str], ids: Ragged, marks: Ragged, cases: Ragged | None, share: float, longest: int
    ) -> "Mentions":
        codes = {label: code for code, label in enumerate(labels)}
        inside = {code: codes.get(f"I-{label[2:]}", NONE) for label, code in codes.items() if label.startswith("B-")}
        mentions = cls(inside, share, longest, {code: [] for code in inside})
        for row in range(min(len(ids), SENTENCES)):
            text = ids[row], marks[row], None if cases is None else cases[row]
            for start, stop in mentions.places(text[1]):
                mentions.pool[int(text[1][start])].append(words(text, start, stop))
        return mentions

    @property
    def size(self) -> int:
        return sum(map(len, self.pool.values()))

    def places(self, marks: np.ndarray) -> Iterator[tuple[int, int]]:
        """Where mentions start and stop among the pieces of a sentence, which ends in [SEP]."""
        first = [*np.flatnonzero(marks != NONE).tolist(), len(marks) - 1]  # of each word, and [SEP]
        for word, start in enumerate(first[:-1]):
            if (code := int(marks[start])) in self.inside:
                end = word + 1
                while end < len(first) - 1 and marks[first[end]] == self.inside[code]:
                    end += 1
                yield start, first[end]

    def drawn(self, code: int, rng: np.random.Generator) -> list[Word]:
        """A mention of this type, or one of as many words from any of them."""
        pool = self.pool[code]
        mention = pool[rng.integers(len(pool))]
        if rng.random() >= RECOMBINED or self.inside[code] == NONE:
            return mention
        others = (pool[rng.integers(len(pool))] for _ in mention)
        return [other[rng.integers(len(other))] for other in others]

    def replace(self, text: Text, rng: np.random.Generator) -> Text:
        parts, after, room = [], 0, self.longest - len(text[0])
        for start, stop in self.places(text[1]):
            code = int(text[1][start])
            if rng.random() >= self.share or not self.pool[code]:
                continue
            mention = self.drawn(code, rng)
            if (longer := sum(len(ids) for ids, _ in mention) - (stop - start)) > room:
                continue
            room -= longer
            parts += [cut(text, after, start), self.tagged(mention, code)]
            after = stop
        return joined([*parts, cut(text, after, len(text[0]))]) if parts else text

    def tagged(self, mention: list[Word], code: int) -> Text:
        ids, cases = zip(*mention, strict=True)
        marks = np.full(sum(map(len, ids)), NONE)
        marks[np.cumsum([0, *map(len, ids[:-1])])] = [code, *[self.inside[code]] * (len(ids) - 1)]
        return np.concatenate(ids), marks, None if cases[0] is None else np.concatenate(cases)


def words(text: Text, start: int, stop: int) -> list[Word]:
    """The words of a mention. The arrays are copies: a view would keep the whole sentence."""
    ids, marks, cases = cut(text, start, stop)
    firsts = np.flatnonzero(marks != NONE)[1:]
    pieces = np.split(ids.copy(), firsts)
    return list(zip(pieces, [None] * len(pieces) if cases is None else np.split(cases.copy(), firsts), strict=True))


def cut(text: Text, start: int, stop: int) -> Text:
    ids, marks, cases = text
    return ids[start:stop], marks[start:stop], None if cases is None else cases[start:stop]


def joined(parts: Sequence[Text]) -> Text:
    ids, marks, cases = zip(*parts, strict=True)
    return np.concatenate(ids), np.concatenate(marks), None if cases[0] is None else np.concatenate(cases)
