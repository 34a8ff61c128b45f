"""Weights in fp16 against float64 products of the rounded weights, and a row against itself in a batch."""

import threading

import pytest
import torch
from torch import nn

from regard.errors import ConfigError
from regard.nn.half import LIMIT, HalfLinear, in_range

close = torch.testing.assert_close
pytestmark = pytest.mark.skipif(torch.backends.quantized.engine not in ("x86", "fbgemm"), reason="for x86 only")


def exact(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The product with rounded weights in float64, and the most that K products summed in float32 may differ."""
    x, weight = x.double(), weight.half().double()
    bound = (weight.size(1) + 1) * 2.0**-24 * (x.abs() @ weight.abs().mT)
    return x @ weight.mT + (0 if bias is None else bias.double()), bound + 1e-6


@pytest.mark.parametrize(("width", "out"), [(384, 1152), (1536, 384), (100, 33), (3, 5), (1, 1)])
@pytest.mark.parametrize("shape", [(1,), (4, 6), (70,)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
@torch.inference_mode()
def test_only_the_weights_are_rounded(width, out, shape, bias):
    linear, x = nn.Linear(width, out, bias=bias), torch.randn(*shape, width)
    got = HalfLinear(linear.weight, linear.bias)(x)
    want, bound = exact(x, linear.weight, linear.bias)
    assert got.dtype == torch.float32 and got.shape == want.shape
    assert ((got - want).abs() <= bound).all()


def test_a_row_does_not_depend_on_its_batch():
    ours, x = HalfLinear(torch.randn(97, 64), torch.randn(97)), torch.randn(40, 64)
    together = ours(x)
    for start, size in ((0, 1), (7, 2), (20, 13)):
        close(ours(x[start : start + size]), together[start : start + size], rtol=1e-6, atol=1e-6)
    close(ours(x.view(4, 10, 64)).flatten(0, 1), together)
    close(ours(x[3]), together[3], rtol=1e-6, atol=1e-6)
    close(ours(x.T.contiguous().T), together)


def test_edge_cases_of_the_input():
    ours = HalfLinear(torch.zeros(3, 8), torch.arange(3.0))
    assert ours(torch.randn(0, 8)).shape == (0, 3)
    assert ours(torch.randn(2, 8).bfloat16()).dtype == torch.bfloat16
    assert ours(torch.randn(2, 8)).tolist() == [[0, 1, 2]] * 2
    assert HalfLinear(torch.ones(1, 2))(torch.tensor([[torch.inf, 1.0], [torch.nan, 1.0]])).isfinite().sum() == 0


def test_weights_beyond_fp16_are_recognised():
    assert in_range(torch.tensor([[LIMIT, -LIMIT]])) and in_range(torch.empty(0, 3))
    assert not in_range(torch.tensor([[0.0, 65_520.0]])) and not in_range(torch.tensor([[-1e6]]))
    assert not in_range(torch.tensor([[torch.nan]]))


def test_threads_share_one_layer():
    ours, x = HalfLinear(torch.randn(64, 64)), torch.randn(8, 64)
    want, wrong = ours(x), []

    def work() -> None:
        wrong.extend(i for i in range(50) if not torch.equal(ours(x), want))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_it_refuses_gradients_other_devices_and_other_machines(monkeypatch):
    ours = HalfLinear(torch.randn(3, 8))
    with pytest.raises(ConfigError, match="no gradients"):
        ours(torch.randn(2, 8, requires_grad=True))
    with pytest.raises(ConfigError, match="for CPUs"):
        HalfLinear(torch.empty(3, 8, device="meta"))
    monkeypatch.setattr(torch.backends.quantized, "engine", "qnnpack")
    with pytest.raises(ConfigError, match="AVX2"):
        HalfLinear(torch.randn(3, 8))
