"""The label column as classes, numbers or sets of labels."""

import pytest

from regard.data.targets import TARGETS, all_labels, labels_in, to_number
from regard.errors import DataError


def test_classes_are_coded_in_order_and_stratified():
    classes = TARGETS["classes"]
    assert classes.codes(["b", "a", "b"], ["a"], "x.csv") == ["a", "b"]
    assert classes.strata(["b", "a"]) == ["b", "a"]


def test_numbers_are_not_stratified_and_may_be_new():
    numbers = TARGETS["numbers"]
    assert numbers.codes(["2", "1.5"], ["7"], "x.csv") == ["1.5", "2", "7"]
    assert numbers.strata(["2", "7"]) == ["", ""]
    assert numbers.report({"1": 3, "5": 1}, "row", "") == ["targets from 1 to 5, mean 2, standard deviation 1.73205"]


@pytest.mark.parametrize(
    ("kind", "train", "valid", "message"),
    [
        ("classes", ["a", "a"], [], "all examples have the label 'a'"),
        ("classes", ["a", "b"], ["c"], "line 7: the label 'c' is not among those trained on: a, b"),
        ("numbers", ["1", "two"], [], "the target 'two' is not a number"),
        ("numbers", ["1", "nan"], [], "the target 'nan' is not a number"),
        ("numbers", ["1", "1.0"], ["2"], "the target is 1 everywhere"),
        ("sets", ["", ""], [], "no example has a label"),
        ("sets", ["a|b"], ["a", "c"], "the label 'c' is not among those trained on: a, b"),
    ],
)
def test_targets_that_cannot_be_learned_are_refused(kind, train, valid, message):
    with pytest.raises(DataError, match=message):
        TARGETS[kind].codes(train, valid, "x.csv", [f"line {6 + i}" for i in range(1, 1 + len(valid))])


def test_label_sets_split_at_every_separator():
    assert labels_in(" b | a;c , a ") == ["a", "b", "c"] and labels_in(" ") == []
    assert all_labels(["b|a", "", "c"]) == ("a", "b", "c")
    assert not TARGETS["sets"].fault("") and TARGETS["classes"].fault(" ") == "no label"


def test_label_sets_count_each_label():
    report = TARGETS["sets"].report({"a|b": 2, "a": 1, "": 1}, "text", "")
    assert report == ["2 labels: a: 3 (60.0%), b: 2 (40.0%)", "1.25 labels per example on average"]


def test_a_number_reads_scientific_notation():
    assert to_number("1e3", "x") == 1000.0
