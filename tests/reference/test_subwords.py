"""The tokenizers of RoBERTa and XLM-R read as transformers reads them: texts, pairs, words, and what is masked."""

import itertools
import json

import pytest
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from regard.data.tokenizers import load
from regard.data.tokenizers.encoder import Subwords
from regard.errors import CheckpointError
from regard.predictors import Filler

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
LINES = ["The cat drank the milk because it was hungry.", "Être ou ne pas être: that is the question!", "42 cats"] * 20
TEXTS = ["The cat was hungry.", "  Naïve  cats, 7 of them…", "the <mask> drank", "", "être\nou ne pas"]


def roberta():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return tokenizer


def xlm_roberta():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


MAKE = {"roberta": roberta, "xlm-roberta": xlm_roberta}


@pytest.fixture(scope="module", params=MAKE)
def folder(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param)
    tokenizer = MAKE[request.param]()
    tokenizer.add_special_tokens([*SPECIAL, AddedToken("<mask>", lstrip=True, special=True)])
    tokenizer.save(str(path / "tokenizer.json"))
    names = dict(cls="<s>", pad="<pad>", sep="</s>", unk="<unk>", mask={"content": "<mask>", "lstrip": True})
    config = {"tokenizer_class": "PreTrainedTokenizerFast"} | {f"{role}_token": name for role, name in names.items()}
    config["mask_token"] = "<mask>"
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


@pytest.fixture
def ours(folder):
    return load(folder)


@pytest.fixture(scope="module")
def theirs(folder):
    return transformers.AutoTokenizer.from_pretrained(folder)


def test_texts_and_pairs_have_their_ids(ours, theirs):
    assert isinstance(ours, Subwords) and ours.size == len(theirs)
    assert [e.ids for e in ours.encode_batch(TEXTS)] == theirs(TEXTS)["input_ids"]
    assert ours.encode_ids(TEXTS)[0] == theirs(TEXTS)["input_ids"]
    full = [text for text in TEXTS if text]  # an empty one is no pair there
    for text, other in itertools.pairwise(full):
        mine, encoding = ours.encode(text, other), theirs(text, other, return_offsets_mapping=True)
        assert mine.ids == encoding["input_ids"] and mine.offsets == encoding["offset_mapping"]
        assert mine.words == encoding.word_ids()
        assert ours.encode(text, other, 9).ids == theirs(text, other, max_length=9, truncation=True)["input_ids"]


def test_a_gap_is_typed_alike_for_every_model(ours):
    assert ours.encode("the [MASK] drank").ids == ours.encode("the <mask> drank").ids
    assert ours.encode("the [MASK] drank").ids.count(ours.mask) == 1


def test_pieces_are_shown_as_text(ours):
    encoded = ours.encode("cats drank milk")
    pieces = [ours.piece(i) for i in encoded.ids[1:-1]]
    assert "".join(pieces).strip() == "cats drank milk" == ours.decode(encoded.ids).strip()
    begins = [i for i in encoded.ids[2:-1] if not ours.continues(i)]
    assert len(begins) == 2  # drank and milk


def test_words_that_are_cut_already_keep_their_numbers(ours):
    encoded = ours.encode_words(["The", "cats", "drank"])
    assert sorted({w for w in encoded.words if w is not None}) == [0, 1, 2]
    assert ours.decode(encoded.ids).split() == ["The", "cats", "drank"]


def test_what_is_saved_opens_there_and_here(ours, theirs, tmp_path):
    ours.save(tmp_path, 40)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert again(TEXTS)["input_ids"] == theirs(TEXTS)["input_ids"] and again.model_max_length == 40
    assert load(tmp_path).encode(TEXTS[0]) == ours.encode(TEXTS[0])


def test_a_vocabulary_without_a_special_token_is_refused(folder, tmp_path):
    (tmp_path / "tokenizer.json").write_text((folder / "tokenizer.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"cls_token": "<begin>"}))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: expected .* it has no <begin>"):
        load(tmp_path)


def test_filling_a_gap_names_words_without_their_space(ours):
    from regard.models import build
    from regard.models.bert import BertConfig

    size = dict(vocab=ours.size, width=8, layers=1, heads=2, ffn=8, max_length=20, types=1)
    filler = Filler(build(BertConfig(**size, head="masked", family="roberta")), ours)
    (words,) = filler.fill("the [MASK] drank", top=20)
    assert len(words) == 20 and all(w.piece == ours.piece(w.id).strip() for w in words)
