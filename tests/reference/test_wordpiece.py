"""Our WordPiece gives transformers' ids on any text, from the folders we write and from those it writes."""

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from regard.data.tokenizers import load
from regard.data.tokenizers.wordpiece import WordPiece

LINES = [
    "The quick brown fox jumps over the lazy dog; it didn't mind.",
    "Crème brûlée, naïve façade, Straße: ÀÉÎÕÜ, ﬁne print…",
    "Prices rose 3.14% to $1,234.56 (up from €99) — “quoted” text's end.",
    "我爱北京天安门 mixed with English and 日本語 and हिन्दी.",
    "Emoji 🙂 👩‍👩‍👧 and control \u200b \x07 characters\tand tabs",
    "state-of-the-art e-mail@example.com http://a.b/c?d=e#f under_score C++",
    "pneumonoultramicroscopicsilicovolcanoconiosis " + "a" * 120,
    "fill in the [MASK] here [SEP] and there, please [mask]",
    "",
    "   ",
]


@pytest.fixture(scope="module", params=["uncased", "cased"])
def pair(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wordpiece")
    WordPiece.train(LINES * 2, 600, lower=request.param == "uncased").save(folder, max_length=48)
    return load(folder), transformers.AutoTokenizer.from_pretrained(folder), folder


def same(ours, theirs, a, b=None):
    b = b or None  # an empty second text is none to them
    mine, other = ours.encode(a, b), theirs(a, b, return_offsets_mapping=True)
    assert mine.ids == other["input_ids"]
    assert mine.sentences == other["token_type_ids"]
    assert mine.offsets == [tuple(o) for o in other["offset_mapping"]]
    assert mine.words == other.word_ids()


def test_ids_sentences_offsets_and_words_are_theirs(pair):
    ours, theirs, _ = pair
    for a, b in zip(LINES, LINES[1:] + LINES[:1], strict=True):
        same(ours, theirs, a)
        same(ours, theirs, a, b)


@given(st.text(max_size=60), st.text(max_size=30))
def test_any_text_and_pair_is_read_as_theirs(pair, a, b):
    ours, theirs, _ = pair
    same(ours, theirs, a)
    same(ours, theirs, a, b)


def test_pairs_are_cut_as_theirs_are(pair):
    ours, theirs, _ = pair
    for a in LINES:
        for b in (None, *filter(None, LINES)):
            for room in (5, 12, 13):
                other = theirs(a, b, truncation=True, max_length=room)["input_ids"]
                assert ours.encode(a, b, max_length=room).ids == other


def test_the_vocabulary_file_alone_is_read_as_theirs(pair, tmp_path):
    ours, _, folder = pair
    for name in ("vocab.txt", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    alone, other = load(tmp_path), transformers.BertTokenizer.from_pretrained(tmp_path)
    for line in LINES:
        assert alone.encode(line) == ours.encode(line)
        assert alone.encode(line).ids == other(line)["input_ids"]


def test_what_they_save_is_read(pair, tmp_path):
    ours, theirs, _ = pair
    theirs.save_pretrained(tmp_path)
    again = load(tmp_path)
    assert [again.encode(line) for line in LINES] == [ours.encode(line) for line in LINES]
    assert theirs.model_max_length == 48 and theirs.mask_token_id == ours.mask
