"""A model with weights in fp16 or int8: nearly the same words, bytes counted, nothing forgotten."""

import copy

import pytest
import torch
from torch import nn

from regard.errors import ConfigError
from regard.models import GPTConfig, LlamaConfig, RecurrentLMConfig, TransformerConfig, build
from regard.nn.half import HalfLinear
from regard.nn.linear import FusedLinear
from regard.nn.lora import add_lora_, merge_
from regard.nn.quantised import Int8Linear
from regard.nn.stored import Stored, check_weights, is_stored, store_

pytestmark = pytest.mark.skipif(torch.backends.quantized.engine not in ("x86", "fbgemm"), reason="for x86 only")
GPT = GPTConfig(vocab=101, width=64, heads=4, ffn=256, layers=3, context=32)
LLAMA = LlamaConfig(vocab=101, width=64, heads=4, kv_heads=2, head_width=16, ffn=96, layers=2, context=32, tied=False)
LSTM = RecurrentLMConfig(vocab=101, embedding=32, width=64)
ERROR, STEPS = {"fp16": 1e-3, "int8": 0.05}, {"fp16": 1e-5, "int8": 0.01}  # of all logits; decoded in steps
every_kind = pytest.mark.parametrize("weights", ["fp16", "int8"])


def error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return ((got - wanted).norm() / wanted.norm()).item()


@pytest.fixture
def model(request, shake):
    """One whose next words are neither certain nor all alike."""
    model = shake(build(request.param), 4.0).eval()
    nn.init.normal_(model.token.weight[: model.config.vocab], std=0.5)
    return model


every_model = pytest.mark.parametrize("model", [GPT, LLAMA, LSTM], ids=["gpt", "llama", "lstm"], indirect=True)


@every_model
@every_kind
@torch.no_grad()
def test_a_stored_model_says_nearly_the_same(model, weights):
    ids = torch.randint(0, model.config.vocab, (3, 16))
    expected, words = model.logits(model(ids)), model.token.weight.clone()
    store_(model, weights)
    got = model.logits(model(ids))
    assert got.shape == expected.shape  # only words that exist
    assert 0 < error(got, expected) < ERROR[weights]
    torch.testing.assert_close(model.logits(model(ids)[0, 0]), got[0, 0])  # of one vector, as for the next word
    assert torch.equal(model.token.weight, words)
    state = model.begin(3, 16)
    steps = torch.cat([model.read(one, state) for one in ids.split(1, 1)], 1)
    assert error(model.logits(steps), got) < STEPS[weights]  # rounding may turn on the last bit of an attention


@every_model
@every_kind
def test_the_report_names_what_changed_and_counts_bytes(model, weights):
    linears = [name for name, m in model.named_modules() if isinstance(m, nn.Linear)]
    size = sum(p.numel() for p in model.parameters())
    report = store_(model, weights)
    assert report.names == [*linears, "head"]
    assert not any(isinstance(m, nn.Linear) for m in model.modules())
    assert report.before == 4 * size
    small = [m for m in model.modules() if isinstance(m, Stored)]
    whole = sum(m.in_features * m.out_features for m in small) * {"fp16": 2, "int8": 1}[weights]
    kept = sum(4 * p.numel() for p in model.parameters())
    assert kept + whole <= report.after < kept + 1.25 * whole
    assert not any(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("model", [GPT], indirect=True)
@every_kind
@torch.no_grad()
def test_a_copy_of_a_stored_model_is_one(model, weights):
    store_(model, weights)
    ids = torch.randint(0, 101, (2, 5))
    twin = copy.deepcopy(model)
    assert torch.equal(twin.logits(twin(ids)), model.logits(model(ids)))


@every_kind
def test_a_fused_map_keeps_its_parts(weights):
    model = nn.Sequential(FusedLinear(8, [4, 2, 2]), nn.Linear(8, 3))
    store_(model, weights)
    assert [m.parts for m in model] == [[4, 2, 2], [3]]


@every_kind
@pytest.mark.parametrize("model", [GPT], indirect=True)
def test_low_rank_maps_are_not_forgotten(model, weights):
    add_lora_(model, rank=2, alpha=4.0)
    with pytest.raises(ConfigError, match=r"attention\.qkv is a LoraLinear.*merge_"):
        store_(model, weights)
    assert model.stored_head is None  # nothing was done by halves
    merge_(model)
    assert len(store_(model, weights).names) == 13


@pytest.mark.parametrize("model", [GPT], indirect=True)
@torch.no_grad()
def test_a_layer_beyond_fp16_stays_as_it_is(model):
    model.blocks[1].mlp.up.weight[0, 0] = 1e6
    ids = torch.randint(0, 101, (2, 5))
    expected = model.logits(model(ids))
    report = store_(model, "fp16")
    assert type(model.blocks[1].mlp.up).__base__ is nn.Linear and "blocks.1.mlp.up" not in report.names
    assert isinstance(model.blocks[0].mlp.up, HalfLinear) and error(model.logits(model(ids)), expected) < 1e-3


def test_a_translator_stores_its_head_too():
    model = build(TransformerConfig(vocab=23, width=16, heads=2, ffn=24, encoder_layers=1, decoder_layers=1))
    hidden = torch.randn(2, 3, 16)
    with torch.no_grad():
        expected = model.logits(hidden)
        assert not is_stored(model) and store_(model, "int8").names[-1] == "head" and is_stored(model)
        assert isinstance(model.stored_head, Int8Linear) and 0 < error(model.logits(hidden), expected) < 0.05


def test_other_names_are_refused():
    with pytest.raises(ConfigError, match="no weights 'fp8'; there are: fp32, fp16, int8"):
        check_weights("fp8")
