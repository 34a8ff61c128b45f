"""BLEU and chrF are sacreBLEU's: compared with its own command line, its published example, and arithmetic."""

import gc
import json
import math
import subprocess
import sys
import tracemalloc

import pytest

from regard.errors import ConfigError, DataError
from regard.metrics import bleu

REFERENCES = ["The dog bit the man.", "It was not unexpected.", "The man bit him first.", "He ran away, quickly."] * 5
OUTPUT = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him.", "He ran away quickly."] * 5


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    """What the sacrebleu command says about the same text."""
    folder = tmp_path_factory.mktemp("sacrebleu")
    (folder / "ref").write_text("\n".join(REFERENCES) + "\n")
    (folder / "out").write_text("\n".join(OUTPUT) + "\n")
    line = [sys.executable, "-m", "sacrebleu", "ref", "-i", "out", "-m", "bleu", "chrf", "--confidence", "-w", "6"]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_scores_and_signatures_equal_sacrebleus_command(official):
    got = bleu.score(OUTPUT, REFERENCES)
    b, c = official
    assert got.bleu == pytest.approx(b["score"], abs=1e-5)
    assert got.chrf == pytest.approx(c["score"], abs=1e-5)
    assert (got.bleu_low + got.bleu_high) / 2 == pytest.approx(b["confidence_mean"], abs=1e-5)
    assert (got.bleu_high - got.bleu_low) / 2 == pytest.approx(b["confidence_var"], abs=1e-5)
    assert (got.chrf_high - got.chrf_low) / 2 == pytest.approx(c["confidence_var"], abs=1e-5)
    assert got.signature == b["signature"]
    assert got.chrf_signature == c["signature"]


def test_bleu_by_hand():
    """5 words, one wrong: precisions 4/5 3/4 2/3 1/2 and no brevity penalty."""
    got = bleu.quick(["a b c d x"], ["a b c d e"], tokenize="none")
    assert got["bleu"] == pytest.approx(100 * math.exp(sum(map(math.log, (4 / 5, 3 / 4, 2 / 3, 1 / 2))) / 4))


def test_a_perfect_system_has_100_and_a_point_for_an_interval():
    got = bleu.score(REFERENCES, REFERENCES, samples=100)
    assert got.bleu == pytest.approx(100)
    assert got.bleu_low == pytest.approx(got.bleu_high)
    assert got.length_ratio == 1


def test_tokenised_text_is_scored_as_it_stands():
    """13a would split the full stop off; `none` takes the words as they are."""
    glued, apart = ["a b c d e."], ["a b c d e ."]
    assert bleu.quick(glued, apart, "13a")["bleu"] == pytest.approx(100)
    assert bleu.quick(glued, apart, "none")["bleu"] < 90


def test_buckets_hold_every_sentence_once_and_score_their_own():
    sources = ["w"] * 3 + ["w " * 5] * 4 + ["w " * 70] * 2 + [""]
    references = [f"a b c d e {i}" for i in range(10)]
    outputs = references[:3] + ["x y z"] * 4 + references[7:9] + references[9:]
    got = bleu.by_length(sources, outputs, references)
    assert [(b.words, b.sentences) for b in got] == [("1–4", 4), ("5–8", 4), ("61+", 2)]
    assert [round(b.bleu) for b in got] == [100, 0, 100]


@pytest.mark.parametrize("count", [0, *range(1, 14), *(n for edge in bleu.EDGES for n in (edge, edge + 1)), 200])
def test_a_source_is_counted_in_the_bucket_that_names_its_length(count):
    (bucket,) = bleu.by_length(["w " * count], ["a b c d"], ["a b c d"])
    assert bucket.low <= max(1, count) and (count <= bucket.high or not bucket.high), bucket.words
    assert bucket.low == 1 or bucket.low - 1 in bleu.EDGES


def test_a_source_of_four_words_is_counted_in_one_to_four():
    assert [b.words for b in bleu.by_length(["a b c d", "a b c d e"], ["x"] * 2, ["x"] * 2)] == ["1–4", "5–8"]


def test_the_text_for_people_names_score_interval_and_signature():
    text = str(bleu.score(OUTPUT, REFERENCES, sources=REFERENCES, samples=100))
    assert "BLEU" in text and "chrF" in text and "95 %" in text and "tok:13a" in text and "source words" in text


def test_unequal_empty_and_unknown_are_said():
    with pytest.raises(DataError, match="3 lines against 4"):
        bleu.score(OUTPUT[:3], REFERENCES[:4])
    with pytest.raises(DataError, match="no sentence"):
        bleu.score([], [])
    with pytest.raises(DataError, match="all 1,000 references are empty"):
        bleu.score(["a"] * 1000, ["", " "] * 500)
    with pytest.raises(ConfigError, match="'13a'"):
        bleu.quick(OUTPUT, REFERENCES, tokenize="13b")


@pytest.mark.parametrize("tokenize", ["13a", "intl", "char"])
def test_scoring_keeps_no_lines(tokenize):
    """An evaluation every few steps, for hours: what is scored must not stay in memory."""
    references = [f"the cat number {i} sat on the mat , again ." for i in range(40)]

    def held_after(round: int) -> int:
        bleu.quick([f"{round} {line}" for line in references], references, tokenize)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    held_after(0)  # imports, and tables that stay
    gc.freeze()  # what other tests left is not collected again and again
    tracemalloc.start()
    try:
        before = [held_after(round) for round in range(2)]
        assert [held_after(round) for round in range(2, 5)][-1] - before[-1] < 20_000
    finally:
        tracemalloc.stop()
        gc.unfreeze()
