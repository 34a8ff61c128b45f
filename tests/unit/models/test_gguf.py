"""GGUF files in: against the model they were written from, the package gguf and transformers' own reading of them."""

import json
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import regex
import tokenizers
import torch
import transformers
from gguf import GGMLQuantizationType as Kind
from safetensors.numpy import load_file
from tests.unit.models import tiny_gguf
from tests.unit.models.tiny_gguf import SPECIAL, TEXT, WRITTEN, tiny_llama, tokens_and_merges, write_gguf
from transformers.convert_slow_tokenizer import bytes_to_unicode

from regard.data.folders import cache_folder
from regard.data.tokenizers import load as load_tokenizer
from regard.errors import CheckpointError, ConfigError, MissingExtra
from regard.models.fetched import resolve
from regard.models.gguf import CUTS, convert, open_gguf, read_tokenizer
from regard.models.published import load_model

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

IDS = torch.tensor([[5, 99, 17, 3, 250, 8, 8, 61]])
STRINGS = [
    *TEXT.splitlines(),
    TEXT,
    "",
    " ",
    "a b",
    "they'll  say 'no'",
    "<|start|>hi<|stop|>",
    "so <think>so</think>",
    "ñ 中文 😀 क्ष \u00a0 \x00",
    "x=1\n\n\n  y\t\t",
]


def unpack(path: Path) -> Path:
    folder = path.parent / f"{path.stem}-folder"
    folder.mkdir()
    convert(path, folder)
    return folder


def read_by_transformers(path: Path):
    return transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name).eval()


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0])
def test_weights_come_out_as_they_were_packed(tmp_path, kind):
    """Packing works along rows, and llama.cpp's order is one of rows: the published order can be packed for itself."""
    original = tiny_llama()
    weights = load_file(unpack(write_gguf(tmp_path / "m.gguf", original, kind)) / "model.safetensors")
    expected = {k: v.numpy() for k, v in original.state_dict().items() if k != "lm_head.weight"}
    assert weights.keys() == expected.keys()
    for name, values in expected.items():
        packed = values if values.ndim == 1 else gguf.dequantize(gguf.quantize(values, kind), kind)
        assert weights[name].dtype == np.float32
        np.testing.assert_array_equal(weights[name], packed, err_msg=name)


@pytest.mark.parametrize("kind", [Kind.F32, Kind.Q4_1])
def test_transformers_reads_file_and_folder_alike(tmp_path, kind):
    path = write_gguf(tmp_path / "m.gguf", tiny_llama(), kind)
    folder = unpack(path)
    theirs = read_by_transformers(path)
    ours, report = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    for name, values in theirs.state_dict().items():
        assert torch.equal(values, ours.state_dict()[name]), name
    with torch.no_grad():
        torch.testing.assert_close(ours(IDS).logits, theirs(IDS).logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        dict(tie_word_embeddings=False),
        dict(num_key_value_heads=4),
        dict(num_key_value_heads=1, num_hidden_layers=11),
        dict(head_dim=32),
    ],
    ids=["own head", "no groups", "eleven layers", "wide heads"],
)
def test_every_shape_of_llama_gives_its_logits_back(tmp_path, settings):
    original = tiny_llama(**settings)

    def wide(writer, tensors):
        if "head_dim" in settings:
            writer.add_key_length(32)
            writer.add_value_length(32)

    folder = unpack(write_gguf(tmp_path / "m.gguf", original, change=wide))
    back, report = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    with torch.no_grad():
        torch.testing.assert_close(back(IDS).logits, original(IDS).logits, rtol=0, atol=1e-6)


def test_our_own_model_and_tokenizer_open_the_folder(tmp_path):
    original = tiny_llama(tie_word_embeddings=False)
    folder = unpack(write_gguf(tmp_path / "m.gguf", original))
    model, tokenizer = load_model(folder), load_tokenizer(folder)
    with torch.no_grad():
        torch.testing.assert_close(model.logits(model(IDS)), original(IDS).logits, rtol=0, atol=1e-5)
    assert tokenizer.ends == (0,) and tokenizer.bos is None and tokenizer.chat_template
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT


