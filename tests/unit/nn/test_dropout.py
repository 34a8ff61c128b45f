"""Dropout against its definition: how often, which elements, what is left, and its gradient."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from regard.nn.attention import fast_attention
from regard.nn.dropout import Dropout, dropped
from regard.nn.masks import Everything, Lengths

close = torch.testing.assert_close


def near(share: Tensor, p: float, draws: int) -> bool:
    """Within five standard deviations, which one in 1.7 million draws is not."""
    return bool(((share - p).abs() < 5 * math.sqrt(p * (1 - p) / draws)).all())


@pytest.mark.parametrize("p", [0.001, 0.1, 0.3, 0.5, 0.9])
def test_elements_are_dropped_independently_with_probability_p(p):
    x = torch.rand(1000, 1203) + 1  # no multiple of four elements
    y = dropped(x, p)
    zero = y == 0
    assert near(zero.float().mean(), p, x.numel())
    close(y[~zero], x[~zero] / (1 - p), rtol=1e-4, atol=0.0)
    lanes = zero.flatten()[:-4].view(-1, 4).float()  # those that share a draw
    assert near(lanes.mean(0), p, len(lanes))
    for distance in (1, 2, 3, 4, 1203):
        both = zero.flatten()[distance:] & zero.flatten()[:-distance]
        assert near(both.float().mean(), p * p, both.numel())


@pytest.mark.parametrize("dtype", [torch.float, torch.double, torch.bfloat16])
def test_the_gradient_is_dropped_like_the_values(dtype):
    x = torch.ones(7, 5, dtype=dtype, requires_grad=True)
    y = dropped(x, 0.4)
    (dx,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert y.dtype == dtype and 0 < (y == 0).sum() < y.numel() and torch.equal(dx, y)


def test_seeds_decide():
    def draw(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return Dropout(0.5)(torch.ones(100))

    assert torch.equal(draw(1), draw(1)) and not torch.equal(draw(1), draw(2))


def test_what_is_not_random_is_as_in_torch():
    x, drop = torch.randn(3, 4), Dropout(0.5)
    assert torch.equal(drop.eval()(x), x) and not torch.equal(drop.train()(x), x)
    for p in (0.0, 1.0):
        assert torch.equal(Dropout(p)(x), nn.Dropout(p)(x))
    assert drop(torch.empty(0, 4)).shape == (0, 4)
    with FakeTensorMode():
        assert drop(torch.empty(3, 4)).shape == (3, 4)


@pytest.mark.parametrize("mask", [Everything(), Lengths(torch.tensor([20, 7, 1, 13]), 20)], ids=["all", "lengths"])
def test_weights_of_attention_are_dropped(mask):
    """The values are the rows of a unit matrix, so that the result is the weights."""
    q, k = torch.randn(4, 2, 20, 8), torch.randn(4, 2, 20, 8)
    v = torch.eye(20).expand(4, 2, 20, 20)
    whole = fast_attention(q, k, v, mask)
    parts = torch.stack([fast_attention(q, k, v, mask, dropout=0.3) for _ in range(50)])
    seen = (whole > 0).expand_as(parts)
    assert near((parts[seen] == 0).float().mean(), 0.3, int(seen.sum())) and not parts[~seen].any()
    kept = parts > 0
    close(parts[kept], (whole / 0.7).expand_as(parts)[kept], rtol=1e-4, atol=1e-6)
