"""GGUF files out: against the package gguf, transformers' reading of them, and our own."""

import json
import math

import gguf
import numpy as np
import pytest
import torch
import transformers
from tests.conftest import shake
from tests.unit.models.tiny_gguf import TEXT

from regard.data.tokenizers import load as load_tokenizer
from regard.data.tokenizers.bytelevel import ByteLevel
from regard.data.tokenizers.chars import Characters
from regard.errors import ConfigError
from regard.formats import FORMATS
from regard.models import build
from regard.models.fetched import resolve
from regard.models.gpt import GPTConfig
from regard.models.llama import LlamaConfig
from regard.models.published import load_model, published_weights, to_published, weights_bytes
from regard.nn.positions import Stretch

LLAMA = dict(width=64, layers=2, heads=4, kv_heads=2, head_width=16, ffn=96, context=64, theta=500.0)
CONFIGS = {
    "gpt2": GPTConfig(vocab=300, width=64, layers=2, heads=4, ffn=256, context=64),
    "llama": LlamaConfig(vocab=300, **LLAMA, tied=False),
    "mistral": LlamaConfig(vocab=300, **LLAMA, window=32),
    "qwen2": LlamaConfig(vocab=300, **LLAMA, qkv_bias=True),
    "qwen3": LlamaConfig(
        vocab=300,
        **LLAMA | {"head_width": 128},  # which transformers assumes
        qk_norm=True,
    ),
}
IDS = torch.tensor([[5, 99, 17, 3, 250, 8, 8, 61]])


def write_model(folder, config, tokenizer=None):
    """A model folder with a tokenizer of 300 pieces at most, some ids without a piece."""
    torch.manual_seed(0)
    model = shake(build(config), 4.0).eval()
    (tokenizer or ByteLevel.train([TEXT] * 4, 290)).save(folder, 64)
    (folder / "config.json").write_text(json.dumps(to_published(config)))
    (folder / "model.safetensors").write_bytes(weights_bytes(model))
    return model


def logits(model, ids):
    with torch.no_grad():
        return model.logits(model(ids))


@pytest.mark.parametrize("name", CONFIGS)
def test_transformers_and_we_read_back_what_is_written(tmp_path, name):
    model = write_model(tmp_path, CONFIGS[name])
    path = tmp_path / "m.gguf"
    result = FORMATS["gguf"].write(tmp_path, path, "f32")
    assert result.values["max_difference"] < 1e-5
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name).eval()
    with torch.no_grad():
        torch.testing.assert_close(theirs(IDS).logits, logits(model, IDS), rtol=0, atol=2e-5)
    folder = resolve(path, lambda line: None)
    torch.testing.assert_close(logits(load_model(folder), IDS), logits(model, IDS), rtol=0, atol=1e-6)
    ours, again = load_tokenizer(tmp_path), load_tokenizer(folder)
    assert again.encode(TEXT) == ours.encode(TEXT) and again.ends == ours.ends


def test_llama_3_keeps_its_slowed_frequencies(tmp_path):
    """The file holds a factor for each, as llama.cpp works them out from the published settings; transformers does not
    read them."""
    stretch = Stretch(factor=8.0)
    model = write_model(tmp_path, LlamaConfig(vocab=300, **LLAMA | {"theta": 500_000.0}, stretch=stretch))
    FORMATS["gguf"].write(tmp_path, tmp_path / "m.gguf", "f32")
    (factors,) = (t.data for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors if t.name == "rope_freqs.weight")
    for i, factor in enumerate(factors):
        wave = 2 * math.pi * 500_000 ** (2 * i / 16)
        smooth = (8192 / wave - 1) / (4 - 1)
        middle = 1 / ((1 - smooth) / 8 + smooth)
        assert math.isclose(factor, 1 if wave < 8192 / 4 else 8 if wave > 8192 else middle, rel_tol=1e-6)
    again = load_model(resolve(tmp_path / "m.gguf", lambda line: None))
    assert again.config.stretch == stretch
    torch.testing.assert_close(logits(again, IDS), logits(model, IDS), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["gpt2", "qwen3"])
def test_tensors_have_the_names_of_the_package_gguf(tmp_path, name):
    write_model(tmp_path, CONFIGS[name])
    FORMATS["gguf"].write(tmp_path, tmp_path / "m.gguf", "f32")
    architecture = next(arch for arch, text in gguf.MODEL_ARCH_NAMES.items() if text == name)
    table = gguf.get_tensor_name_map(architecture, 2)
    names = {table.get_name(key, (".weight", ".bias")) for key in published_weights(load_model(tmp_path))}
    assert {tensor.name for tensor in gguf.GGUFReader(tmp_path / "m.gguf").tensors} == names


@pytest.mark.parametrize("dtype", ["f16", "q8_0"])
def test_matrices_are_rounded_as_the_type_says(tmp_path, dtype):
    """f16 to the nearest number; q8_0 to 255 steps of a block of 32 numbers, of which the largest is the scale."""
    model = write_model(tmp_path, CONFIGS["qwen2"])
    FORMATS["gguf"].write(tmp_path, tmp_path / "m.gguf", dtype)
    weights = published_weights(model)
    tensors = {t.name: t for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    for name, published in (("blk.1.attn_k", "self_attn.k_proj"), ("blk.1.ffn_down", "mlp.down_proj")):
        tensor = tensors[f"{name}.weight"]
        assert tensor.tensor_type.name.lower() == dtype
        got, exact = (
            gguf.dequantize(tensor.data, tensor.tensor_type),
            weights[f"model.layers.1.{published}.weight"].numpy(),
        )
        if dtype == "f16":
            np.testing.assert_array_equal(got, exact.astype(np.float16).astype(np.float32))
        else:
            blocks = exact.reshape(len(exact), -1, 32)
            scale = np.abs(blocks).max(-1, keepdims=True) / 127
            assert (np.abs(got.reshape(blocks.shape) - blocks) <= scale * 0.51 + 127 * 2**-11 * scale).all()
    assert tensors["blk.0.attn_norm.weight"].tensor_type.name == tensors["blk.0.attn_q.bias"].tensor_type.name == "F32"


def test_what_gguf_cannot_say_is_refused(tmp_path):
    gguf_format = FORMATS["gguf"]
    write_model(tmp_path, CONFIGS["gpt2"])
    (tmp_path / "there.gguf").touch()
    with pytest.raises(ConfigError, match="already exists"):
        gguf_format.write(tmp_path, tmp_path / "there.gguf", "f16")
    write_model(tmp_path, GPTConfig(vocab=60, width=32, layers=1, heads=2, ffn=32), Characters(TEXT))
    with pytest.raises(ConfigError, match="not byte-level BPE"):
        gguf_format.write(tmp_path, tmp_path / "m.gguf", "f16")
    write_model(tmp_path, GPTConfig(vocab=300, width=32, layers=1, heads=2, ffn=32, positions="alibi"))
    with pytest.raises(ConfigError, match="GPT cannot be written as GGUF; there are: llama, mistral"):
        gguf_format.write(tmp_path, tmp_path / "m.gguf", "f16")
    assert not list(tmp_path.glob("*m.gguf*"))
