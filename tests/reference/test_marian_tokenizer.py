"""A public Marian folder's tokenizer: ours beside transformers', over SentencePiece models trained here."""

import json
import sys

import pytest
import sentencepiece
import transformers
from hypothesis import given
from hypothesis import strategies as st

from regard.data.tokenizers.bpe import BPE
from regard.data.tokenizers.spm import MarianPieces
from regard.errors import CheckpointError, MissingExtra

ENGLISH = ["the little house", "a friend sees the old tree", "where is the station?", "he isn't here, is he?"]
FRENCH = ["la petite maison", "un ami voit le vieil arbre", "où est la gare ?", "il n'est pas là, n'est-ce pas ?"]
TEXTS = [
    *ENGLISH,
    "The  house of 42 trees\u00a0— naïve, ﬁne",
    " led by spaces ",
    "",
    "漢字 unseen ✂ letters",
    ">>fra<< where is the tree?",
    ">>fra<<where",
    ">>no end of a mark",
    "an arrow >>fra<< inside",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """As OPUS-MT publishes: two models of different pieces, one vocabulary that leaves a few of them out."""
    home = tmp_path_factory.mktemp("marian")
    pieces = set()
    for name, lines in (("source", ENGLISH), ("target", FRENCH)):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines * 5), model_prefix=str(home / name), vocab_size=45, minloglevel=2,
            hard_vocab_limit=False,
        )  # fmt: skip
        (home / f"{name}.model").rename(home / f"{name}.spm")
        (home / f"{name}.vocab").unlink()
        model = sentencepiece.SentencePieceProcessor(model_file=str(home / f"{name}.spm"))
        pieces |= {model.id_to_piece(i) for i in range(3, model.get_piece_size())}
    listed = [p for p in sorted(pieces) if p not in ("▁h", "?", "g")]  # not all that SentencePiece knows
    ids = {p: i for i, p in enumerate(["</s>", "<unk>", ">>fra<<", *listed, "<pad>"])}
    (home / "vocab.json").write_text(json.dumps(ids), "utf-8")
    (home / "config.json").write_text(json.dumps({"model_type": "marian"}))
    settings = {"source_lang": "eng", "target_lang": "fra", "tokenizer_class": "MarianTokenizer"}
    (home / "tokenizer_config.json").write_text(json.dumps(settings))
    return home


@pytest.fixture(scope="module")
def ours(folder):
    return MarianPieces.load(folder)


@pytest.fixture(scope="module")
def theirs(folder):
    return transformers.MarianTokenizer.from_pretrained(folder)


def test_sources_get_the_same_ids(ours, theirs):
    for text in TEXTS:
        assert [*ours.encode(text), ours.eos] == theirs(text).input_ids, text
    assert ours.encode_batch(TEXTS) == [ours.encode(text) for text in TEXTS]


def test_targets_are_cut_by_the_target_side(ours, theirs):
    texts = [*FRENCH, "", "漢字"]
    assert [[*ids, ours.eos] for ids in ours.encode_targets(texts)] == theirs(text_target=texts).input_ids
    assert ours.encode_targets(FRENCH) != ours.encode_batch(FRENCH)


def test_ids_get_the_same_text(ours, theirs):
    encoded = ours.encode_targets(FRENCH)
    for ids in encoded:
        assert ours.decode([*ids, ours.eos, ours.pad]) == theirs.decode(ids, skip_special_tokens=True)
    assert ours.decode(encoded[0]) == FRENCH[0] and ours.unk in encoded[2]
    assert ours.decode([ours.eos]) == ours.decode([]) == ""


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=20))
def test_any_text_gets_the_same_ids(ours, theirs, text):
    if not any(token in text for token in ("</s>", "<unk>", "<pad>")):  # typed by a user, these are text to us
        assert [*ours.encode(text), ours.eos] == theirs(text).input_ids


def test_numbers_and_pieces(ours, theirs):
    assert (ours.size, ours.eos, ours.unk, ours.pad) == (len(theirs), 0, 1, len(theirs) - 1)
    assert [ours.piece(i) for i in range(ours.size)] == theirs.convert_ids_to_tokens(list(range(ours.size)))


def test_a_typed_end_mark_is_text(ours):
    assert ours.eos not in ours.encode("the </s> house") and ours.pad not in ours.encode("<pad>")


def test_pieces_are_grouped_to_words(ours):
    text = "a friend sees the old tree"
    ids = ours.encode(text)
    groups = ours.words([*ids, ours.eos])
    assert [place for group in groups for place in group] == list(range(len(ids)))
    assert ["".join(ours.piece(ids[i]) for i in group).strip("▁") for group in groups] == text.split()


def test_a_folder_that_is_not_marians_is_said(folder, tmp_path):
    assert MarianPieces.found_in(folder) and not MarianPieces.found_in(tmp_path)
    with pytest.raises(CheckpointError, match=r"has no vocab\.json"):
        MarianPieces.load(tmp_path)
    (tmp_path / "vocab.json").write_text('{"</s>": 0, "<unk>": 1}')
    with pytest.raises(CheckpointError, match=r"has no source\.spm"):
        MarianPieces.load(tmp_path)
    (tmp_path / "source.spm").write_bytes(b"not a model")
    with pytest.raises(CheckpointError, match=r"source\.spm cannot be read"):
        MarianPieces.load(tmp_path)
    for name in ("source.spm", "target.spm"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(CheckpointError, match="lacks <pad>"):
        MarianPieces.load(tmp_path)
    (tmp_path / "vocab.json").write_text('{"</s>": 0, "<unk>": 1, "<pad>": 3}')
    with pytest.raises(CheckpointError, match="without gaps"):
        MarianPieces.load(tmp_path)


def test_without_sentencepiece_it_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(MissingExtra, match=r"regard\[spm\]") as error:
        MarianPieces.load(folder)
    assert error.value.exit_code == 3


def test_our_pieces_open_as_a_fast_tokenizer(tmp_path):
    """Not as `MarianTokenizer`, which is for SentencePiece: that joins any two pieces whose sum it knows, ours only
    those pairs that were learned, and never beyond a word."""
    ours = BPE.train([*ENGLISH, *FRENCH] * 5, 400)
    ours.save(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "marian"}))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS[:-1]:
        assert theirs(text).input_ids == [*ours.encode(text), ours.eos], text
        assert theirs.decode(theirs(text).input_ids, skip_special_tokens=True) == ours.decode(ours.encode(text))
    with pytest.raises((OSError, TypeError, AssertionError)):
        transformers.MarianTokenizer.from_pretrained(tmp_path)
