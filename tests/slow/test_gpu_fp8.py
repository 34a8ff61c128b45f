"""Training with eight-bit floats on a GPU: kernels against their plain counterparts, and a model that learns."""

import pytest
import torch

from regard.data.batch import Tokens
from regard.models import build, config_for
from regard.nn import fp8
from regard.objectives import losses
from regard.objectives.next_token import NextToken
from regard.training.optim import Optimiser
from regard.training.precision import PRECISIONS
from regard.training.settings import Optim

HERE = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 9)
pytestmark = pytest.mark.skipif(not HERE, reason="no GPU with fp8 here")


def same(mine: fp8.Eight, plain: fp8.Eight, rows: int) -> None:
    """Equal but for the rounding of a number in a thousand; the transposed half is the other one."""
    assert mine.scale == plain.scale
    for a, b in ((mine.rows, plain.rows), (mine.columns, plain.columns)):
        assert a.shape == b.shape and (a.float() != b.float()).float().mean() < 1e-3
        assert (a.float() - b.float()).norm() < 5e-3 * b.float().norm()
    assert torch.equal(mine.rows.float().T, mine.columns[:, :rows].float()) and not mine.columns[:, rows:].float().any()
    if plain.sums is not None:
        torch.testing.assert_close(mine.sums / mine.scale, plain.sums / plain.scale, atol=100.0, rtol=1e-3)


@pytest.mark.parametrize("shape", [(1000, 208), (16, 16), (130, 3072)])
@pytest.mark.parametrize("dtype", [fp8.FORWARD, fp8.BACKWARD])
@pytest.mark.parametrize("size", [1e-6, 1.0])
def test_eight_bits_by_the_kernel_are_the_plain_ones(shape, dtype, size):
    torch.manual_seed(0)
    x = (torch.randn(shape, device="cuda") * size).bfloat16()
    same(fp8.eight(x, fp8.largest(x), dtype), fp8.plain_eight(x, fp8.largest(x), dtype), shape[0])


@pytest.mark.parametrize("activation", ["gelu", "gelu-tanh"])
def test_eight_bits_of_activations_are_the_plain_ones(activation, monkeypatch):
    torch.manual_seed(0)
    h, da = (torch.randn(300, 208, device="cuda").bfloat16() for _ in range(2))
    bias, top = torch.randn(208, device="cuda"), torch.tensor(9.0, device="cuda")
    mine = fp8.activated(h, bias, activation, top), fp8.activated_grad(da, h, bias, activation, top)
    monkeypatch.setattr(fp8, "TRITON", False)
    plain = fp8.activated(h, bias, activation, top), fp8.activated_grad(da, h, bias, activation, top)
    for a, b in zip(mine, plain, strict=True):
        same(a, b, 300)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_softmax_error_in_eight_bits_is_the_plain_one(smoothing, monkeypatch):
    torch.manual_seed(0)
    logits = (3 * torch.randn(150, 9024, device="cuda")).bfloat16()
    targets = torch.randint(0, 9000, (170,), device="cuda")
    targets[17] = -1
    loss, error = losses._loss_and_error8(logits.clone(), targets, 10, smoothing, 9000)
    monkeypatch.setattr(losses, "TRITON", False)
    plain_loss, plain = losses._loss_and_error8(logits, targets, 10, smoothing, 9000)
    torch.testing.assert_close(loss, plain_loss, atol=1e-4, rtol=1e-4)
    assert (error.rows.float() - plain.rows.float()).norm() < 0.02 * plain.rows.float().norm()
    assert torch.equal(error.rows.float().T, error.columns[:, :150].float())


def test_products_of_eight_bits_are_the_exact_ones_of_their_numbers():
    torch.manual_seed(0)
    a, b, bias = torch.randn(70, 96, device="cuda"), torch.randn(48, 96, device="cuda"), torch.randn(48, device="cuda")
    a8, b8 = fp8.eight(a, fp8.largest(a), fp8.BACKWARD), fp8.forward8(b)
    expected = (a8.rows.double() * a8.scale) @ (b8.rows.double() * b8.scale).T + bias.double()
    for fast in (False, True):
        got = fp8.product(a8.rows, a8.scale, b8.rows, b8.scale, bias, fast=fast)
        assert (got.double() - expected).norm() < 5e-3 * expected.norm()


@pytest.mark.parametrize("compiled", [False, True])
def test_a_model_learns_in_fp8_what_it_learns_in_bf16(compiled):
    ids = torch.arange(33).repeat(16, 1) * torch.arange(1, 17)[:, None] % 97  # every row counts in steps of its own
    curves = {}
    for name in ("bf16", "fp8"):
        torch.manual_seed(0)
        torch._dynamo.reset()
        model = build(config_for("gpt", "tiny", 112, task="lm", context=32, dropout=0.0)).cuda().train()
        optimiser, objective, batch = Optimiser(model, Optim(lr=1e-3)), NextToken(), Tokens(ids=ids).to("cuda")
        precision = PRECISIONS[name](torch.device("cuda"))
        if compiled:
            objective.compile()
        curves[name] = []
        for _ in range(100):
            with precision:
                loss = objective.loss_sum(model, batch) / batch.count
            loss.backward()
            optimiser.update(loss.detach())
            curves[name].append(loss.item())
    first, last = ([curves[name][i] for name in ("bf16", "fp8")] for i in (0, -1))
    assert first[0] != first[1] and abs(first[0] - first[1]) < 0.02, first
    assert last[1] < 1.0 and abs(last[0] - last[1]) < 0.1, last
