"""Scores of labels, on tables worked by hand and beside scikit-learn."""

import math

import numpy as np
import pytest

from regard.data.iob import is_iob
from regard.errors import DataError
from regard.metrics.labels import (
    alarm,
    bag_of_words,
    by_class,
    calibration_error,
    confusion,
    entities,
    entity_score,
    interval,
    macro_f1,
    reliability,
    words,
)


def test_confusion_and_f1_by_hand():
    true, guessed = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 2, 2])
    table = confusion(true, guessed, 3)
    assert table.tolist() == [[2, 1, 0], [0, 1, 1], [0, 0, 1]]
    a, b, c = by_class(table, "abc")
    assert (a.precision, a.recall, a.f1, a.support) == (1.0, 2 / 3, 0.8, 3)
    assert (b.precision, b.recall, b.f1) == (0.5, 0.5, 0.5) and (c.precision, c.recall) == (0.5, 1.0)
    assert math.isclose(macro_f1(true, guessed, 3), (0.8 + 0.5 + 2 / 3) / 3)


def test_classes_are_scored_as_scikit_learn_does():
    sk = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    true, guessed = random.integers(0, 4, 200), random.integers(0, 5, 200)  # class 4 is guessed and never true
    assert confusion(true, guessed, 5).tolist() == sk.confusion_matrix(true, guessed).tolist()
    assert math.isclose(macro_f1(true, guessed, 5), sk.f1_score(true, guessed, average="macro", zero_division=0))
    assert math.isclose(macro_f1(true, guessed, 9), macro_f1(true, guessed, 5)), "a class nobody met counts for nothing"


def test_the_alarm_is_for_one_guess_where_there_is_more_to_tell():
    told = alarm(np.array([0, 1, 1]), np.array([2, 2, 2]), ["a", "b", "c"])
    assert told.startswith("ALARM: all 3 validation examples are labelled 'c'; ")
    assert not alarm(np.array([0, 1, 1]), np.array([2, 2, 1]), ["a", "b", "c"])
    assert not alarm(np.array([1, 1]), np.array([1, 1]), ["a", "b"]), "all of them are"
    assert "balanced=true" in told and "balanced" not in alarm(np.array([0, 1]), np.array([1, 1]), "ab", True)


@pytest.mark.parametrize(("right", "count"), [(3, 3), (0, 7), (45, 59), (9_412, 10_000)])
def test_interval_is_wilsons(right, count):
    """The shares p' at which the seen one is 1.96 standard deviations sqrt(p' (1 - p') / n) away."""
    for bound in interval(right, count):
        if 0 < bound < 1:
            assert abs(bound - right / count) == pytest.approx(1.959964 * math.sqrt(bound * (1 - bound) / count))
        else:
            assert bound == right / count


def test_calibration_by_hand():
    """Four answers 90 % sure, three right; two 60 % sure, both right: 4/6 · 0.15 + 2/6 · 0.4."""
    likely = np.array([[0.9, 0.1]] * 4 + [[0.4, 0.6]] * 2)
    true = np.array([0, 0, 0, 1, 1, 1])
    low, high = reliability(likely, true, bins=10)
    assert (low.count, low.accuracy, high.count, high.accuracy) == (2, 1.0, 4, 0.75)
    assert math.isclose(low.confidence, 0.6) and math.isclose(high.confidence, 0.9)
    assert (low.low, low.high) == (0.5, 0.6), "a bin holds its upper end"
    assert math.isclose(calibration_error([low, high]), 4 / 6 * 0.15 + 2 / 6 * 0.4)
    assert calibration_error(reliability(np.eye(3), np.arange(3))) == 0.0


def test_reliability_has_fifteen_bins():
    (only,) = reliability(np.array([[0.62, 0.38]]), np.array([0]))
    assert (only.low, only.high) == (9 / 15, 10 / 15)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O O", set()),
        ("B-PER O", {("PER", 0, 1)}),
        ("B-PER I-PER O B-LOC", {("PER", 0, 2), ("LOC", 3, 4)}),
        ("B-PER B-PER", {("PER", 0, 1), ("PER", 1, 2)}),
        ("I-PER I-PER", set()),  # strictly: nothing opened it
        ("O I-LOC B-LOC", {("LOC", 2, 3)}),
        ("B-PER I-LOC I-PER", {("PER", 0, 1)}),  # another type ends it, and opens nothing
        ("B-PER I-PER I-PER", {("PER", 0, 3)}),
        ("B-creative-work I-creative-work", {("creative-work", 0, 2)}),
    ],
)
def test_entities_strictly_as_iob2(tags, expected):
    assert entities(tags.split()) == expected


def test_entity_f1_by_hand():
    """Three true, four guessed, two of them whole and of the right type: P 1/2, R 2/3, F1 4/7."""
    true = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC", "O"]]
    guessed = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "B-LOC", "O"]]
    score = entity_score(true, guessed)
    assert (score.precision, score.recall, score.entities) == (0.5, 2 / 3, 3) and math.isclose(score.f1, 4 / 7)
    location, person = score.by_type
    assert (location.label, location.precision, location.recall) == ("LOC", 0.5, 0.5)
    assert (person.label, person.precision, person.recall) == ("PER", 0.5, 1.0)
    assert entity_score([["B-X", "I-X"]], [["B-X", "O"]]).f1 == 0.0, "half an entity is none"
    assert entity_score([["O"]], [["O"]]).f1 == 0.0
    with pytest.raises(DataError, match="1 tags predicted for a sentence of 2 words"):
        entity_score([["O", "O"]], [["O"]])


def test_plain_tags_are_no_entities():
    assert is_iob(["B-PER", "I-PER", "O"]) and not is_iob(["NOUN", "VERB"]) and not is_iob(["PERSON", "OTHER", "O"])


def test_naive_bayes_by_hand():
    """The example of Manning et al. 2008, table 13.1: P(China | d5) ∝ 3/4 · (3/7)³ · 1/14 · 1/14 ≈ 0.0003."""
    texts = ["Chinese Beijing Chinese", "Chinese Chinese Shanghai", "Chinese Macao", "Tokyo Japan Chinese"]
    test = [("Chinese Chinese Chinese Tokyo Japan",), ("Tokyo Japan",), ("unheard of",)]
    assert bag_of_words([(t,) for t in texts], ["yes", "yes", "yes", "no"], test) == ["yes", "no", "yes"]


def test_the_second_text_has_words_of_its_own():
    assert words(("A film!", "a film")) == ["a", "film", "!", "1:a", "1:film"]
