"""Llama and its relatives read ragged rows, and in chunks, as transformers does; test_layouts.py compares the rest."""

import json
import re
from functools import partial

import pytest
import torch
import transformers
from tests.reference.parity import VOCAB, save
from tests.reference.test_layouts import CASES

from regard.errors import CheckpointError
from regard.models import build, config_for
from regard.models.llama import LlamaConfig
from regard.models.published import from_published, load_model, to_published
from regard.nn.init import skip_init

# Theirs works out its cosines in float32 whatever the weights are, so that is how close they come.
close = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-6)
DECODERS = {name: case for name, case in CASES.items() if case.architecture.endswith("CausalLM")}


@pytest.fixture(params=DECODERS)
def ours(request, shake):
    return DECODERS[request.param].ours(shake)


@pytest.fixture
def theirs(ours, tmp_path, monkeypatch, request):
    return DECODERS[request.node.callspec.params["ours"]].theirs(save(ours, tmp_path), monkeypatch)


@pytest.fixture
def ids():
    return torch.randint(0, VOCAB, (3, 20))


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
        ({"model_type": "qwen3", "architectures": [], "use_sliding_window": True}, "use_sliding_window"),
        ({"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}}, "linear"),
        ({"attention_bias": True}, "attention_bias"),
        ({"hidden_act": "gelu"}, "hidden_act"),
    ],
    ids=["yarn", "incomplete llama3 rope", "window", "linear rope", "bias", "gelu"],
)
def test_what_we_do_not_compute_is_refused(tmp_path, setting, says):
    values = to_published(DECODERS["llama"].config) | setting
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
        ({"model_type": "gemma2"}, "nearest is gemma3_text (models/published/gemma.py)"),
        ({"model_type": "mbart"}, "nearest is bart (models/published/bart.py)"),
        ({"model_type": "x"}, "model_type 'x' is not one we read; there are: "),
        ({"model_type": "llama", "quantization_config": {"quant_method": "gptq"}}, "quantised by 'gptq' are not read"),
    ],
    ids=["by name", "by its class", "by its head", "gemma", "bart", "none", "quantised"],
)
def test_an_unknown_layout_names_the_nearest(values, says):
    with pytest.raises(CheckpointError, match=re.escape(says)):
        from_published(values)