def test_settings_and_special_ids_come_along(tmp_path):
    def more(writer, tensors):
        writer.add_eot_token_id(2)

    folder = unpack(write_gguf(tmp_path / "m.gguf", tiny_llama(), change=more))
    config = json.loads((folder / "config.json").read_text())
    assert config["rms_norm_eps"] == 1e-5 and config["rope_theta"] == 1000.0
    assert config["max_position_embeddings"] == 128 and config["num_key_value_heads"] == 2
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 1, "eos_token_id": [0, 2]}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|start|>", "<|end|>")
    assert tokenizer.model_max_length == 128
    assert tokenizer.apply_chat_template([{"content": "hi"}], tokenize=False) == "<|start|>hi<|stop|>"


# Tokenizers


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe"])
def test_ids_are_those_of_transformers(tmp_path, pre):
    def no_bos(writer, tensors):
        writer.add_add_bos_token(False)

    path = write_gguf(tmp_path / "m.gguf", tiny_llama(), pre=pre, change=no_bos)
    ours = transformers.AutoTokenizer.from_pretrained(unpack(path))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    for text in STRINGS:
        ids = theirs(text).input_ids
        assert ours(text).input_ids == ids, text
        assert ours.decode(ids) == theirs.decode(ids)
    assert ours.all_special_ids == theirs.all_special_ids


# How published tokenizers cut a text, as expressions of the package regex; written down from their files.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WAYS = {
    "gpt-2": "gpt2",
    "smollm": "digits",
    "starcoder": "digits",
    "refact": "digits",
    "llama-bpe": "llama3",
    "llama3": "llama3",
    "llama-v3": "llama3",
    "qwen2": "qwen2",
}  # llama.cpp's names


def cut_by_hand(way: str, text: str) -> list[str]:
    if way in ("llama3", "qwen2"):
        digits = r"\p{N}{1,3}" if way == "llama3" else r"\p{N}"
        return [m.group() for m in regex.finditer(LLAMA3.replace(r"\p{N}{1,3}", digits), text)]
    parts = [text] if way == "gpt2" else [part for part in regex.split(r"(\p{N})", text) if part]
    return [m.group() for part in parts for m in regex.finditer(GPT2, part)]


def as_bytes(pieces: list[str]) -> list[str]:
    """Byte-level pieces as text again."""
    alphabet = {letter: byte for byte, letter in bytes_to_unicode().items()}
    return [bytes(alphabet[c] for c in piece).decode() for piece in pieces]


def tokenizer_of(folder: Path, pre: str, **how) -> tokenizers.Tokenizer:
    return read_tokenizer(open_gguf(write_gguf(folder / "m.gguf", tiny_llama(num_hidden_layers=1), pre=pre, **how)))


