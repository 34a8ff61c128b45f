"""Prepared labels: found again, split without leaks, label on the first piece, batches that lose nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.data.batch import collate_labelled
from regard.data.examples import Example
from regard.data.labelled import LabelledConfig, first_pieces, hold_out, prepare_labels, read_parts
from regard.data.loader import Loader, in_order
from regard.data.sources import LabelledSource
from regard.data.tokenizers.wordpiece import WordPiece
from regard.errors import ConfigError, DataError


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def reviews(tmp_path):
    rows = [
        f"film {'ab'[i % 2] * (i % 7 + 1)} was {'good' if i % 2 else 'bad'} {i},{'pos' if i % 2 else 'neg'}"
        for i in range(60)
    ]
    (tmp_path / "r.csv").write_text("text,label\n" + "\n".join([*rows, ",pos", "  ,neg"]) + "\n")
    return LabelledConfig(path=str(tmp_path / "r.csv"), vocab=120, max_length=12)


def test_prepared_once_and_reported(reviews):
    messages = []
    prepared = prepare_labels(reviews, "classify", messages.append)
    again = prepare_labels(reviews, "classify", messages.append)
    assert again.folder == prepared.folder and sum("preparing" in line for line in messages) == 1
    assert prepared.labels == ("neg", "pos") and sum(prepared.counts) == len(prepared.train["ids"]) == 54
    assert len(prepared.valid["ids"]) == 6 and sorted(prepared.valid["labels"][:]) == [0, 0, 0, 1, 1, 1]
    assert "skipped 2 of 62 rows: line 62: no text" in again.report() and "neg: 27 (50.0%)" in prepared.report()
    cut = prepare_labels(LabelledConfig(path=reviews.path, vocab=120, max_length=6), "classify", messages.append)
    assert "longer than 6 tokens" in cut.report() and cut.train["ids"].lengths.max() == 6
    assert cut.folder != prepared.folder


def test_equal_texts_stay_on_one_side_and_every_class_is_held_out():
    rows = [Example(f"text {i // 2}", None, "ab"[i // 2 % 2]) for i in range(80)]
    split = lambda rows, share=0.25: hold_out(rows, LabelledConfig(held_out=share), "texts")  # noqa: E731
    train, valid = split(rows)
    assert not {r.text for r in train} & {r.text for r in valid}
    assert len(valid) == 20 and sum(r.label == "a" for r in valid) == 10
    assert split(rows[::-1])[1] == valid[::-1], "the order of the file decides nothing"
    assert len(split(rows[:8], 0.1)[1]) > 0, "a part that rounds to none is still a text"
    with pytest.raises(
        DataError, match="4 texts, 2 of them different, are too few to split"
    ):  # never the only one of its class
        split(rows[:4])


def test_what_is_shared_by_both_files_is_counted(reviews, tmp_path):
    (tmp_path / "v.csv").write_text(
        "text,label\nnew one,pos\n" + (tmp_path / "r.csv").read_text().splitlines()[1] + "\n"
    )
    prepared = prepare_labels(LabelledConfig(path=reviews.path, valid=str(tmp_path / "v.csv"), vocab=120), "classify")
    assert prepared.manifest["report"]["shared"] == 1 and "will be inflated" in prepared.report()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("text,label\na,pos\nb,pos\n", "all examples have the label 'pos'"),
        ("text,label\na,pos\n,neg\n", "line 3: no text .*1 of 2 rows cannot be used, more than a third"),
        ("text,label\na,pos\nb,neg\n", "2 examples in .*r.csv are too few to split"),
        ("text,label\n", "has no rows"),
    ],
)
def test_useless_data_is_refused(tmp_path, text, message):
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        prepare_labels(LabelledConfig(path=str(tmp_path / "r.csv"), vocab=60), "classify")


def test_a_label_nobody_was_trained_on_is_named(reviews, tmp_path):
    (tmp_path / "v.csv").write_text("text,label\ngood,pos\nso so,mixed\n")
    with pytest.raises(DataError, match=r"v.csv line 3: the label 'mixed' is not among those trained on: neg, pos"):
        prepare_labels(LabelledConfig(path=reviews.path, valid=str(tmp_path / "v.csv"), vocab=120), "classify")


def test_settings_are_checked():
    with pytest.raises(ConfigError, match="held_out"):
        LabelledConfig(held_out=0.0)
    with pytest.raises(ConfigError, match="max_length"):
        LabelledConfig(max_length=2)
    with pytest.raises(ConfigError, match="train on what"):
        read_parts(LabelledConfig(), "classify")


def test_the_label_stands_on_the_first_piece_of_a_word():
    pieces = WordPiece.train(["ab ab ab abcd"] * 3, 14)
    encoded = pieces.encode_words(["ab", "abcd", "ab"])
    marks = first_pieces(encoded, [5, 6, 7])
    assert len(marks) == len(encoded.ids) and [m for m in marks if m >= 0] == [5, 6, 7]
    assert marks[0] == marks[-1] == -1 and [encoded.words[i] for i, m in enumerate(marks) if m >= 0] == [0, 1, 2]
    assert [encoded.words.index(w) for w in (0, 1, 2)] == [i for i, m in enumerate(marks) if m >= 0]


def test_collate_pads_and_numbers_the_second_text():
    batch = collate_labelled([([2, 7, 3, 8, 3], 3, [1]), ([2, 9, 3], 3, [0])], pad=0, per_piece=False)
    assert batch.ids.tolist() == [[2, 7, 3, 8, 3], [2, 9, 3, 0, 0]] and batch.lengths.tolist() == [5, 3]
    assert batch.sentences.tolist() == [[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]] and batch.labels.tolist() == [1, 0]
    assert batch.count == 2 and batch.part(slice(1, 2)).ids.tolist() == [[2, 9, 3]]
    tags = collate_labelled([([2, 7, 3], 3, [-1, 4, -1]), ([2, 7, 8, 3], 4, [-1, 1, 2, -1])], 0, per_piece=True)
    assert tags.labels.tolist() == [[-1, 4, -1, -1], [-1, 1, 2, -1]] and tags.count == 3
    assert [half.count for half in tags.split()] == [1, 2] and tags.lengths.tolist() == [3, 4]


def test_the_segments_of_tagged_words_say_how_they_are_written(tmp_path):
    (tmp_path / "t.conll").write_text("Ada\tP\nmet\tO\nNATO\tG\n\nhe\tO\nmet\tO\n\n" * 3)
    config = LabelledConfig(path=str(tmp_path / "t.conll"), valid=str(tmp_path / "t.conll"), vocab=60)
    plain, marked = (prepare_labels(replace(config, case=case), "tag", lambda _: None) for case in (False, True))
    assert plain.folder != marked.folder and marked.tokenizer.marks_case and not plain.tokenizer.marks_case
    batch = LabelledSource(**marked.train, pad=0).batch(np.array([0, 1]))
    encoded = marked.tokenizer.encode_words(["Ada", "met", "NATO"])
    assert batch.sentences[0].tolist() == [0 if w is None else (1, 0, 2)[w] for w in encoded.words]
    assert not batch.sentences[1].any()  # padding, too
    same = LabelledSource(**plain.train, pad=0).batch(np.array([0, 1]))
    assert torch.equal(same.ids, batch.ids) and torch.equal(same.labels, batch.labels) and same.sentences is None
    with pytest.raises(ConfigError, match="for tagging"):
        prepare_labels(replace(config, case=True), "classify")


def test_an_epoch_visits_every_text_once_and_resumes(reviews):
    file = prepare_labels(reviews, "classify").train
    source = LabelledSource(**file, pad=0)
    loader, other = (Loader(source, source.plan(64), seed=1) for _ in range(2))
    first = [next(loader) for _ in range(loader.batches_per_epoch)]
    assert sorted(np.concatenate([b.rows for b in first]).tolist()) == list(range(len(source)))
    assert all(b.ids.numel() <= 64 for b in first) and 0 <= loader.padding < 0.3
    assert sorted(r for b in in_order(source, source.plan(64)) for r in b.rows) == list(range(len(source)))
    state = loader.state()
    ahead = [next(loader).ids for _ in range(3)]
    other.restore(state)
    assert all(torch.equal(a, next(other).ids) for a in ahead)
