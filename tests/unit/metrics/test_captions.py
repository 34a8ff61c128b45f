"""CIDEr against tables worked out by hand, BLEU-4 against sacreBLEU itself."""

import itertools
import math
from collections import Counter

import pytest
import sacrebleu

from regard.errors import DataError
from regard.metrics.captions import cider, score_captions


def test_cider_of_one_word_worked_out_by_hand():
    """Two images, "a" told of both and "dog" of one: log 2/2 = 0 and log 2/1. Bigrams: "a dog", of one image.

    Caption "a dog" of references "a dog" and "a cat", n = 1: cosine of (0, log 2) with itself is 1, with the cat's 0;
    n = 2: 1 and 0; there is no longer n-gram, so 0. Mean over n of the first: (1 + 1 + 0 + 0) / 4; over references and
    times 10: 2.5. The other image's caption "b" matches nothing: 0. In all 1.25.
    """
    assert cider(["a dog", "b"], [["a dog", "a cat"], ["a house"]]) == pytest.approx(1.25)


def test_cider_cuts_counts_and_minds_lengths():
    """Caption "x x x", reference "x": above the line min(3 w, w) · w, below it 3 w · w: 1/3 for n = 1, nothing else.

    Lengths differ by 2: exp(-4 / 72). Mean over n of 1/3 is 1/12; of two images the other scores 0: 10 / 24 · exp.
    """
    scores = cider(["x x x", "q"], [["x"], ["y"]])
    assert scores == pytest.approx(10 / 24 * math.exp(-4 / 72))


def test_what_every_image_has_says_nothing():
    assert cider(["the the", "the the"], [["the the"], ["the the"]]) == 0
    perfect = cider(["a red dog runs", "two men talk now"], [["A red dog runs."], ["two men talk now"]])
    assert perfect == pytest.approx(10)


def test_bleu_is_sacrebleus_over_all_references():
    made = ["a dog runs over the green grass", "two men sit on a bench"]
    refs = [["A dog runs on grass .", "a dog runs over the grass"], ["two men on a bench", "men sit on a wooden bench"]]
    scores = score_captions(made, refs)
    expected = sacrebleu.corpus_bleu(made, [[r[0] for r in refs], [r[1] for r in refs]], lowercase=True)
    assert scores.bleu == pytest.approx(expected.score) and "case:lc" in scores.signature and scores.images == 2
    with pytest.raises(DataError):
        score_captions(["a"], [[]])


def bleu_by_hand(made: list[str], refs: list[list[str]]) -> float:
    """BLEU-4 of Papineni et al. 2002, with as many references as an image has."""
    hits, made_count, length, closest = [0] * 4, [0] * 4, 0, 0
    for text, others in zip(made, refs, strict=True):
        words, others = text.split(), [other.split() for other in others]
        length += len(words)
        closest += min((abs(len(o) - len(words)), len(o)) for o in others)[1]
        for n in range(4):
            counts = Counter(tuple(words[i : i + n + 1]) for i in range(len(words) - n))
            theirs = [Counter(tuple(o[i : i + n + 1]) for i in range(len(o) - n)) for o in others]
            hits[n] += sum(min(k, max(o[gram] for o in theirs)) for gram, k in counts.items())
            made_count[n] += counts.total()
    short = min(1.0, math.exp(1 - closest / length))
    return 100 * short * math.exp(sum(math.log(h / m) for h, m in zip(hits, made_count, strict=True)) / 4)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_images_may_have_unequal_numbers_of_references(order):
    """One reference, two, and four: what an image lacks must not be made up from its caption, or from other images."""
    made = ["a dog runs over the wet grass", "two men sit on a bench", "the cat on a mat is asleep now"]
    refs = [
        ["a dog runs over the green grass today"],
        ["men sit on a bench", "two men sit on a wooden bench outside"],
        ["a cat is asleep on a mat", "the cat sleeps", "the cat on a mat is tired", "asleep"],
    ]
    made, refs = [made[i] for i in order], [refs[i] for i in order]
    scores = score_captions(made, refs)
    assert scores.bleu == pytest.approx(bleu_by_hand(made, refs)) and 30 < scores.bleu < 90
    more = [[*r, *r] for r in refs]
    assert score_captions(made, more).bleu == pytest.approx(scores.bleu), "the same said twice is nothing new"