@pytest.mark.parametrize("pre", CUTS)
def test_every_way_to_cut_a_text_is_the_published_one(tmp_path, pre):
    """And with it the start mark, which only Llama 3 puts before a text unasked."""
    tokenizer = tokenizer_of(tmp_path, pre)
    for text in (*STRINGS[:-6], *STRINGS[-2:], "I'LL pay 12345 or ½ of 1,000.50\r\n\r\n  they're", "a  12 b\n\n3"):
        pieces = [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
        assert as_bytes(pieces) == cut_by_hand(WAYS[pre], text), text
    plain = tokenizer.encode("hi 123", add_special_tokens=False).ids
    assert tokenizer.encode("hi 123").ids == [1] * (WAYS[pre] == "llama3") + plain
    assert WAYS.keys() == CUTS.keys(), "all of them are written down above"


@pytest.mark.parametrize("pre", CUTS)
def test_a_word_that_no_merge_leads_to(tmp_path, pre, monkeypatch):
    """Llama 3 takes it whole if it is in the vocabulary (`ignore_merges`); everyone else goes by the merges."""
    (tokens, merges), word = tokens_and_merges(), "xylophone"
    assert word not in tokens
    monkeypatch.setattr(tiny_gguf, "tokens_and_merges", lambda: ([*tokens, word], merges))
    asked = WAYS[pre] != "llama3"  # the other way round than unasked
    tokenizer = tokenizer_of(tmp_path, pre, change=lambda writer, _: writer.add_add_bos_token(asked))
    ids = tokenizer.encode(word, add_special_tokens=False).ids
    assert (ids == [len(tokens)]) == (WAYS[pre] == "llama3") and tokenizer.decode(ids) == word
    assert (tokenizer.encode("hi").ids[0] == 1) == asked, "a file may say whether the start mark is put"


def test_smollm_cuts_digits_first(tmp_path):
    """As its published tokenizer and llama.cpp do.

    transformers cuts these files as GPT-2 does, which joins the space before a number to the number: two newlines
    before the `1.` of a list come out as two pieces instead of one.
    """
    path = write_gguf(tmp_path / "m.gguf", tiny_llama(), pre="smollm")
    ours = tokenizers.Tokenizer.from_file(str(unpack(path) / "tokenizer.json"))
    cut = [piece for piece, _ in ours.pre_tokenizer.pre_tokenize_str("a  12 b\n\n3 it's ½")]
    assert cut == ["a", "ĠĠ", "1", "2", "Ġb", "ĊĊ", "3", "Ġit", "'s", "Ġ", "Â½"]
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    for text in STRINGS:
        text = "".join(c for c in text if not c.isnumeric())
        assert ours.encode(text).ids == theirs(text).input_ids, text


def test_llama3_puts_its_start_before_a_text(tmp_path):
    folder = unpack(write_gguf(tmp_path / "m.gguf", tiny_llama(), pre="llama-bpe"))
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    plain = tokenizer.encode("hi 123", add_special_tokens=False).ids
    assert tokenizer.encode("hi 123").ids == [1, *plain]
    assert [p for p, _ in tokenizer.pre_tokenizer.pre_tokenize_str("I'LL pay 12345")] == [
        "I", "'LL", "Ġpay", "Ġ", "123", "45",
    ]  # fmt: skip


def test_which_tokens_are_special(tmp_path):
    folder = unpack(write_gguf(tmp_path / "m.gguf", tiny_llama()))
    added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    assert [(a["content"], a["special"]) for a in added] == [(t, True) for t in SPECIAL] + [(WRITTEN, False)]
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.encode("<|start|><think>").ids == [1, len(tokens_and_merges()[0]) - 1]


# What cannot be read


def change(**settings):
    """A change to the settings of a file, by the name of the writer's method."""

    def apply(writer, tensors):
        for name, value in settings.items():
            getattr(writer, name)(value)

    return apply


def without(writer, tensors):
    del tensors["blk.1.ffn_up.weight"]


def strange(writer, tensors):
    tensors["blk.0.attn_q.bias"] = np.zeros(64, np.float32)


def scaled(writer, tensors):
    tensors["rope_freqs.weight"] = np.linspace(1, 3, 8, dtype=np.float32)


def misshapen(writer, tensors):
    tensors["blk.0.ffn_down.weight"] = np.zeros((64, 64), np.float32)


def integers(writer, tensors):
    tensors["blk.0.ffn_down.weight"] = np.zeros((64, 96), np.int8)


def fewer_rows(writer, tensors):
    tensors["token_embd.weight"] = tensors["token_embd.weight"][:100]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(architecture="falcon"), "'falcon'.*only 'llama', 'qwen2'"),
        (dict(pre="tekken"), "'tekken'.*gpt-2, smollm"),
        (dict(pre=""), "'default'.*gpt-2, smollm"),
        (dict(tokenizer="llama"), "'llama'.*byte-level BPE"),
        (dict(eos=10_000), "eos token has the id 10000"),
        (dict(change=without), "blk.1.ffn_up.weight is missing"),
        (dict(change=strange), "blk.0.attn_q.bias, which a llama does not"),
        (dict(change=scaled), "scales its rotary frequencies"),
        (dict(change=change(add_rope_scaling_type=gguf.RopeScalingType.YARN)), "rotary frequencies .yarn"),
        (dict(change=change(add_key_length=24)), "16 of 24 columns of a head are rotated"),
        (dict(change=misshapen), r"ffn_down.weight has the shape \(64, 64\).*\(64, 96\)"),
        (dict(change=integers), "packed as I8, which gguf cannot unpack"),
        (dict(change=fewer_rows), "tokens but only 100 rows"),
    ],
    ids=lambda x: "" if isinstance(x, dict) else x[:12],
)
def test_what_a_folder_could_not_say_is_refused(tmp_path, settings, words):
    path = write_gguf(tmp_path / "m.gguf", tiny_llama(), **settings)
    with pytest.raises(CheckpointError, match=words) as e:
        unpack(path)
    assert str(path) in str(e.value) and "\n" not in str(e.value)
    assert list((tmp_path / "m-folder").iterdir()) == []


