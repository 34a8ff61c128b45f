"""WordPiece: learned the same every time, pairs with sentence numbers, offsets and words, and files that say no."""

import json
import subprocess
import sys

import pytest

from regard.data.tokenizers import load
from regard.data.tokenizers.encoder import CASES, case_of
from regard.data.tokenizers.wordpiece import SPECIAL, WordPiece
from regard.errors import CheckpointError, ConfigError, DataError

LINES = [
    "Be alert! BERT will hurt!",
    "The curious kitten deftly climbed the bookshelf.",
    "BERT, lift your skirt.",
    "Die Straße führt nach Köln, 我爱北京。",
    "low lower lowest, new newer newest, wide wider widest",
] * 3


@pytest.fixture(scope="module")
def pieces() -> WordPiece:
    return WordPiece.train(LINES, 136)


def test_special_tokens_come_first_then_characters(pieces):
    assert [pieces.piece(i) for i in range(5)] == list(SPECIAL)
    assert (pieces.pad, pieces.unk, pieces.cls, pieces.sep, pieces.mask) == (0, 1, 2, 3, 4)
    assert pieces.size == 136 and pieces.piece(5) == "!"
    whole = {pieces.piece(i) for i in range(pieces.size)}
    assert {"bert", "kitten"} & whole and any(p.startswith("##") and len(p) > 3 for p in whole)


