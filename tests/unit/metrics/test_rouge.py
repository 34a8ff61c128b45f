"""ROUGE worked out by hand, beside the examples of the paper, and its subsequences beside the textbook's table."""

import random

import pytest

from regard.errors import DataError
from regard.metrics import rouge
from regard.metrics.rouge import common_subsequence, first_sentence, rouge_l, rouge_n, words


def f(values: tuple[float, float, float]) -> float:
    return values[2]


def test_the_examples_of_the_paper():
    """Lin 2004, section 3.1: order within a sentence matters to ROUGE-L, neighbours to ROUGE-2."""
    reference = words("police killed the gunman")
    for text, one, two, longest in [
        ("police kill the gunman", 3 / 4, 1 / 3, 3 / 4),
        ("the gunman kill police", 3 / 4, 1 / 3, 2 / 4),
        ("the gunman police killed", 4 / 4, 2 / 3, 2 / 4),
    ]:
        # all have four words, so precision, recall and F are one number
        assert rouge_n(words(text), reference, 1) == pytest.approx((one, one, one)), text
        assert rouge_n(words(text), reference, 2) == pytest.approx((two, two, two)), text
        assert rouge_l(words(text), reference) == pytest.approx((longest, longest, longest)), text


def test_precision_looks_at_the_output_and_recall_at_the_reference():
    """Output of 2 words, reference of 5, both words in it: 2/2 and 2/5, and F = 2 · 1 · 0.4 / 1.4."""
    ours, theirs = words("sat mat"), words("the cat sat. On mat")
    assert rouge_n(ours, theirs, 1) == pytest.approx((1.0, 0.4, 0.8 / 1.4))
    assert rouge_l(ours, theirs) == pytest.approx((1.0, 0.4, 0.8 / 1.4))
    assert rouge_n(ours, theirs, 2) == (0.0, 0.0, 0.0)


def test_a_repeated_word_counts_as_often_as_the_reference_has_it():
    """`the` twice of four times: 2/4 and 2/3, F = 4/7. Pairs: `the the` once of three, in none of the reference's."""
    ours, theirs = words("the the the the"), words("the cat the")
    assert rouge_n(ours, theirs, 1) == pytest.approx((2 / 4, 2 / 3, 4 / 7))
    assert f(rouge_n(ours, theirs, 2)) == 0
    assert rouge_l(ours, theirs) == pytest.approx((2 / 4, 2 / 3, 4 / 7))


def test_words_are_lower_case_runs_of_letters_and_digits():
    assert words("State-of-the-art: GPT-2's F1 is 0.95!\n") == [
        *("state", "of", "the", "art", "gpt", "2", "s", "f1", "is", "0", "95")
    ]
    assert words("?! …") == []


def test_longest_common_subsequence_equals_the_table():
    rng = random.Random(0)
    for _ in range(300):
        a, b = (rng.choices("abcd", k=rng.randint(0, 70)) for _ in range(2))
        row = [0] * (len(b) + 1)
        for x in a:
            old = row
            row = [0]
            for j, y in enumerate(b):
                row.append(old[j] + 1 if x == y else max(old[j + 1], row[j]))
        assert common_subsequence(a, b) == row[-1]


def test_scores_are_means_over_texts_in_percent():
    outputs = ["a b c", "x y", ""]
    references = ["a b c", "x z", "a"]
    got = rouge.score(outputs, references)
    assert (got.rouge1.f, got.rouge1.precision, got.rouge1.recall) == pytest.approx((50, 50, 50))  # 1, 1/2, 0
    assert (got.rouge2.f, got.rougeL.f) == pytest.approx((100 / 3, 50))
    assert got.texts == 3
    assert rouge.quick(outputs, references) == pytest.approx({"rouge1": 50, "rouge2": 100 / 3, "rougeL": 50})


def test_each_measure_takes_its_best_reference():
    """Against `c b a d` all words are right and none in place; against `a b x y z` half are, in place."""
    got = rouge.quick(["a b c d"], [["c b a d", "a b x y z"]])
    assert got["rouge1"] == pytest.approx(100)
    assert got["rouge2"] == pytest.approx(100 * 2 * 1 / (3 + 4))
    assert got["rougeL"] == pytest.approx(100 * 2 / 4)
    best = rouge.quick(["a b c d"], [["a", "a b c x y"]])  # by F: 2 · 3 / 9 beats 2 · 1 / 5, though recall is lower
    assert best["rouge1"] == pytest.approx(100 * 6 / 9)
    assert rouge.quick(["a b c d"], [["a b"]]) == rouge.quick(["a b c d"], ["a b"])


def test_the_interval_is_that_of_the_mean():
    """Texts right or wrong like coins: the mean of n = 400 spreads by √(p(1-p)/n) = 2.5 points; 1.96 of it each way."""
    outputs = ["a", "b"] * 200
    got = rouge.score(outputs, ["a"] * 400)
    assert got.rouge1.f == pytest.approx(50)
    assert got.rouge1.low == pytest.approx(50 - 4.9, abs=0.8) and got.rouge1.high == pytest.approx(50 + 4.9, abs=0.8)
    assert got == rouge.score(outputs, ["a"] * 400)  # the same again
    sure = rouge.score(["a b"] * 5, ["a b"] * 5, samples=20)
    assert sure.rougeL.low == sure.rougeL.f == sure.rougeL.high == 100


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("We do this. It works.", "We do this."),
        ("One sentence without an end", "One sentence without an end"),
        ("Does it?\nYes, it does.", "Does it?"),
        ("Accuracy is 0.95 on GPT-2.5. We stop.", "Accuracy is 0.95 on GPT-2.5."),
        ("Some, e.g. RNNs, are slow (Liao et al. 2016). We test.", "Some, e.g. RNNs, are slow (Liao et al. 2016)."),
        ("As in Fig. 2 of J. Smith. Then more.", "As in Fig. 2 of J. Smith."),
        ("It is approx. right. Next.", "It is approx. right."),
        ('She said "no!" Then she left.', 'She said "no!"'),
        ("", ""),
    ],
)  # fmt: skip
def test_the_first_sentence(text, first):
    assert first_sentence(text) == first


def test_report_names_every_measure_and_its_settings():
    text = str(rouge.score(["a b"], ["a c"], samples=20))
    assert all(word in text for word in ("ROUGE-1", "ROUGE-2", "ROUGE-L", "95 %", "recall", "1 texts", "stem:no"))


def test_unequal_empty_and_missing_are_said():
    with pytest.raises(DataError, match="1 lines against 2"):
        rouge.score(["a"], ["a", "b"])
    with pytest.raises(DataError, match="nothing to score"):
        rouge.quick([], [])
    with pytest.raises(DataError, match="text 2 has no reference"):
        rouge.quick(["a", "b"], [["a"], []])
