"""Our Llama is transformers' Llama, Mistral, Qwen2 and Qwen3: same folder, same logits, same gradients."""

import json
import re
from functools import partial

import pytest
import torch
import torch.nn.functional as F
import transformers

from regard.errors import CheckpointError
from regard.models import build, config_for
from regard.models.llama import LlamaConfig
from regard.models.published import from_published, load_model, to_published, weights_bytes
from regard.nn.init import skip_init
from regard.nn.positions import Stretch

# Theirs works out its cosines in float32 whatever the weights are, so that is how close they come.
close = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-6)
VOCAB = 83
base = dict(vocab=VOCAB, width=24, layers=2, heads=6, head_width=8, ffn=40, context=32)
CONFIGS = {
    "grouped": LlamaConfig(**base, kv_heads=2),
    "each its own": LlamaConfig(**base, kv_heads=6, tied=False, theta=500.0, eps=1e-3),
    "one for all": LlamaConfig(**base, kv_heads=1, tied=False, dropout=0.1),
    "llama 3": LlamaConfig(**base, kv_heads=2, stretch=Stretch(factor=8.0, low=1.0, high=4.0, context=16)),
    "mistral": LlamaConfig(**base, kv_heads=2, tied=False, window=5),
    "qwen2": LlamaConfig(**base, kv_heads=2, qkv_bias=True),
    "qwen3": LlamaConfig(**base, kv_heads=2, qk_norm=True),
}
ARCHITECTURES = {"mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}


@pytest.fixture(params=CONFIGS, ids=list(CONFIGS))
def ours(request, shake):
    return shake(build(CONFIGS[request.param]), 8.0).eval()


@pytest.fixture
def folder(ours, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(to_published(ours.config, eos=0)))
    (tmp_path / "model.safetensors").write_bytes(weights_bytes(ours))
    return tmp_path


@pytest.fixture
def theirs(folder, monkeypatch, request):
    """Their norm is torch's, but always in float32: here in float64."""
    exact = lambda norm, x: F.rms_norm(x, (x.size(-1),), norm.weight, norm.variance_epsilon)  # noqa: E731
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    assert type(model).__name__ == ARCHITECTURES.get(request.node.callspec.params["ours"], "LlamaForCausalLM")
    monkeypatch.setattr(type(model.model.norm), "forward", exact)
    return model.double().eval()


@pytest.fixture
def ids():
    return torch.randint(0, VOCAB, (3, 20))


def test_logits_and_gradients_are_equal(ours, theirs, ids):
    ours = ours.double()
    mine, other = ours.logits(ours(ids)), theirs(ids).logits
    close(mine, other)
    mine.square().mean().backward()
    other.square().mean().backward()
    block, layer = ours.blocks[1], theirs.model.layers[1]
    fused = [getattr(layer.self_attn, f"{n}_proj").weight.grad for n in "qkv"]
    close(block.attention.qkv.weight.grad, torch.cat(fused))
    if ours.config.qkv_bias:
        fused = [getattr(layer.self_attn, f"{n}_proj").bias.grad for n in "qkv"]
        close(block.attention.qkv.bias.grad, torch.cat(fused))
    if ours.config.qk_norm:
        close(block.attention.k_norm.weight.grad, layer.self_attn.k_norm.weight.grad)
    close(block.attention.out.weight.grad, layer.self_attn.o_proj.weight.grad)
    close(block.mlp.up.weight.grad, torch.cat((layer.mlp.gate_proj.weight.grad, layer.mlp.up_proj.weight.grad)))
    close(block.norm2.weight.grad, layer.post_attention_layernorm.weight.grad)
    close(ours.token.weight.grad[:VOCAB], theirs.model.embed_tokens.weight.grad)
    close(ours.head.grad[:VOCAB], theirs.lm_head.weight.grad)


@pytest.mark.parametrize("side", ["left", "right"])
def test_ragged_rows_are_theirs_with_padding_on_either_side(ours, theirs, ids, side):
    ours, lengths = ours.double(), torch.tensor([20, 6, 13])
    there, given = torch.arange(20) < lengths[:, None], ids.clone()
    if side == "left":  # theirs: the words at the right end
        there = there.flip(1)
        for b, n in enumerate(lengths):
            given[b, 20 - n :] = ids[b, :n]
    other = theirs(given, attention_mask=there.long()).logits[there]  # rotations know distances only
    mine = ours.logits(ours.read(ids, ours.begin(3, 24), lengths))[torch.arange(20) < lengths[:, None]]
    close(mine, other)


def test_reading_in_chunks_is_their_cache_in_chunks(ours, theirs, ids):
    ours = ours.double()
    state, past = ours.begin(3, 20), transformers.DynamicCache()
    for chunk in ids.split([7, 1, 1, 8, 3], 1):
        close(ours.logits(ours.read(chunk, state)), theirs(chunk, past_key_values=past).logits)


def test_our_export_is_imported_unchanged(ours, folder, ids):
    again = load_model(folder)
    assert again.config == ours.config
    assert torch.equal(again.logits(again(ids)), ours.logits(ours(ids)))
    assert (again.head is again.token.weight) == again.config.tied


def test_a_folder_that_transformers_wrote_is_read(theirs, ours, tmp_path, ids):
    theirs.float().save_pretrained(tmp_path / "theirs", max_shard_size="8KB")
    assert (tmp_path / "theirs/model.safetensors.index.json").exists()
    again = load_model(tmp_path / "theirs")
    close(again.logits(again(ids)), ours.logits(ours(ids)))


def test_the_settings_of_older_folders_are_read():
    """rope_theta by itself, no head_dim, no heads of keys: as the first llamas were published."""
    config = LlamaConfig(vocab=VOCAB, width=48, heads=6, kv_heads=6, head_width=8, theta=500.0, tied=False)
    values = to_published(config) | {"rope_scaling": None}
    for name in ("rope_parameters", "head_dim", "num_key_value_heads", "residual_dropout", "tie_word_embeddings"):
        del values[name]
    assert from_published(values) == config


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 5e5, "factor": 32.0}}, "yarn"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0}}, "low_freq_factor"),
        ({"model_type": "qwen3", "use_sliding_window": True}, "use_sliding_window"),
        ({"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}}, "linear"),
        ({"attention_bias": True}, "attention_bias"),
        ({"hidden_act": "gelu"}, "hidden_act"),
    ],
    ids=["yarn", "incomplete llama3 rope", "window", "linear rope", "bias", "gelu"],
)
def test_what_we_do_not_compute_is_refused(tmp_path, setting, says):
    values = to_published(CONFIGS["grouped"]) | setting
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=says):
        load_model(tmp_path)


