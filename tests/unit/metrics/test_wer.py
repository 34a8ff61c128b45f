"""Word errors, worked out by hand and by trying every way."""

import itertools
from functools import lru_cache

import pytest

from regard.metrics.wer import WordErrors, spoken, word_errors


@pytest.mark.parametrize(
    ("message", "heard", "errors"),
    [
        ("the cat sat", "the cat sat", (0, 0, 0)),
        ("the cat sat", "The cat, sat!", (0, 0, 0)),
        ("the cat sat", "the bat sat", (1, 0, 0)),
        ("the cat sat", "the sat", (0, 1, 0)),
        ("the cat sat", "the big cat sat", (0, 0, 1)),
        ("the cat sat on it", "a cat on it now", (1, 1, 1)),
        ("", "well", (0, 0, 1)),
        ("well then", "", (0, 2, 0)),
    ],
)
def test_a_table_by_hand(message, heard, errors):
    found = word_errors([message], [heard])
    assert (found.substituted, found.deleted, found.inserted) == errors


def test_the_rate_is_of_all_words_together():
    """One error in two words and none in eight are 10 %, not the mean of 50 % and 0 %."""
    errors = word_errors(["a b", "a b c d e f g h"], ["a x", "a b c d e f g h"])
    assert errors == WordErrors(1, 0, 0, 10) and errors.rate == 0.1
    assert word_errors([], []).rate == 0.0


def test_words_are_what_is_heard():
    assert spoken("Don’t stop – it's 9 o'clock, 'now'.") == ["don't", "stop", "it's", "9", "o'clock", "now"]


def test_the_fewest_changes_are_found():
    @lru_cache
    def fewest(a, b):
        if not a or not b:
            return len(a) + len(b)
        return min(fewest(a[1:], b) + 1, fewest(a, b[1:]) + 1, fewest(a[1:], b[1:]) + (a[0] != b[0]))

    words = [w for n in range(4) for w in itertools.product("ab", repeat=n)]
    for a, b in itertools.product(words, words):
        errors = word_errors([" ".join(a)], [" ".join(b)])
        assert errors.substituted + errors.deleted + errors.inserted == fewest(a, b)
        assert len(a) - errors.deleted + errors.inserted == len(b)
