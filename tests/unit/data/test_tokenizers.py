"""Characters, bytes and byte-level pieces: exact round trips, and the ids that transformers reads from our folders."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from regard.data.tokenizers import load
from regard.data.tokenizers.bpe import BPE
from regard.data.tokenizers.bytelevel import EOS, ByteLevel
from regard.data.tokenizers.chars import Characters
from regard.data.tokenizers.pretrained import BYTE_OF, Pretrained
from regard.errors import CheckpointError, ConfigError, DataError

TEXT = (
    "Muchos años después, frente al pelotón de fusilamiento,\nel coronel Aureliano Buendía; 1967 (naïve) 日本!\n" * 20
)
STRANGE = [
    "",
    "\n\n \n",
    "  a\t b\r\n",
    "日本 🙂 e\u0301",
    "<|endoftext|> <s>",
    "don't we'll 12345",
    "\0\x7f\xa0\u2028",
]


@pytest.fixture(scope="module")
def learned() -> ByteLevel:
    return ByteLevel.train([TEXT], 320)


def theirs(folder: Path, model_type: str = "gpt2"):
    from transformers import AutoTokenizer

    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))  # as it lies in a model folder
    return AutoTokenizer.from_pretrained(folder)


# Characters


def test_characters_are_sorted_and_no_others():
    ours = Characters("banana, señor\n")
    assert ours.characters == sorted(set("banana, señor\n"))
    assert (ours.size, ours.eos, ours.ends, ours.bos) == (11, None, (), None)
    assert ours.encode("ba\n") == [ours.characters.index(c) for c in "ba\n"]


@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_characters_come_back(text):
    ours = Characters(text)
    assert ours.decode(ours.encode(text)) == text
    assert b"".join(map(ours.token_bytes, ours.encode(text))) == text.encode()
    assert ours.size == len(set(text))


def test_a_character_never_seen_is_named():
    for strange in "ñ", "\u0001", "🙂", "z":
        with pytest.raises(DataError, match=f"{strange!r} .* not among the 3 .*--tokens bytes".replace("\\", r"\\")):
            Characters("abc").encode(f"abc{strange}")
    with pytest.raises(DataError, match="no text"):
        Characters("")


@pytest.mark.parametrize("model_type", ["gpt2", "llama"])
def test_transformers_reads_the_same_characters(tmp_path, model_type):
    ours = Characters(TEXT + "\r\t🙂")
    ours.save(tmp_path, max_length=99)
    other = theirs(tmp_path, model_type)
    for text in (TEXT[:200], "\r\n\t 🙂🙂", ""):
        assert other(text)["input_ids"] == ours.encode(text)
        assert other.decode(ours.encode(text)) == text
    assert (len(other), other.model_max_length) == (ours.size, 99)
    again = load(tmp_path)
    assert isinstance(again, Characters) and again.characters == ours.characters


# Bytes and pieces


def test_the_layout_is_bytes_merges_end(learned):
    assert [learned.token_bytes(b) for b in range(256)] == [bytes([b]) for b in range(256)]
    assert learned.size == 320 and learned.token_bytes(319) == EOS.encode()
    assert (learned.eos, learned.ends, learned.bos) == (319, (319,), None)
    assert len({learned.token_bytes(i) for i in range(320)}) == 320
    assert len(learned.encode(TEXT)) < len(TEXT) / 2


def test_the_table_of_bytes_is_gpt2s():
    assert set(BYTE_OF) == set(pre_tokenizers.ByteLevel.alphabet())
    shown = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str("\0 \n\xadñ🙂")[0][0]
    assert bytes(BYTE_OF[c] for c in shown) == "\0 \n\xadñ🙂".encode()


def test_a_vocabulary_of_257_is_pure_bytes():
    pure = ByteLevel.train([TEXT], 257)
    assert pure.size == 257 and pure.eos == 256
    for text in (TEXT, *STRANGE):
        assert pure.encode(text) == list(text.encode())
    with pytest.raises(ConfigError, match="at least 257"):
        ByteLevel.train([TEXT], 256)


@given(text=st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from([TEXT, *STRANGE]))
def test_pieces_come_back(learned, text):
    ids = learned.encode(text)
    assert learned.decode(ids) == text
    assert b"".join(map(learned.token_bytes, ids)) == text.encode()
    assert learned.eos not in ids
    assert learned.encode_batch([text, TEXT]) == [ids, learned.encode(TEXT)]


def test_special_tokens_are_text_unless_asked_for(learned):
    text = f"one{EOS}two"
    assert learned.eos not in learned.encode(text)
    ids = learned.encode(text, special=True)
    assert ids == [*learned.encode("one"), learned.eos, *learned.encode("two")]
    assert learned.encode_batch([text], special=True) == [ids]
    assert learned.decode(ids) == "onetwo"
    assert learned.encode(text) == learned.encode_batch([text])[0]  # asking once changes nothing


def test_pieces_are_fit_for_a_table(learned):
    shown = [learned.piece(i) for i in (ord("a"), ord(" "), 10, 0xC3, 0x7F, learned.eos)]
    assert shown == ["a", " ", r"\n", "<0xC3>", r"\x7f", EOS]
    assert "".join(map(learned.piece, learned.encode("Muchos años"))) in ("Muchos años", "Muchos a<0xC3><0xB1>os")
    assert all(learned.piece(i).isprintable() for i in range(learned.size))
    assert learned.token_bytes(learned.size + 7) == b""  # ids of a padded head


def test_same_text_same_pieces(tmp_path):
    for name in "ab":
        ByteLevel.train([TEXT], 300).save(tmp_path / name)
    assert (tmp_path / "a" / "tokenizer.json").read_bytes() == (tmp_path / "b" / "tokenizer.json").read_bytes()


@pytest.mark.parametrize("model_type", ["gpt2", "llama"])
def test_transformers_reads_the_same_pieces(learned, tmp_path, model_type):
    learned.save(tmp_path, max_length=99)
    other = theirs(tmp_path, model_type)
    for text in (TEXT, *STRANGE):
        assert other(text)["input_ids"] == learned.encode(text)
        assert other.decode(learned.encode(text)) == text
    assert (other.eos_token_id, len(other), other.model_max_length) == (learned.eos, learned.size, 99)
    again = load(tmp_path)
    assert isinstance(again, Pretrained) and again.ends == learned.ends
    assert again.encode(TEXT) == learned.encode(TEXT)


# Published folders


@pytest.mark.parametrize("style", ["gpt2", "smollm2", "llama3"])
def test_a_published_folder_reads_as_transformers_reads_it(tmp_path, published, style):
    from transformers import AutoTokenizer

    ours, other = load(published(style, tmp_path)), AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(ours, Pretrained)
    assert (ours.size, ours.eos) == (len(other), other.eos_token_id)
    assert ours.bos == (other.bos_token_id if style == "llama3" else None)
    for text in (TEXT, *STRANGE, f"a {other.eos_token} b"):
        plain = other(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        meant = other(text, add_special_tokens=False)["input_ids"]
        assert ours.encode(text) == plain
        assert ours.encode(text, special=True) == meant
        assert ours.decode(meant) == other.decode(meant, skip_special_tokens=True)
        before = [] if ours.bos is None else [ours.bos]
        assert before + meant == other(text)["input_ids"]
    cut = ours.encode("años 日本")[:-1]
    assert ours.decode(cut) == other.decode(cut)
    assert ours.chat_template == (other.chat_template or "")


@pytest.mark.parametrize("style", ["gpt2", "smollm2", "llama3"])
def test_saving_a_published_tokenizer_changes_nothing(tmp_path, published, style):
    from transformers import AutoTokenizer

    ours = load(published(style, tmp_path / "a"))
    ours.save(tmp_path / "b", max_length=77)
    (tmp_path / "b" / "config.json").write_text(json.dumps({"model_type": "llama"}))
    other, again = AutoTokenizer.from_pretrained(tmp_path / "b"), load(tmp_path / "b")
    assert (again.size, again.ends, again.bos, again.special) == (ours.size, ours.ends, ours.bos, ours.special)
    assert again.chat_template == ours.chat_template == (other.chat_template or "")
    assert other(TEXT)["input_ids"] == ([] if ours.bos is None else [ours.bos]) + ours.encode(TEXT)
    assert (other.model_max_length, other.eos_token_id) == (77, ours.eos)


def test_end_marks_are_gathered_from_all_files(tmp_path, published):
    published("smollm2", tmp_path)
    ours = load(tmp_path)
    other = ours.encode(EOS, special=True)[0]
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [other, ours.eos]}))
    assert load(tmp_path).ends == (ours.eos, other)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({k: v for k, v in config.items() if k != "eos_token"}))
    (tmp_path / "generation_config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "eos_token_id": other}))
    alone = load(tmp_path)
    assert alone.ends == (other,)  # as old gpt2 folders have it
    alone.save(tmp_path / "saved")
    assert load(tmp_path / "saved").ends == (other,)


def test_a_template_among_several(tmp_path, published):
    published("smollm2", tmp_path)
    (tmp_path / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    both = [{"name": "tools", "template": "x"}, {"name": "default", "template": "y"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": both}))
    assert load(tmp_path).chat_template == "y"


def test_the_right_class_is_found(tmp_path):
    BPE.train(["the cat sat"] * 3, 400).save(tmp_path)
    assert isinstance(load(tmp_path), BPE)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "no run or model folder"),
        ({"config.json": "{}"}, "without its tokenizer.json"),
        ({"tokenizer.json": "{"}, "cannot be read"),
        (
            {"tokenizer.json": '{"model": {"type": "WordLevel", "vocab": {"a": 1}}, "decoder": null}'},
            "numbered in order",
        ),
        (
            {"tokenizer.json": '{"model": {"type": "WordLevel", "vocab": {"ab": 0}}, "decoder": null}'},
            "single characters",
        ),
        ({"tokenizer.json": '{"model": {"type": "WordLevel", "vocab": {}}, "decoder": null}'}, "cannot be read"),
    ],
    ids=["nothing", "no tokenizer", "broken", "gaps", "words", "empty"],
)
def test_a_folder_that_cannot_be_read(tmp_path, files, words):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(CheckpointError, match=words):
        load(tmp_path)


def test_a_broken_published_folder(tmp_path, published):
    published("gpt2", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[1]")
    with pytest.raises(CheckpointError, match=r"tokenizer_config.json cannot be read .*JSON object"):
        load(tmp_path)
    published("gpt2", tmp_path)
    settings = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(settings | {"decoder": {"type": "Fuse"}}))
    with pytest.raises(CheckpointError, match="expected a byte-level one"):
        Pretrained.load(tmp_path)
