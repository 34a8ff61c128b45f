"""Twice the input takes about twice the work, never four times; what cannot be so is refused with the number.

Work is counted (calls of functions, words handed to a tokenizer), or its time is bounded far above what linear work
takes, so that a busy machine changes nothing.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from regard.data.history import read_histories
from regard.data.iob import BestTags
from regard.data.sentences import sentences
from regard.data.settings import HistoryConfig
from regard.data.tokenizers.wordpiece import WordPiece
from regard.errors import DataError, LimitError
from regard.metrics import rouge, wer
from regard.predictors import Tagger


def count_calls(work: Callable[[], object]) -> int:
    """How many functions are called, in Python and in C."""
    calls = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def wide_table(folder: Path, columns: int) -> Path:
    path = folder / f"{columns}.csv"
    names = [f"c{i}" for i in range(columns)]
    rows = [[f"2024-01-{day:02}", *("1.5" for _ in names)] for day in range(1, 13)]
    path.write_text("".join(",".join(row) + "\n" for row in [["date", *names], *rows]))
    return path


def test_a_table_of_many_columns_is_read_in_linear_time(tmp_path):
    few, many = (wide_table(tmp_path, columns) for columns in (200, 800))
    read_histories(few, HistoryConfig())  # what is imported is imported
    first, second = (count_calls(lambda p=path: read_histories(p, HistoryConfig())[0]) for path in (few, many))
    assert second < 6 * first
    history = read_histories(many, HistoryConfig())[0]
    assert len(history.columns) == 800 and history.values.shape == (12, 800)
    with pytest.raises(DataError, match=r"has no column 'x'; there are: date, c0, .* and 781 more$"):
        read_histories(many, HistoryConfig(target=("x",)))


class ManyWords(Tagger):
    """A tagger of one label; counts the words that are encoded."""

    labels = ("O",)

    def __init__(self, max_length: int):
        letters = "abcdefghij"
        self.tokenizer = WordPiece.train([" ".join(letters) * 9, " ".join(a + b for a in letters for b in letters)], 40)
        self.max_length, self.encoded, self.best_tags = max_length, 0, BestTags(self.labels)
        encode = self.tokenizer.encode_words

        def counted(words, max_length):
            self.encoded += len(words)
            return encode(words, max_length)

        self.tokenizer = SimpleNamespace(encode_words=counted)

    def _states(self, texts, tokens=4096):
        return [np.ones((len(t.ids), 1)) for t in texts]


@pytest.mark.parametrize("word", ["a", "abc", "\u200b"])
def test_words_are_tagged_in_linear_time(word):
    """Also words of several pieces, and words of none; and every word is read."""
    tagger = ManyWords(max_length=16)
    ((labels, likely),) = tagger.tag_words([[word] * 2000])
    assert len(labels) == 2000 and tagger.encoded < 8 * 2000
    assert all(p == 1.0 for p in likely) or word == "\u200b"


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.mark.parametrize("text", ["Dr. ", "No. ", "x. A ", "...", '."', "?) ", "et al. Vol. "])
def test_sentences_are_found_in_linear_time(text):
    """A quadratic search of this text would take minutes; ten seconds leave room for any machine."""
    for find in (sentences, rouge.first_sentence):
        assert seconds(lambda f=find: f(text * 100_000)) < 10


def test_a_long_text_against_a_short_one_is_compared_in_linear_time():
    """ROUGE-L of 200,000 words against 80 takes as many steps as there are words, of numbers of 80 bits."""
    long, short = ["a", "b", "c", "d"] * 50_000, ["a", "d"] * 40
    assert seconds(lambda: rouge.common_subsequence(long, short)) < 10
    assert rouge.common_subsequence(long, short) == rouge.common_subsequence(short, long) == 80


def test_texts_too_long_to_compare_are_refused_with_lengths(monkeypatch):
    monkeypatch.setattr(rouge, "MOST", 10_000)
    monkeypatch.setattr(wer, "MOST", 10_000)
    fits, over = " ".join(["a"] * 100), " ".join(["a"] * 101)
    assert rouge.quick([fits], [fits])["rougeL"] == 100
    assert wer.word_errors([fits], [fits]).rate == 0
    with pytest.raises(LimitError, match="101 and 100 words: ROUGE-L compares at most 10,000 pairs"):
        rouge.quick([fits], [over])
    with pytest.raises(LimitError, match="101 words in the reference and 100 in the transcript of one clip"):
        wer.word_errors([over], [fits])
