"""Mention replacement, against mentions drawn by hand and the frequencies that its settings promise."""

from collections import Counter

import numpy as np
import pytest

from regard.data.mentions import RECOMBINED, Mentions
from regard.data.settings import NONE
from regard.data.sources import LabelledSource
from regard.data.store import Flat, Ragged

LABELS = ("O", "B-per", "I-per", "B-loc")  # there is no I-loc
CLS, SEP = 1, 2
# Ada King (of pieces 10; 11 12) met Bo (13) in Rome (20 21); Cy (14) slept; Oslo (22) and Ada King again
TEXTS = [
    ([CLS, 10, 11, 12, 30, 13, 31, 20, 21, SEP], [NONE, 1, 2, NONE, 0, 1, 0, 3, NONE, NONE]),
    ([CLS, 14, 32, SEP], [NONE, 1, 0, NONE]),
    ([CLS, 22, 33, 10, 11, 12, SEP], [NONE, 3, 0, 1, 2, NONE, NONE]),
    ([CLS, 34, SEP], [NONE, 0, NONE]),
]
PERSONS = {(10, 11, 12), (13,), (14,)}
PLACES = {(20, 21), (22,)}


def columns(cases: bool = False):
    ids, marks = (Ragged.of([text[i] for text in TEXTS]) for i in (0, 1))
    return ids, marks, Ragged.of([[i % 4 for i in text[0]] for text in TEXTS]) if cases else None


def mentions(share: float = 0.5, longest: int = 99, cases: bool = False) -> Mentions:
    return Mentions.of(LABELS, *columns(cases), share, longest)


def text(row: int, cases: bool = False):
    return tuple(None if column is None else column[row] for column in columns(cases))


def spelt(mention) -> tuple[int, ...]:
    return tuple(np.concatenate([ids for ids, _ in mention]).tolist())


def test_mentions_are_found_by_type_and_split_into_words():
    pool = mentions().pool
    assert {code: {spelt(m) for m in found} for code, found in pool.items()} == {1: PERSONS, 3: PLACES}
    assert [len(m) for m in pool[1]] == [2, 1, 1, 2]
    assert [ids.tolist() for ids, _ in pool[1][0]] == [[10], [11, 12]]


def test_pieces_outside_mentions_keep_their_order_and_labels():
    rng = np.random.default_rng(0)
    for _ in range(50):
        ids, marks, _ = mentions(0.9).replace(text(0), rng)
        assert ids[0] == CLS and ids[-1] == SEP and marks[0] == marks[-1] == NONE
        outside = marks == 0
        assert ids[outside].tolist() == [30, 31]
        assert [code for code in marks.tolist() if code in (1, 3)] == [1, 1, 3]


def test_new_mentions_are_of_the_same_type_and_labelled_word_by_word():
    rng, persons, places = np.random.default_rng(0), Counter(), Counter()
    one = mentions(0.999)
    for _ in range(300):
        ids, marks, _ = one.replace(text(0), rng)
        (start, stop), _, (low, high) = one.places(marks)
        persons[tuple(ids[start:stop].tolist()), tuple(marks[start:stop].tolist())] += 1
        places[tuple(ids[low:high].tolist())] += 1
    assert set(places) == PLACES
    assert {ids for ids, _ in persons} > PERSONS  # others are recombined
    for ids, marks in persons:
        assert set(ids) <= {10, 11, 12, 13, 14}
        words = [code for code in marks if code != NONE]
        assert words == [1, *[2] * (len(words) - 1)]
        assert [code for i, code in zip(ids, marks, strict=True) if i == 12] == [NONE] * ids.count(12)  # a later piece


def test_mentions_are_replaced_and_recombined_as_often_as_promised():
    rng, one, changed, new = np.random.default_rng(0), mentions(0.3), 0, 0
    for _ in range(4000):
        changed += one.replace(text(1), rng)[0].tolist() != TEXTS[1][0]
        new += spelt(one.drawn(1, rng)) not in PERSONS
    # it comes out unchanged if Cy is drawn, or if one word is recombined (2 of 4 mentions have one) and is Cy
    same = (1 - RECOMBINED) / 4 + RECOMBINED / 2 / 4
    assert changed / 4000 == pytest.approx(0.3 * (1 - same), abs=0.025)
    assert new / 4000 == pytest.approx(RECOMBINED * recombined_share(), abs=0.025)


def recombined_share() -> float:
    """By enumeration: how often a recombined mention is none of those in the data."""
    pool = mentions().pool[1]
    weight = {}
    for mention in pool:
        for ids, _ in mention:
            weight[tuple(ids.tolist())] = weight.get(tuple(ids.tolist()), 0) + 1 / len(pool) / len(mention)
    new = 0.0
    for mention in pool:
        ways = [((), 1.0)]
        for _ in mention:
            ways = [(ids + word, p * q) for ids, p in ways for word, q in weight.items()]
        new += sum(p for ids, p in ways if ids not in PERSONS) / len(pool)
    return new


def test_a_sentence_stays_within_the_longest():
    rng = np.random.default_rng(0)
    lengths = Counter(len(mentions(0.999, longest=5).replace(text(1), rng)[0]) for _ in range(200))
    assert set(lengths) == {4, 5}  # the 3 pieces of Ada King would make it 6
    both = Counter(len(mentions(0.999, longest=11).replace(text(0), rng)[0]) for _ in range(200))
    assert max(both) == 11  # 10 pieces, and room for one more, of whichever mention comes first


def test_cases_follow_their_words():
    rng = np.random.default_rng(0)
    for _ in range(50):
        ids, _, cases = mentions(0.999, cases=True).replace(text(2, cases=True), rng)
        assert cases is not None
        assert cases.tolist() == (ids % 4).tolist()


def test_only_training_batches_are_changed_and_each_epoch_differs():
    ids, marks, _ = columns()
    source = LabelledSource(ids, Flat([np.array([len(text[0]) for text in TEXTS])]), marks, pad=0)
    plain = source.batch(np.arange(4)).ids
    source.mentions = mentions(0.999)
    assert source.batch(np.arange(4)).ids.equal(plain)
    epochs = [source.batch(np.arange(4), np.random.default_rng(seed)) for seed in (0, 0, 1)]
    assert epochs[0].ids.equal(epochs[1].ids) and not epochs[0].ids.equal(epochs[2].ids)
    assert not epochs[0].ids.equal(plain)
    assert epochs[0].sentences is None  # one text: no second segment