def test_the_same_lines_give_the_same_vocabulary_in_every_process(pieces):
    code = (
        "import hashlib, json, sys; from regard.data.tokenizers.wordpiece import WordPiece;"
        "learned = WordPiece.train(json.loads(sys.argv[1]), 136).tokenizer.to_str();"
        "print(hashlib.sha256(learned.encode()).hexdigest())"
    )
    output = {
        subprocess.run(
            [sys.executable, "-c", code, json.dumps(LINES)], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(3)
    }
    assert len(output) == 1
    assert WordPiece.train(LINES, 136).tokenizer.to_str() == pieces.tokenizer.to_str()


def test_a_pair_has_sentence_numbers_offsets_and_words(pieces):
    a, b = "Be alert!", "BERT will hurt!"
    encoded = pieces.encode(a, b)
    assert [pieces.piece(i) for i in encoded.ids].count("[SEP]") == 2 and encoded.ids[0] == pieces.cls
    middle = encoded.ids.index(pieces.sep)
    assert encoded.sentences == [0] * (middle + 1) + [1] * (len(encoded.ids) - middle - 1)
    for id, sentence, (start, stop), word in zip(
        encoded.ids, encoded.sentences, encoded.offsets, encoded.words, strict=True
    ):
        if word is None:
            assert id in (pieces.cls, pieces.sep) and (start, stop) == (0, 0)
        else:
            assert (a, b)[sentence][start:stop].lower() == pieces.piece(id).removeprefix("##")
    assert [w for w, s in zip(encoded.words, encoded.sentences, strict=True) if s == 0 and w is not None][
        -1
    ] == 2  # the "!"


def test_words_given_as_words_are_counted_as_given(pieces):
    encoded = pieces.encode_words(["BERT", "newest-low", "dirt"])
    assert [w for w in dict.fromkeys(encoded.words) if w is not None] == [0, 1, 2]
    assert encoded.words[0] is None and encoded.words[-1] is None and encoded.ids[-1] == pieces.sep


@pytest.mark.parametrize(("word", "case"), [
    ("grace", "lower"), ("2026", "lower"), ("#!", "lower"), ("北京", "lower"), ("", "lower"), ("'tis", "lower"),
    ("Grace", "Title"), ("A", "Title"), ("Örebro", "Title"), ("#Paris", "Title"), ("O'", "Title"),
    ("NATO", "UPPER"), ("B2B", "UPPER"), ("U.S.", "UPPER"), ("iPhone", "miXed"), ("McGee", "miXed"), ("GmbH", "miXed"),
])  # fmt: skip
def test_how_a_word_is_written(word, case):
    assert CASES[case_of(word)] == case


def test_every_token_of_a_word_says_how_the_word_is_written(pieces, tmp_path):
    words = ["BERT", "kitten", "Newest-Low", "McLow", "!"]
    plain = pieces.encode_words(words)
    assert plain.cases == () and plain.types == plain.sentences == [0] * len(plain.ids)
    marked = WordPiece(pieces.tokenizer)
    marked.mark_case(True)
    marked.save(tmp_path)
    for tokenizer in (marked, load(tmp_path)):
        encoded = tokenizer.encode_words(words)
        assert (encoded.ids, encoded.sentences, encoded.words) == (plain.ids, plain.sentences, plain.words)
        assert list(encoded.types) == [0 if w is None else (2, 0, 3, 3, 0)[w] for w in encoded.words]
        assert tokenizer.encode_words(words, max_length=6).types == (*encoded.types[:5], 0)
        assert tokenizer.encode("BERT", "BERT").types == pieces.encode("BERT", "BERT").sentences  # a pair stays one
    marked.mark_case(False)
    marked.save(tmp_path)
    assert load(tmp_path).encode_words(words) == plain


def test_only_a_vocabulary_that_ignores_case_lowers(pieces):
    assert pieces.lowers and not WordPiece.train(LINES, 150, lower=False).lowers


def test_ids_alone_are_the_same_and_the_cut_texts_are_counted(pieces):
    texts = ["", "low", "Be alert! BERT will hurt!", "low lower lowest " * 9]
    ids, cut = pieces.encode_ids(texts)
    assert ids == [e.ids for e in pieces.encode_batch(texts)] and cut == 0
    ids, cut = pieces.encode_ids(texts, max_length=8)
    assert ids == [e.ids for e in pieces.encode_batch(texts, max_length=8)] and cut == 2
    assert max(map(len, ids)) == 8 and all(i[0] == pieces.cls and i[-1] == pieces.sep for i in ids)
    assert ids[0] == [pieces.cls, pieces.sep]
    assert pieces.encode_batch(texts, max_length=8)[3].cut == len(pieces.encode(texts[3]).ids) - 8


@pytest.mark.parametrize("how", ["text", "words", "pair"])
def test_a_text_of_exactly_the_limit_is_not_cut(pieces, how):
    """[CLS] and [SEP] count: one piece less of room, and one piece is cut."""

    def encode(room: int):
        if how == "words":
            return pieces.encode_words(["low"] * 6, room)
        return pieces.encode("low " * 6, "low " * 3 if how == "pair" else None, room)

    whole = encode(0)
    assert encode(len(whole.ids)) == whole and whole.cut == 0
    short = encode(len(whole.ids) - 1)
    assert short.cut == 1 and len(short.ids) == len(whole.ids) - 1 and short.ids[-1] == pieces.sep
    if how == "text":
        room = len(whole.ids)
        assert pieces.encode_ids(["low " * 6], room) == ([whole.ids], 0)
        assert pieces.encode_ids(["low " * 6], room - 1) == ([short.ids], 1)


@pytest.mark.parametrize(("lengths", "room", "kept"), [
    ((3, 9), 10, (3, 4)), ((9, 3), 10, (4, 3)), ((9, 9), 10, (3, 4)), ((9, 8), 10, (4, 3)), ((1, 1), 5, (1, 1)),
])  # fmt: skip
def test_the_longer_text_of_a_pair_is_cut_first(pieces, lengths, room, kept):
    a, b = ("! " * n for n in lengths)
    encoded = pieces.encode(a, b, max_length=room)
    assert (encoded.sentences.count(0) - 2, encoded.sentences.count(1) - 1) == kept
    assert encoded.cut == sum(lengths) - sum(kept)


def test_capitals_are_kept_where_they_matter():
    cased = WordPiece.train(LINES, 136, lower=False)
    assert cased.encode("BERT").ids != cased.encode("bert").ids
    assert "Be alert!" in cased.decode(cased.encode("Be alert!").ids)


def test_a_folder_is_read_as_it_was_written(pieces, tmp_path):
    pieces.save(tmp_path, max_length=64)
    assert (tmp_path / "vocab.txt").read_text("utf-8").split("\n")[:5] == list(SPECIAL)
    again = load(tmp_path)
    assert isinstance(again, WordPiece)
    assert [again.encode(x) for x in LINES] == [pieces.encode(x) for x in LINES]
    (tmp_path / "tokenizer.json").unlink()
    again = load(tmp_path)
    assert isinstance(again, WordPiece)
    assert [again.encode(x, x) for x in LINES] == [pieces.encode(x, x) for x in LINES]


def test_lengths_of_somebodys_last_batch_are_forgotten(pieces, tmp_path):
    pieces.save(tmp_path)
    from tokenizers import Tokenizer

    other = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    other.enable_truncation(6)
    other.enable_padding(length=128)
    other.save(str(tmp_path / "tokenizer.json"))
    assert load(tmp_path).encode(LINES[1]) == pieces.encode(LINES[1])


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda f: (f / "tokenizer.json").write_text("{"), r"tokenizer\.json cannot be read"),
        (lambda f: (f / "tokenizer_config.json").write_text("[]"), "tokenizer_config.json.*JSON object"),
        (lambda f: [(f / "tokenizer.json").unlink(), (f / "vocab.txt").write_text("a\nb\n[UNK]\n")], r"no \[PAD\]"),
    ],
)
def test_files_that_cannot_be_read_are_named(pieces, tmp_path, edit, says):
    pieces.save(tmp_path)
    edit(tmp_path)
    with pytest.raises(CheckpointError, match=says):
        WordPiece.load(tmp_path)


def test_too_little_is_said():
    with pytest.raises(ConfigError, match="20 is too small"):
        WordPiece.train(LINES, 20)
    with pytest.raises(DataError, match="no text"):
        WordPiece.train(["", " "], 100)
    with pytest.raises(ConfigError, match="no room"):
        WordPiece.train(LINES, 136).encode("a", max_length=2)
