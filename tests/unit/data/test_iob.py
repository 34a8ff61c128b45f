"""The best valid tags, against all tags that there are."""

from itertools import pairwise, product

import numpy as np
import pytest

from regard.data.iob import BestTags, is_iob, is_iob2

LABELS = ("O", "B-a", "I-a", "B-b", "I-b")


def valid(tags):
    """By hand: I-X after anything but B-X and I-X is not IOB2."""
    return all(b[0] != "I" or (a != "O" and a[2:] == b[2:]) for a, b in pairwise(["O", *tags]))


@pytest.mark.parametrize("words", [1, 2, 4])
def test_best_tags_are_the_likeliest_valid_ones(words):
    rng = np.random.default_rng(words)
    ways = [way for way in product(range(5), repeat=words) if valid([LABELS[i] for i in way])]
    for _ in range(30):
        log_p = np.log(rng.dirichlet(np.full(5, 0.4), words))
        best = max(ways, key=lambda way: sum(log_p[word, tag] for word, tag in enumerate(way)))
        assert BestTags(LABELS)(log_p).tolist() == list(best)


def test_other_tags_are_each_the_likeliest():
    log_p = np.log([[0.1, 0.9], [0.6, 0.4]])
    assert not is_iob(("NOUN", "VERB")) and BestTags(("NOUN", "VERB"))(log_p).tolist() == [1, 0]
    assert BestTags(("NOUN", "VERB"))(log_p[:0]).tolist() == []
    assert BestTags(("O", "I-a"))(log_p).tolist() == [1, 0]  # without B-, not IOB2


def test_an_entity_that_no_tag_can_begin_begins_with_the_one_inside():
    """The tags of CoNLL-2003's own files, IOB1: B-X only where an X follows another, and no two persons do."""
    labels = ("O", "I-PER", "I-ORG", "B-ORG")
    p = np.array([[0.1, 0.8, 0.05, 0.05], [0.9, 0.1, 0.0, 0.0], [0.1, 0.0, 0.6, 0.3]])
    assert [labels[i] for i in BestTags(labels)(np.log(p + 1e-9))] == ["I-PER", "O", "I-ORG"]


def test_tags_that_begin_with_i_are_of_an_older_scheme():
    """Every entity of IOB1, few of IOB2, and of both some sentences are empty."""
    two = [np.array(x, int) for x in ([1, 2, 0], [], [0, 3, 4, 4])] * 4
    one = [np.array(x, int) for x in ([2, 2, 0], [], [0, 4, 4, 4], [2, 1])]
    assert is_iob2(LABELS, two) and is_iob2(LABELS, [*two, np.array([2])])
    assert not is_iob2(LABELS, one) and not is_iob2(("NOUN", "VERB"), [np.array([0, 1])])