PUBLISHED = {  # config.json as published, shortened, and the parameters of the model card
    "Llama-3.2-1B": (
        dict(
            model_type="llama", vocab_size=128256, hidden_size=2048, num_hidden_layers=16, num_attention_heads=32,
            num_key_value_heads=8, head_dim=64, intermediate_size=8192, max_position_embeddings=131072,
            rms_norm_eps=1e-5, rope_theta=500000.0, tie_word_embeddings=True, attention_bias=False, mlp_bias=False,
            rope_scaling=dict(
                factor=32.0, high_freq_factor=4.0, low_freq_factor=1.0, original_max_position_embeddings=8192,
                rope_type="llama3",
            ),
        ),
        1_235_814_400,
    ),
    "Mistral-7B-v0.1": (
        dict(
            model_type="mistral", vocab_size=32000, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
            num_key_value_heads=8, intermediate_size=14336, max_position_embeddings=32768, rms_norm_eps=1e-5,
            rope_theta=10000.0, sliding_window=4096, tie_word_embeddings=False, hidden_act="silu",
        ),
        7_241_732_096,
    ),
    "Qwen2.5-0.5B": (
        dict(
            model_type="qwen2", vocab_size=151936, hidden_size=896, num_hidden_layers=24, num_attention_heads=14,
            num_key_value_heads=2, intermediate_size=4864, max_position_embeddings=32768, max_window_layers=24,
            rms_norm_eps=1e-6, rope_theta=1000000.0, sliding_window=32768, use_sliding_window=False,
            tie_word_embeddings=True, hidden_act="silu", use_mrope=False,
        ),
        494_032_768,
    ),
    "Qwen3-0.6B": (
        dict(
            model_type="qwen3", vocab_size=151936, hidden_size=1024, num_hidden_layers=28, num_attention_heads=16,
            num_key_value_heads=8, head_dim=128, intermediate_size=3072, max_position_embeddings=40960,
            max_window_layers=28, rms_norm_eps=1e-6, rope_theta=1000000, rope_scaling=None, sliding_window=None,
            use_sliding_window=False, tie_word_embeddings=True, hidden_act="silu", attention_bias=False,
        ),
        596_049_920,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_settings_give_the_published_size(name):
    values, parameters = PUBLISHED[name]
    with torch.device("meta"), skip_init():
        assert build(from_published(values)).size() == parameters


def test_published_sizes_have_the_published_number_of_parameters():
    counts = {
        ("smollm2-135m", 49152): 134_515_008,
        ("smollm2-360m", 49152): 361_821_120,
        ("tinyllama", 32000): 1_100_048_384,
        ("llama2-7b", 32000): 6_738_415_616,
    }
    with torch.device("meta"), skip_init():  # to count, no numbers are needed
        assert {(s, v): build(config_for("llama", s, v, task="lm")).size() for s, v in counts} == counts


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (
            {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"]},
            "nearest is qwen3 (models/",
        ),
        ({"model_type": "phi", "architectures": ["PhiForCausalLM"]}, "nearest is llama (models/published/llama.py)"),
        (
            {"model_type": "electra", "architectures": ["ElectraForMaskedLM"]},
            "nearest is bert (models/",
        ),
        ({"model_type": "x"}, "model_type 'x' is not one we read; there are: "),
    ],
    ids=["by name", "by its class", "by its head", "none"],
)
def test_an_unknown_layout_names_the_nearest(values, says):
    with pytest.raises(CheckpointError, match=re.escape(says)):
        from_published(values)
