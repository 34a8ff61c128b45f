"""The tokenizer of Llama 2 and Mistral, as transformers reads it; and tokenizers that we cannot read, by their sort."""

import json

import pytest
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from regard.data.tokenizers import load
from regard.data.tokenizers.llama import LlamaPieces
from regard.errors import CheckpointError

LINES = ["The cat drank the milk because it was hungry.", "Être ou ne pas être: that is the question!"] * 20
TEXTS = ["The cat was hungry.", "  Two  spaces, 7 of them…", "東京 🙂\nline", "être"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    learner.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")  # no piece has a space inside
    learner.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=120, show_progress=False))
    learned = json.loads(learner.to_str())["model"]
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *learned["vocab"]]
    merges = [tuple(pair) for pair in learned["merges"]]
    vocab = {piece: id for id, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = learner.normalizer
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    path = tmp_path_factory.mktemp("llama")
    tokenizer.save(str(path / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def test_ids_are_theirs_and_texts_come_back(folder):
    ours, theirs = load(folder), transformers.AutoTokenizer.from_pretrained(folder)
    assert isinstance(ours, LlamaPieces) and ours.bos == 1 and ours.eos == 2
    for text in TEXTS:
        ids = ours.encode(text)
        assert [1, *ids] == theirs(text)["input_ids"]
        assert ours.decode(ids) == f" {text}" and theirs.decode(ids) == text


def test_gemma_puts_no_space_before_a_text(folder, tmp_path):
    """And has tokens for several spaces."""
    names = {"<s>": "<bos>", "</s>": "<eos>"}
    text = (folder / "tokenizer.json").read_text()
    for old, new in names.items():
        text = text.replace(f'"{old}"', f'"{new}"')
    values = json.loads(text)
    values["normalizer"] = values["normalizer"]["normalizers"][1]
    values["decoder"]["decoders"].pop()
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False)
    values["added_tokens"].append({"id": len(values["model"]["vocab"]), "content": "▁▁", "normalized": True, **flags})
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config = {role: names.get(name, name) for role, name in config.items()}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours, theirs = load(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(ours, LlamaPieces) and ours.bos == 1 and ours.eos == 2
    for text in TEXTS:
        ids = ours.encode(text)
        assert [1, *ids] == theirs(text)["input_ids"] and ours.decode(ids) == text == theirs.decode(ids)
    assert len(values["model"]["vocab"]) in ours.encode(TEXTS[1])


def test_a_continuation_keeps_its_space(folder):
    ours = load(folder)
    whole, start = ours.encode("The cat was hungry."), ours.encode("The cat")
    assert whole[: len(start)] == start and ours.decode(whole[len(start) :]) == " was hungry."


def test_a_unigram_without_special_tokens_is_refused(folder, tmp_path):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"] = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["▁", -1.0], ["a", -2.0]]}
    tokenizer["added_tokens"], tokenizer["post_processor"] = [], None
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: expected a tokenizer with .* it has no </s>"):
        load(tmp_path)
