"""Pieces: exact round trips, a fixed layout, the same answers as the libraries that will read our files."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.tokenizers.bpe import BPE, BYTES, SPLITS, BPEDropout
from regard.errors import CheckpointError, ConfigError, DataError

LINES = [
    "Where's the station? I don't know; the 2,024 trains left at 10.",
    "Où est-ce que l'homme n'est pas là, 12 fois ? Aujourd'hui !",
    "Die Straße ist größer als früher , sagte er .",
    "the cat, the hat, the bat: they sat. <pad> </s> <0x41>",
] * 40


@pytest.fixture(scope="module", params=SPLITS)
def bpe(request) -> BPE:
    return BPE.train(LINES, 400, request.param)


def pieces(bpe: BPE, text: str) -> list[str]:
    return [bpe.piece(i) for i in bpe.encode(text)]


def test_layout_is_marians(bpe):
    assert bpe.size == 400
    assert [bpe.piece(i) for i in (bpe.eos, bpe.unk, bpe.pad)] == ["</s>", "<unk>", "<pad>"]
    assert (bpe.eos, bpe.unk, bpe.pad) == (0, 1, 399)
    assert [bpe.piece(i) for i in range(2, 258)] == BYTES
    assert len({bpe.piece(i) for i in range(bpe.size)}) == bpe.size


@given(text=st.text(st.characters(exclude_characters="▁\n", exclude_categories=["Cs"])) | st.sampled_from(LINES))
def test_decode_undoes_encode(bpe, text):
    ids = bpe.encode(text)
    assert bpe.decode(ids) == text
    assert not {bpe.eos, bpe.unk, bpe.pad} & set(ids)


def test_the_one_exception(bpe):
    assert bpe.decode(bpe.encode("a▁b")) == "a b"


@given(texts=st.lists(st.text() | st.sampled_from(LINES)))
def test_batch_equals_one_by_one(bpe, texts):
    assert bpe.encode_batch(texts) == [bpe.encode(text) for text in texts]


def test_special_tokens_in_the_text_are_text(bpe):
    assert bpe.decode(bpe.encode("</s> <pad><unk>")) == "</s> <pad><unk>"
    assert bpe.decode([0, *bpe.encode("the cat"), 0, bpe.pad]) == "the cat"


def test_splits_as_promised():
    text = "L'homme n'est-ce pas, 12e fois (là) ! aujourd’hui -5 don't"
    alone = ["▁L'", "homme", "▁n'", "est", "-ce", "▁pas", ",", "▁12", "e", "▁fois", "▁(", "là", ")", "▁!"]
    alone += ["▁aujourd’", "hui", "▁-", "5", "▁don'", "t"]
    big = BPE.train([text] * 3, 2000, "text")  # room for every word whole: what stays apart was split by rule
    assert pieces(big, text) == alone
    assert pieces(BPE.train([text] * 3, 2000, "spaces"), text) == ["▁" + word for word in text.split()]


def test_words_are_groups_of_positions(bpe):
    text = "Where's the xylophone?"
    ids = [*bpe.encode(text), bpe.eos, bpe.pad]
    groups = bpe.words(ids)
    assert [i for group in groups for i in group] == list(range(len(ids) - 2))
    assert [bpe.decode([ids[i] for i in group]) for group in groups] == text.split()


def test_transformers_reads_the_same(bpe, tmp_path):
    from transformers import AutoTokenizer

    bpe.save(tmp_path, max_length=99)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "marian"}))  # as it lies in a model folder
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    texts = [*LINES[:4], "  two  spaces ", "日本 </s> <pad>", ""]
    for text in texts:
        assert theirs(text)["input_ids"] == [*bpe.encode(text), bpe.eos]
        assert theirs.decode(bpe.encode(text)) == text
    assert (theirs.eos_token_id, theirs.unk_token_id, theirs.pad_token_id) == (bpe.eos, bpe.unk, bpe.pad)
    assert (len(theirs), theirs.model_max_length) == (bpe.size, 99)
    assert set(theirs(texts, padding=True)) == {"input_ids", "attention_mask"}


def test_saved_and_loaded_is_the_same(bpe, tmp_path):
    bpe.save(tmp_path)
    again = BPE.load(tmp_path)
    assert again.tokenizer.to_str() == bpe.tokenizer.to_str()
    assert again.encode("</s> größer") == bpe.encode("</s> größer")


def test_training_is_deterministic_across_processes():
    script = (
        "import sys, hashlib; from regard.data.tokenizers.bpe import BPE\n"
        "lines = [f'word{i % 97} wörd{i * i % 53} {chr(0x4E00 + i % 700)}x' for i in range(3000)]\n"
        "print(hashlib.sha256(BPE.train(lines, 700, 'text').tokenizer.to_str().encode()).hexdigest())"
    )
    runs = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True) for _ in range(3)
    ]
    assert len({run.stdout for run in runs}) == 1


def test_a_learned_piece_never_poses_as_a_special_one():
    bpe = BPE.train(["<pad> <0x41> x<pad> x<0x41>"] * 500, 600, "spaces")
    assert bpe.decode(bpe.encode("<pad>x <0x41>")) == "<pad>x <0x41>"
    assert bpe.pieces.count("<pad>") == bpe.pieces.count("<0x41>") == 1


def test_many_characters_leave_room_for_merges():
    lines = [f"the {chr(0x4E00 + i)} word" for i in range(3000)]
    bpe = BPE.train(lines, 1000)
    assert {"▁the", "▁word"} <= set(bpe.pieces)
    assert bpe.decode(bpe.encode(lines[-1])) == lines[-1]


@pytest.mark.parametrize(
    ("lines", "size", "split", "error", "words"),
    [
        (LINES, 100, "text", ConfigError, "too small"),
        (LINES, 600, "word", ConfigError, "'spaces'"),
        ([], 600, "text", DataError, "no text"),
        (["", ""], 600, "text", DataError, "no text"),
    ],
)
def test_bad_requests(lines, size, split, error, words):
    with pytest.raises(error, match=words):
        BPE.train(lines, size, split)


def test_a_missing_or_broken_or_foreign_file(tmp_path):
    with pytest.raises(CheckpointError, match="no run or model folder"):
        BPE.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read"):
        BPE.load(tmp_path)
    from tokenizers import Tokenizer, models

    Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[])).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(CheckpointError, match="</s> first"):
        BPE.load(tmp_path)


# BPE-dropout


def encoded(bpe: BPE, texts: list[str]) -> list[np.ndarray]:
    return [np.array(ids, np.uint16) for ids in bpe.encode_batch(texts)]


def test_our_merging_without_dropout_is_the_librarys(bpe):
    texts = [*LINES[:4], "unseen words, größere Häuser!", "日本 x", " two  spaces ", "a"]
    dropout = BPEDropout(bpe, 0.0)
    for ids in encoded(bpe, texts):
        words = [ids[group[0] : group[-1] + 1] for group in bpe.words(ids.tolist())]
        cut = [np.frombuffer(dropout._cut(word.astype(np.uint32).tobytes(), 0), np.uint32) for word in words]
        assert np.concatenate(cut).tolist() == ids.tolist()


@given(texts=st.lists(st.text(st.characters(exclude_characters="▁\n", exclude_categories=["Cs"])), min_size=1))
def test_dropout_never_changes_the_text(bpe, texts):
    dropout = BPEDropout(bpe, 0.5, seed=3, max_length=10_000)
    for text, ids in zip(texts, dropout(encoded(bpe, texts), np.arange(len(texts)), 0, 0), strict=True):
        assert bpe.decode(ids) == text


def test_dropout_is_a_function_of_seed_epoch_row_and_side(bpe):
    sentences, rows = encoded(bpe, LINES[:20]), np.arange(20)

    def cut(seed=0, epoch=0, side=0, rows=rows, sentences=sentences):
        return [ids.tolist() for ids in BPEDropout(bpe, 0.3, seed)(sentences, rows, epoch, side)]

    assert cut() == cut()
    assert cut()[7:9] == cut(rows=rows[7:9], sentences=sentences[7:9])  # whatever else is in the batch
    for other in (cut(seed=1), cut(epoch=1), cut(side=1), cut(rows=rows + 20)):
        assert other != cut()


def test_forgetting_changes_nothing(bpe, monkeypatch):
    sentences, rows = encoded(bpe, LINES[:40]), np.arange(40)
    whole = BPEDropout(bpe, 0.3)(sentences, rows, 0, 0)
    monkeypatch.setattr(BPEDropout, "REMEMBER", 3)
    forgetful = BPEDropout(bpe, 0.3)
    again = [ids for i in range(0, 40, 4) for ids in forgetful(sentences[i : i + 4], rows[i : i + 4], 0, 0)]
    assert [a.tolist() for a in whole] == [b.tolist() for b in again]
    assert forgetful.remembered <= 3


def test_dropout_leaves_a_merge_out_as_often_as_it_says():
    bpe = BPE.train(["ab ab ab"] * 30, 330, "spaces")  # two merges make the word: ab from a b (or ▁a), then the rest
    first = min(range(len(bpe.pieces)), key=lambda i: (len(bpe.pieces[i]) != 2 or "<" in bpe.pieces[i], i))
    assert bpe.pieces[first] in ("ab", "▁a")
    word, p, n = np.array(bpe.encode("ab"), np.uint32).tobytes(), 0.1, 4000
    assert len(word) == 4
    dropout = BPEDropout(bpe, p)
    whole = sum(len(dropout._cut(word, variant)) == 4 for variant in range(n)) / n
    # Either the first merge survives (only one pair is then left, tried once) or it is left out and the word stays cut
    # unless another merge of the two characters exists, which it does not: (1 - p) twice.
    assert abs(whole - (1 - p) ** 2) < 4 * (0.81 * 0.19 / n) ** 0.5  # four standard errors: odds of 1 in 16,000


def test_the_pool_is_used_evenly(bpe):
    chosen = BPEDropout(bpe, 0.1)._choose(np.arange(64_000), np.zeros(64_000, int), 0, 0)
    counts = np.bincount(chosen.astype(int), minlength=32)
    assert counts.min() > 1800 and counts.max() < 2200  # 2000 each, 4.5 standard deviations


def test_a_sentence_that_would_grow_too_long_stays(bpe):
    sentences = encoded(bpe, LINES[:4])
    longest = max(map(len, sentences))
    for a, b in zip(
        sentences, BPEDropout(bpe, 0.9, max_length=longest + 1)(sentences, np.arange(4), 0, 0), strict=True
    ):
        assert len(b) <= longest
        assert bpe.decode(a) == bpe.decode(b)


def test_a_sentence_cut_anew_leaves_room_for_its_end_mark(bpe):
    """Of L pieces, it is taken where L and an end mark fit, and not where they do not."""
    (sentence,), rows = encoded(bpe, LINES[:1]), np.arange(1)
    (free,) = BPEDropout(bpe, 0.5, max_length=10_000)([sentence], rows, 0, 0)
    assert len(free) > len(sentence), "nothing was left out: nothing is compared"
    (fits,) = BPEDropout(bpe, 0.5, max_length=len(free) + 1)([sentence], rows, 0, 0)
    (stays,) = BPEDropout(bpe, 0.5, max_length=len(free))([sentence], rows, 0, 0)
    assert fits.tolist() == free.tolist() and stays.tolist() == sentence.tolist()
