"""Whichever library multiplies, the product is the same, and gradients are torch's own."""

import pytest
import torch
import torch.nn.functional as F

from regard.nn.linear import LARGE, ONEDNN, OPS, WORK, Linear, linear
from regard.nn.packed import PackedLinear

WIDTH, OUT = 520, 512  # just large enough
close = torch.testing.assert_close


@pytest.fixture
def calls(monkeypatch):
    """Products that oneDNN was asked for."""
    seen, real = [], OPS._linear_pointwise
    monkeypatch.setattr(OPS, "_linear_pointwise", lambda *a: (seen.append(a[0].shape), real(*a))[1])
    return seen


@pytest.mark.skipif(not ONEDNN, reason="this torch has no oneDNN")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, WIDTH), (3, 7, WIDTH), (2, 1, WIDTH)], ids=str)
def test_a_large_map_goes_to_onednn_and_gives_the_same(calls, shape, bias):
    assert WIDTH * OUT >= LARGE
    x, map = torch.randn(shape), Linear(WIDTH, OUT, bias)
    with torch.inference_mode():
        close(map(x), F.linear(x, map.weight, map.bias), rtol=1e-4, atol=1e-5)
        close(map(x.mT.contiguous().mT), map(x))
    assert calls == [x.shape] * 3
    with torch.no_grad():
        map.weight.zero_()  # a change is seen at once: nothing was put aside
        assert torch.equal(map(x), torch.zeros(*shape[:-1], OUT) + (map.bias if bias else 0))


@pytest.mark.skipif(not ONEDNN, reason="this torch has no oneDNN")
def test_many_rows_go_to_onednn_and_give_the_same(calls):
    x, map = torch.randn(128, 128), Linear(128, 128)
    with torch.inference_mode():
        close(map(x), F.linear(x, map.weight, map.bias), rtol=1e-4, atol=1e-5)
        assert calls == [x.shape] and x.numel() * 128 == WORK
        map(x[:-1])
    assert len(calls) == 1


@pytest.mark.skipif(not ONEDNN, reason="this torch has no oneDNN")
@pytest.mark.parametrize("shape", [(65, 256), (3, 50, 256), (128, 256)], ids=str)
def test_many_rows_are_filled_up_to_blocks_of_64(calls, shape):
    x, map = torch.randn(shape), Linear(256, 300)
    layers = map, PackedLinear.of(map)
    with torch.inference_mode():
        for layer in layers:
            close(layer(x), F.linear(x, map.weight, map.bias), rtol=1e-4, atol=1e-5)
    assert len(calls) == 2 and all(call.numel() // 256 % 64 == 0 for call in calls)


def test_all_else_is_torchs(calls):
    map, x = Linear(WIDTH, OUT), torch.randn(2, WIDTH)
    assert map(x).requires_grad
    with torch.no_grad():
        for given in (x[0], x[:0]):  # a vector, and no row at all
            close(map(given), F.linear(given, map.weight, map.bias))
        small = torch.randn(10, WIDTH)
        assert torch.equal(linear(x, small), F.linear(x, small))
        close(linear(x.double(), map.weight.double()).float(), F.linear(x, map.weight), rtol=1e-4, atol=1e-5)
        assert torch.equal(torch.compile(map, backend="eager")(x), F.linear(x, map.weight, map.bias))
    assert not calls
