"""Paired bootstrap: agrees with sacreBLEU's command, knows equal from better, and does not call luck a difference."""

import random
import re
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import binomtest

from regard.errors import DataError
from regard.metrics.compare import Sums, compare, compare_sums, counted, verdict
from regard.metrics.labels import entity_score


def spoiled(lines: list[str], part: float, seed: int) -> list[str]:
    """The lines with some of their words replaced."""
    rng = random.Random(seed)
    return [" ".join(w if rng.random() > part else "x" for w in line.split()) for line in lines]


@pytest.fixture(scope="module")
def references() -> list[str]:
    rng = random.Random(0)
    return [" ".join(rng.choices("abcdefgh", k=rng.randint(4, 12))) for _ in range(100)]


def test_scores_and_p_values_are_those_of_the_sacrebleu_command(references, tmp_path):
    first, second = spoiled(references, 0.2, 1), spoiled(references, 0.17, 2)
    for name, lines in (("ref", references), ("one", first), ("two", second)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    line = [sys.executable, "-m", "sacrebleu", "ref", "-i", "one", "two", "-m", "bleu", "chrf"]
    line += ["--paired-bs", "--paired-bs-n", "300", "--force", "--format", "text", "-w", "3"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True)
    (row,) = re.findall(r" two .*", done.stdout)
    scores = [float(x) for x in re.findall(r"([0-9.]+) \(", row)]
    p_values = [float(x) for x in re.findall(r"\(p = ([0-9.]+)\)", done.stdout)]
    bleu, chrf = compare(first, second, references, samples=300)
    assert (bleu.metric, chrf.metric) == ("BLEU", "chrF")
    assert [bleu.second, chrf.second] == pytest.approx(scores, abs=1e-3)
    assert [bleu.p_value, chrf.p_value] == pytest.approx(p_values, abs=1e-3)


def test_much_better_is_significant_and_the_sentence_says_who(references):
    bleu, _ = compare(spoiled(references, 0.4, 1), spoiled(references, 0.05, 2), references, samples=200)
    assert bleu.difference > 10 and bleu.p_value < 0.01
    assert verdict(bleu, "A", "B").startswith("B is better than A")
    worse, _ = compare(spoiled(references, 0.05, 2), spoiled(references, 0.4, 1), references, samples=200)
    assert worse.difference == pytest.approx(-bleu.difference)
    assert verdict(worse, "A", "B").startswith("A is better than B")


def test_a_system_does_not_differ_from_itself(references):
    for result in compare(references, references, references, samples=200):
        assert result.difference == 0 and result.p_value == 1.0
        assert "score the same" in verdict(result, "A", "B")


def test_the_same_parts_are_drawn_for_both():
    """A little better at every part is a clear difference, however far the parts are from each other."""
    parts, ones = np.random.default_rng(0).normal(50, 30, 40), np.ones(40)
    first, second = (Sums(metric="points", above=x, below=ones, scale=1.0) for x in (parts, parts + 0.5))
    comparison = compare_sums(first, second, samples=200)
    assert comparison.second - comparison.first == pytest.approx(0.5) and comparison.p_value < 0.01


def test_equal_noise_is_seldom_called_a_difference(references):
    """Ten pairs of equally noisy systems at level 0.05: four or more calls happen once in a thousand such tests."""
    calls = 0
    for seed in range(10):
        one, two = spoiled(references, 0.2, 2 * seed), spoiled(references, 0.2, 2 * seed + 1)
        calls += compare(one, two, references, samples=200)[0].p_value < 0.05
    assert calls < 4


def test_the_systems_must_have_translated_the_same_sentences(references):
    with pytest.raises(DataError, match="99 lines against 100"):
        compare(references[:99], references, references)


def test_bits_that_differ_everywhere_are_no_chance_and_noise_is():
    def bits(parts: list[float]) -> Sums:
        return Sums(metric="bits per byte", above=parts, below=[100] * 40, scale=1.0, lower_is_better=True)

    first = [200.0 + i for i in range(40)]
    result = compare_sums(bits(first), bits([b - 5 for b in first]), samples=500)
    assert result.p_value == 1 / 501 and round(result.difference, 6) == -0.05
    assert "b is better than a by 0.05 bits per byte" in verdict(result, "a", "b")
    noise = compare_sums(bits(first), bits([b + (-1) ** i * 5 for i, b in enumerate(first)]), samples=500)
    assert noise.p_value == 1.0 and noise.difference == 0
    leaning = compare_sums(bits(first), bits([b + (6 if i % 2 else -5) for i, b in enumerate(first)]), samples=2000)
    assert 0.2 < leaning.p_value < 0.9  # mean 0.5 with a spread of 5.5 / √40 = 0.87: p is about 0.57


@pytest.mark.parametrize(("lost", "won"), [(20, 40), (25, 35), (29, 31), (4, 16), (0, 5), (2490, 2610)])
def test_two_classifiers_differ_as_mcnemar_says(lost, won):
    """Some texts are right in one of them alone, many wrong in both; how fair is that coin?"""
    both = [1] * 150 + [0] * 150
    first = [1] * lost + [0] * won + both
    second = [0] * lost + [1] * won + both
    one, two = (Sums(metric="accuracy", above=right, below=[1] * len(right)) for right in (first, second))
    comparison = compare_sums(one, two, samples=100)
    assert comparison.difference == pytest.approx(100 * (won - lost) / len(first))
    assert comparison.second == pytest.approx(100 * (150 + won) / len(first))
    assert comparison.p_value == pytest.approx(binomtest(lost, lost + won).pvalue)
    assert "points of accuracy" in verdict(comparison, "a", "b")


def test_counts_of_texts_add_up_to_the_score_of_all():
    random = np.random.default_rng(0)
    tags = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    true, one, two = ([[tags[i] for i in random.integers(0, 5, n)] for n in (3, 8, 1, 20, 12, 0, 9)] for _ in range(3))
    counts = [[counted(a, b, True) for a, b in zip(true, guessed, strict=True)] for guessed in (one, two)]
    sums = [Sums(metric="entity F1", above=[a for a, _ in c], below=[b for _, b in c]) for c in counts]
    comparison = compare_sums(*sums, samples=100)
    assert comparison.first == pytest.approx(100 * entity_score(true, one).f1)
    assert comparison.second == pytest.approx(100 * entity_score(true, two).f1)
    assert counted(["A", "B", "B"], ["A", "B", "A"], False) == (2, 3)
    empty = Sums(metric="entity F1", above=[0] * 3, below=[0] * 3)
    nothing = compare_sums(empty, empty, samples=100)
    assert (nothing.first, nothing.p_value) == (0.0, 1.0)
