"""Packed maps give the numbers of plain ones, and leave the model they come from alone."""

import pytest
import torch
from torch import nn

from regard.models import build
from regard.models.transformer import TransformerConfig
from regard.nn.attention import CrossAttention, merge_heads, plain_attention, split_heads
from regard.nn.blocks import FeedForward, PostNormEncoderLayer
from regard.nn.linear import Linear, takes
from regard.nn.masks import Everything, Lengths
from regard.nn.packed import SHORT, PackedLayer, PackedLinear, pack_, packed, short_attention
from regard.nn.stored import store_

close = torch.testing.assert_close
pytestmark = pytest.mark.skipif(not takes(torch.ones(1, 1)), reason="this torch has no oneDNN")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 24), (3, 7, 24), (2, 1, 24)], ids=str)
def test_a_packed_map_is_the_plain_one(shape, bias):
    x, linear = torch.randn(shape), nn.Linear(24, 10, bias)
    with torch.inference_mode():
        close(PackedLinear.of(linear)(x), linear(x))
        close(PackedLinear.of(linear, "gelu")(x), nn.functional.gelu(linear(x)))
        close(PackedLinear.of(linear, "relu")(x), linear(x).relu())


@pytest.mark.parametrize("activation", ["gelu", "gelu-tanh", "relu"])
def test_a_packed_layer_is_the_plain_one(shake, activation):
    layer = shake(PostNormEncoderLayer(24, 4, 40, 0.1, activation), 2.0).eval()
    x, mask = torch.randn(3, 7, 24), Lengths(torch.tensor([7, 2, 5]), 7)
    before = {name: p.clone() for name, p in layer.named_parameters()}
    twin = packed(layer)
    with torch.inference_mode():
        close(twin(x, mask), layer(x, mask), rtol=1e-4, atol=1e-5)
    assert {type(m) for m in twin.modules()} & {nn.Linear, Linear} == set()
    assert twin.norm1.weight is layer.norm1.weight  # shared, not copied
    assert before.keys() == dict(layer.named_parameters()).keys() and isinstance(layer.mlp, FeedForward)
    assert all(torch.equal(p, before[name]) for name, p in layer.named_parameters())


@pytest.mark.parametrize("activation", ["gelu", "gelu-tanh", "relu"])
@pytest.mark.parametrize("weights", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize(("rows", "tokens", "lengths"), [(1, 7, None), (1, SHORT + 1, None), (1, 7, [5]), (3, 7, None)])
def test_a_packed_layer_of_a_model_is_the_plain_one(shake, weights, activation, rows, tokens, lengths):
    """One short text takes its own way."""
    layers = nn.Sequential(shake(PostNormEncoderLayer(24, 4, 40, 0.1, activation), 2.0)).eval()
    if weights != "fp32":
        store_(layers, weights)
    x = torch.randn(rows, tokens, 24)
    mask = Everything() if lengths is None else Lengths(torch.tensor(lengths), tokens)
    (layer,), (twin,) = layers, packed(layers)
    assert type(twin) is PackedLayer
    with torch.inference_mode():
        close(twin(x, mask), layer(x, mask), rtol=1e-3, atol=1e-4 if weights != "int8" else 0.1)


@pytest.mark.parametrize("tokens", [1, 2, 24])
def test_short_attention_is_the_plain_one(tokens):
    qkv = torch.randn(1, tokens, 3 * 24)
    q, k, v = (split_heads(x, 4) for x in qkv.chunk(3, -1))
    close(short_attention(qkv, 4), merge_heads(plain_attention(q, k, v, Everything())))


def test_a_packed_head_is_the_plain_one(shake):
    model = shake(build(TransformerConfig(vocab=11, width=24, heads=4, ffn=8, output_bias=True))).eval()
    hidden = torch.randn(2, 3, 24)
    with torch.inference_mode():
        close(packed(model).logits(hidden), model.logits(hidden))
    assert model.stored_head is None


def test_a_model_in_int8_stays_as_it_is(shake):
    layer = shake(PostNormEncoderLayer(24, 4, 40, 0.1, "gelu"), 2.0).eval()
    store_(layer, "int8")
    x, mask = torch.randn(3, 7, 24), Lengths(torch.tensor([7, 2, 5]), 7)
    with torch.inference_mode():
        before = layer(x, mask)
        pack_(layer)
        assert torch.equal(layer(x, mask), before)


def test_a_decoder_of_a_translator_packs_too(shake):
    cross = shake(CrossAttention(24, 4, 6, 6), 2.0).eval()
    x, memory = torch.randn(2, 3, 24), torch.randn(2, 5, 24)
    with torch.inference_mode():
        want, twin = cross(x, cross.keys_values(memory), Everything()), packed(cross)
        close(twin(x, twin.keys_values(memory), Everything()), want, rtol=1e-4, atol=1e-5)


def test_other_kinds_of_numbers_are_left_alone():
    assert not takes(torch.ones(1, 1).double()) and not takes(torch.ones(1, 1, device="meta"))
