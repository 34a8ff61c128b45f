"""Our Llama is transformers' LlamaForCausalLM: same folder, same logits, same gradients, with shared keys."""

import json
from functools import partial

import pytest
import torch
import torch.nn.functional as F
import transformers
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from regard.errors import CheckpointError
from regard.models import build, config_for
from regard.models.llama import LlamaConfig
from regard.models.published import from_published, load_model, to_published, weights_bytes
from regard.nn.init import skip_init

# Theirs works out its cosines in float32 whatever the weights are, so that is how close they come.
close = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-6)
VOCAB = 83
base = dict(vocab=VOCAB, width=24, layers=2, heads=6, head_width=8, ffn=40, context=32)
CONFIGS = {
    "grouped": LlamaConfig(**base, kv_heads=2),
    "each its own": LlamaConfig(**base, kv_heads=6, tied=False, theta=500.0, eps=1e-3),
    "one for all": LlamaConfig(**base, kv_heads=1, tied=False, dropout=0.1),
}


@pytest.fixture(params=CONFIGS, ids=list(CONFIGS))
def ours(request, shake):
    return shake(build(CONFIGS[request.param]), 8.0).eval()


@pytest.fixture
def folder(ours, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(to_published(ours.config, eos=0)))
    (tmp_path / "model.safetensors").write_bytes(weights_bytes(ours))
    return tmp_path


@pytest.fixture
def theirs(folder, monkeypatch):
    """Their norm is torch's, but always in float32: here in float64."""
    exact = lambda norm, x: F.rms_norm(x, (x.size(-1),), norm.weight, norm.variance_epsilon)  # noqa: E731
    monkeypatch.setattr(LlamaRMSNorm, "forward", exact)
    model, info = transformers.LlamaForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
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
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0}}, "llama3"),
        ({"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}}, "linear"),
        ({"attention_bias": True}, "attention_bias"),
        ({"hidden_act": "gelu"}, "hidden_act"),
    ],
    ids=["llama3 rope", "linear rope", "bias", "gelu"],
)
def test_what_we_do_not_compute_is_refused(tmp_path, setting, says):
    values = to_published(CONFIGS["grouped"]) | setting
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=says):
        load_model(tmp_path)


def test_published_sizes_have_the_published_number_of_parameters():
    counts = {
        ("smollm2-135m", 49152): 134_515_008,
        ("smollm2-360m", 49152): 361_821_120,
        ("tinyllama", 32000): 1_100_048_384,
        ("llama2-7b", 32000): 6_738_415_616,
    }
    with torch.device("meta"), skip_init():  # to count, no numbers are needed
        assert {(s, v): build(config_for("llama", s, v, task="lm")).size() for s, v in counts} == counts
