"""Products of eight-bit floats, emulated on a CPU: rounding as the formats define it, and gradients near exact ones."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from regard.errors import ConfigError
from regard.nn.blocks import FeedForward
from regard.nn.fp8 import BACKWARD, FORWARD, Fp8, eight, feed_forward8, largest, linear8, takes8
from regard.objectives.losses import _Chunked8, plain_cross_entropy_sum


@pytest.mark.parametrize(("dtype", "digits"), [(FORWARD, 4), (BACKWARD, 3)])
def test_eight_bits_round_to_the_nearest_of_their_digits(dtype, digits):
    """Within half a unit of the last digit for normal numbers, at any size of the tensor."""
    x = torch.tensor([[1.0, 1.0 + 2.0**-digits * 1.1, -0.3, 0.0], [5.0, -7.0, 2.9, 3.1]])
    for size in (2.0**-40, 1.0, 2.0**30):
        q = eight(x * size, largest(x * size), dtype)
        back = q.rows.float() * q.scale / size
        assert ((back - x).abs() <= x.abs() * 2.0**-digits * 1.01).all()
        assert back[0, 0] == 1.0 and back[0, 3] == 0.0 and back[0, 1] == 1 + 2.0 ** (1 - digits)


def test_eight_bits_transposed_are_padded_with_zeros():
    q = eight(torch.randn(5, 3), torch.tensor(4.0), BACKWARD)
    assert q.columns.shape == (3, 16)
    assert torch.equal(q.columns[:, :5].float(), q.rows.float().T) and not q.columns[:, 5:].float().any()


def test_eight_bits_of_zeros_are_zeros():
    q = eight(torch.zeros(16, 16), torch.zeros(()), FORWARD)
    assert torch.equal(q.rows.float() * q.scale, torch.zeros(16, 16))


def near(mine, exact, inputs) -> None:
    """Values and gradients by everything are near, and not the same: eight bits are used."""
    leaves, doubles = [t.clone().requires_grad_() for t in inputs], [t.double().requires_grad_() for t in inputs]
    y, expected = mine(*leaves), exact(*doubles)
    grad = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1)) if expected.ndim else torch.ones(())
    y.backward(grad.to(y.dtype))
    expected.backward(grad.double())
    assert 1e-6 < distance(y, expected) < 0.06
    for number, (a, b) in enumerate(zip(leaves, doubles, strict=True)):
        assert distance(a.grad, b.grad) < 0.12, number


def distance(mine: torch.Tensor, exact: torch.Tensor) -> float:
    return ((mine.double() - exact).norm() / exact.norm()).item()


def test_linear8_and_its_gradients_are_near_exact():
    torch.manual_seed(0)
    near(linear8, F.linear, (torch.randn(3, 7, 48), torch.randn(32, 48) / 7, torch.randn(32)))


@pytest.mark.parametrize("activation", ["gelu", "gelu-tanh"])
def test_feed_forward8_and_its_gradients_are_near_exact(activation):
    torch.manual_seed(0)
    layer = FeedForward(32, 64, activation)
    names = [name for name, _ in layer.named_parameters()]  # of up, then of down

    def mine(x, *p):
        up, down = (SimpleNamespace(weight=weight, bias=bias) for weight, bias in (p[:2], p[2:]))
        return feed_forward8(x, up, down, activation)

    def exact(x, *p):
        return torch.func.functional_call(layer, dict(zip(names, p, strict=True)), (x,))

    near(mine, exact, (torch.randn(2, 9, 32), *(p.detach() for p in layer.parameters())))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_chunked8_loss_and_its_gradients_are_near_exact(smoothing):
    """Two chunks and a part of one, rows of the head that are not words, a target that does not count."""
    torch.manual_seed(0)
    targets = torch.randint(0, 90, (40,))
    targets[5] = -1

    def mine(x, head):
        return _Chunked8.apply(x, head, targets, smoothing, 16, 90)

    def exact(x, head):
        return plain_cross_entropy_sum(x, head, targets, smoothing, vocab=90)

    near(mine, exact, (torch.randn(40, 32), torch.randn(96, 32) / 6))


def test_fp8_is_refused_on_a_cpu():
    with pytest.raises(ConfigError, match=r"8\.9 or higher, got a CPU; type: --set precision=bf16"):
        Fp8(torch.device("cpu"))
    assert not takes8(torch.zeros(16, 16))
