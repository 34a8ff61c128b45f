"""Norms and feed-forwards against implementations of others; what precision the stream has."""

import pytest
import torch
import transformers
from torch import nn
from transformers.activations import ACT2FN
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

from regard.models import build
from regard.models.gpt import GPTConfig
from regard.models.llama import LlamaConfig
from regard.nn.blocks import ACTIVATIONS, RMSNorm, SwiGLU, dropout
from regard.nn.init import skip_init

close = torch.testing.assert_close


def test_rms_norm_is_theirs_values_and_gradients():
    ours, theirs = RMSNorm(6, 1e-3), LlamaRMSNorm(6, 1e-3)
    with torch.no_grad():
        theirs.weight.copy_(ours.weight.normal_())
    x, y = (torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(1)).requires_grad_() for _ in range(2))
    mine, other = ours(x), theirs(y)
    close(mine, other)
    mine.square().sum().backward()
    other.square().sum().backward()
    close(x.grad, y.grad)
    close(ours.weight.grad, theirs.weight.grad)


def test_rms_norm_hands_bf16_on_as_bf16():
    x = torch.randn(2, 6, dtype=torch.bfloat16)
    got = RMSNorm(6, 1e-5)(x)
    assert got.dtype == torch.bfloat16
    close(got, RMSNorm(6, 1e-5)(x.float()).bfloat16())


def test_swiglu_is_theirs():
    config = transformers.LlamaConfig(hidden_size=4, intermediate_size=7, num_attention_heads=2)
    ours, theirs = SwiGLU(4, 7), LlamaMLP(config)
    with torch.no_grad():
        ours.up.weight.copy_(torch.cat((theirs.gate_proj.weight, theirs.up_proj.weight)))
        ours.down.weight.copy_(theirs.down_proj.weight)
    x = torch.randn(2, 3, 4)
    close(ours(x), theirs(x))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_is_the_published_one(name):
    theirs = {"relu": "relu", "gelu-tanh": "gelu_new", "swish": "silu", "gelu": "gelu"}
    theirs["quick-gelu"] = "quick_gelu"
    x = torch.linspace(-4, 4, 99)
    close(ACTIVATIONS[name]()(x), ACT2FN[theirs[name]](x))


def test_no_dropout_is_no_work():
    assert isinstance(dropout(0.0), nn.Identity) and isinstance(dropout(0.1), nn.Dropout)


CONFIGS = [
    GPTConfig(vocab=20, width=8, layers=2, heads=2, ffn=16, context=8),
    GPTConfig(vocab=20, width=8, layers=2, heads=2, ffn=16, context=8, positions="alibi"),
    LlamaConfig(vocab=20, width=8, layers=2, heads=2, kv_heads=1, head_width=4, ffn=16, context=8),
]


@pytest.mark.parametrize("config", CONFIGS, ids=["gpt", "alibi", "llama"])
def test_under_bf16_the_stream_is_bf16_and_the_weights_stay(config):
    model, ids = build(config), torch.randint(0, 20, (2, 8))
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model(ids)
        state = model.begin(2, 8)
        read = model.read(ids, state)
    assert hidden.dtype == read.dtype == state.cache.keys[0].dtype == torch.bfloat16
    assert all(p.dtype == torch.float32 for p in model.parameters())
    close(hidden.float(), model(ids), rtol=0.1, atol=0.1)
    close(model.bfloat16()(ids).float(), hidden.float(), rtol=0.1, atol=0.1)


@pytest.mark.parametrize("config", CONFIGS[::2], ids=["gpt", "llama"])
def test_compiled_in_one_piece(config):
    """No graph breaks: the whole forward pass, with documents and without, and a step of reading on a device."""
    model, ids = build(config).eval(), torch.randint(0, 20, (2, 8))
    documents = torch.tensor([[0] * 3 + [1] * 5, [2] * 8])
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph

    compiled = torch.compile(model, backend=count, fullgraph=True)
    close(compiled(ids), model(ids))
    close(compiled(ids, documents), model(ids, documents))
    with torch.no_grad():
        state = model.begin(2, 8)
        state.fixed = True
        state.cache.clear(slice(None))
        whole = model(ids)
        model.read(ids[:, :2], state)
        graphs.clear()
        step = torch.compile(model.read, backend=count, fullgraph=True)
        for t in range(2, 8):
            close(step(ids[:, t : t + 1], state)[:, 0], whole[:, t], rtol=1e-4, atol=1e-5)
        assert len(graphs) == 1, "a step was compiled anew"


def test_models_from_files_draw_nothing():
    before = torch.get_rng_state()
    with skip_init():
        for config in CONFIGS:
            build(config)
    assert torch.equal(torch.get_rng_state(), before)
    build(CONFIGS[0])
    assert not torch.equal(torch.get_rng_state(), before)