def test_a_file_cut_short_anywhere(tmp_path):
    whole = write_gguf(tmp_path / "m.gguf", tiny_llama()).read_bytes()
    short = tmp_path / "short.gguf"
    for part in range(40):
        short.write_bytes(whole[: 4 + (len(whole) - 5) * part // 39])
        with pytest.raises(CheckpointError, match="cut short or damaged"):
            convert(short, tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"m.gguf", "short.gguf"}


def test_a_damaged_count_is_no_endless_loop(tmp_path):
    """The number of token types, a list of plain integers, as large as it can be."""
    path = write_gguf(tmp_path / "m.gguf", tiny_llama())
    data = bytearray(path.read_bytes())
    count = data.index(b"tokenizer.ggml.token_type") + len("tokenizer.ggml.token_type") + 4 + 4
    assert int.from_bytes(data[count : count + 8], "little") == len(tokens_and_merges()[0])
    data[count : count + 8] = b"\xff" * 7 + b"\x00"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="cut short or damaged"):
        unpack(path)


@pytest.mark.parametrize("content", [b"", b"GG", b"PK\x03\x04" + b"\0" * 100])
def test_what_is_not_gguf(tmp_path, content):
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"not a GGUF file.*regard model list"):
        resolve(path)


def test_the_package_may_be_missing(tmp_path, monkeypatch):
    path = write_gguf(tmp_path / "m.gguf", tiny_llama())
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))  # where no other test has unpacked the same file
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtra, match=r"pip install 'regard\[gguf\]'") as e:
        resolve(path)
    assert e.value.exit_code == 3


# Where a model is


def test_a_file_is_unpacked_once_whatever_its_name(tmp_path):
    path = write_gguf(tmp_path / "m.gguf", tiny_llama(), Kind.F16)
    messages = []
    folder = resolve(path, messages.append)
    assert len(messages) == 1 and folder.parent == cache_folder() / "models"
    assert resolve(str(path.rename(tmp_path / "other.bin")), messages.append) == folder
    assert len(messages) == 1
    assert json.loads((folder / "regard.json").read_text())["task"] == "lm"


def test_folders_and_unknown_names_pass_and_near_names_help(tmp_path):
    assert resolve(tmp_path) == tmp_path
    assert resolve("runs/nowhere") == Path("runs/nowhere")
    with pytest.raises(ConfigError, match="did you mean 'smollm2-135m'"):
        resolve("SmolLM2-135")
    with pytest.raises(CheckpointError, match=r"nowhere\.gguf"):
        resolve(tmp_path / "nowhere.gguf")


def test_a_file_that_is_refused_leaves_nothing_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    path = write_gguf(tmp_path / "m.gguf", tiny_llama(), change=without)
    with pytest.raises(CheckpointError, match="missing"):
        resolve(path, lambda line: None)
    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_file()] == []
