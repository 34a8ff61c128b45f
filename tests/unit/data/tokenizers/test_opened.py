"""tokenizer.json from a stranger: opened, or refused in a sentence; never a hang, a panic or the end of the process."""

import json
import time

import pytest

from regard.data.tokenizers import load, opened
from regard.data.tokenizers.bpe import SPLITS
from regard.data.tokenizers.bytelevel import ByteLevel
from regard.errors import CheckpointError, DataError

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def file(tmp_path, **parts):
    """A byte-level tokenizer of three pieces, with some of its parts replaced."""
    known = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": BYTES,
        "post_processor": None,
        "decoder": BYTES,
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(known | parts))
    return tmp_path


def split(pattern: str) -> dict:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def model(**values) -> dict:
    return {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]} | values


DOUBLE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
HOSTILE = {
    "a pattern that backtracks without end": {"pre_tokenizer": split("(a+)+$")},
    "a pattern that is slow on another text": {"pre_tokenizer": split("(?:q|q)*z")},
    "a text that doubles forty times": {"normalizer": {"type": "Sequence", "normalizers": [DOUBLE] * 40}},
    "a table of characters that is none": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    "a template of a token that is not there": {
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "X", "type_id": 0}}],
            "pair": [],
            "special_tokens": {},
        }
    },
    "a prefix longer than its pieces": {"model": model(continuing_subword_prefix="xxxxxxx")},
    "a prefix that cuts a character": {
        "model": model(vocab={"a": 0, "é": 1, "aé": 2}, merges=[["a", "é"]], continuing_subword_prefix="x")
    },
    "ids up to four billion": {"model": model(vocab={"a": 0, "b": 4_000_000_000}, merges=[])},
    "a merge of nothing": {"model": model(merges=[["x", "y"]])},
    "parentheses": {"pre_tokenizer": split("(" * 5000 + ")" * 5000)},
    "parts that are no parts": {"normalizer": 7, "decoder": [1]},
}


@pytest.mark.parametrize("parts", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_tokenizer_is_refused(tmp_path, parts):
    began = time.monotonic()
    with pytest.raises((CheckpointError, DataError)) as refused:
        load(file(tmp_path, **parts)).encode("aab")
    assert str(tmp_path) in str(refused.value) and "\n" not in str(refused.value)
    assert time.monotonic() - began < 15


def test_lengths_of_somebody_elses_batch_are_ignored(tmp_path):
    padding = {"strategy": {"Fixed": 4_000_000_000}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0}
    cut = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
    padding |= {"pad_type_id": 0, "pad_token": "a"}
    assert load(file(tmp_path, padding=padding, truncation=cut)).encode("abb") == [2, 1]


def test_deep_json_is_refused(tmp_path):
    (tmp_path / "tokenizer.json").write_text("[" * 100_000)
    with pytest.raises(CheckpointError, match="too deeply"):
        load(tmp_path)


def test_what_we_write_ourselves_is_opened_at_once(tmp_path, monkeypatch):
    monkeypatch.delattr(opened, "Confined")  # no child process is needed
    ByteLevel.train(["a cat", "a hat"], 260).save(tmp_path / "bytes")
    assert load(tmp_path / "bytes").decode(load(tmp_path / "bytes").encode("a cat")) == "a cat"
    assert load(file(tmp_path, pre_tokenizer=split(SPLITS["text"]))).encode("ab") == [2]


def test_a_panic_while_reading_a_text_is_an_error(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(opened, "harmless", lambda part: True)
    tokenizer = load(file(tmp_path, pre_tokenizer=split("(a+)+$")))
    with pytest.raises(DataError, match="cannot read this text"):
        tokenizer.encode("a" * 40 + "!")
    capfd.readouterr()  # the library prints its panics


@pytest.mark.parametrize("single", [[{"SpecialToken": {"id": {}}}], [{"SpecialToken": 3}], [None], 3])
def test_a_template_of_the_wrong_form_is_not_harmless(single):
    part = {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {}}
    assert not opened.harmless(part)


def test_a_tokenizer_that_is_not_read_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="of type 'Magic' is not one we read; there are: BPE"):
        load(file(tmp_path, model={"type": "Magic", "vocab": {}}))
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "sentencepiece.bpe.model").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"no tokenizer.json, and sentencepiece.bpe.model cannot be read"):
        load(tmp_path)
