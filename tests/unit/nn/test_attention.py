"""Bahdanau's attention: by hand, masked, inside the hull of what it mixes."""

import math

import pytest
import torch

from regard.nn.attention import AdditiveAttention
from regard.nn.taps import watch

close = torch.testing.assert_close


@pytest.fixture
def attention(shake):
    return shake(AdditiveAttention(query_width=3, memory_width=5, width=4), 4.0).double()


def test_it_is_the_formula(attention):
    """score = vᵀ tanh(W s + U h), softmax over the source, sum of the source vectors: one number at a time."""
    query, memory = torch.randn(1, 2, 3, dtype=torch.float64), torch.randn(1, 4, 5, dtype=torch.float64)
    got = attention(query, attention.keys_for(memory), memory, None)
    assert got.shape == (1, 2, 5)
    for t in range(2):
        scores = []
        for s in range(4):
            inner = attention.W.weight @ query[0, t] + attention.U.weight @ memory[0, s] + attention.U.bias
            scores.append(math.exp((attention.v.weight[0] @ inner.tanh()).item()))
        close(got[0, t], sum(w / sum(scores) * h for w, h in zip(scores, memory[0], strict=True)))


def test_masked_words_get_weight_exactly_zero_and_no_gradient(attention):
    memory = torch.randn(2, 4, 5, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[[True, True, True, True]], [[True, True, False, False]]])
    with watch(attention) as seen:
        out = attention(torch.randn(2, 1, 3, dtype=torch.float64), attention.keys_for(memory), memory, mask)
    (look,) = seen["look"]
    assert look.weights()[1, 0, 0, 2:].tolist() == [0, 0]
    close(look.weights().sum(-1), torch.ones(2, 1, 1))
    close(look.weights()[:, 0].double() @ look.v, out, rtol=1e-5, atol=1e-6)  # a look is in float32
    (grad,) = torch.autograd.grad(out.sum(), memory)
    assert grad[1, 2:].abs().max() == 0 and (grad[1, :2].abs().sum(-1) > 0).all()


def test_the_mix_lies_between_what_it_mixes(attention):
    memory = torch.randn(3, 4, 5, dtype=torch.float64)
    out = attention(torch.randn(3, 6, 3, dtype=torch.float64) * 5, attention.keys_for(memory), memory, None)
    assert (out <= memory.amax(1, keepdim=True)).all() and (out >= memory.amin(1, keepdim=True)).all()


def test_many_queries_at_once_are_one_after_another(attention):
    query, memory = torch.randn(2, 3, 3, dtype=torch.float64), torch.randn(2, 4, 5, dtype=torch.float64)
    keys = attention.keys_for(memory)
    steps = [attention(query[:, t : t + 1], keys, memory, None) for t in range(3)]
    close(attention(query, keys, memory, None), torch.cat(steps, 1))
