"""Int8 beside whole-number arithmetic, beside torch's own dynamic quantisation, and a row beside itself in company."""

import pytest
import scipy.linalg
import torch
import torch.nn.functional as F
from torch import nn

from regard.errors import ConfigError
from regard.nn import quantised
from regard.nn.quantised import W_LEVELS, X_LEVELS, Int8Linear, Product, WideProduct, hadamard, has_vnni, turn

close = torch.testing.assert_close

pytestmark = pytest.mark.skipif(torch.backends.quantized.engine not in ("x86", "fbgemm"), reason="for x86 only")


def stand_out(x: torch.Tensor) -> torch.Tensor:
    """A few columns much larger than the rest, always the same ones: so do the inputs of trained layers look."""
    x = x.clone()
    x[..., 7::250] *= 40.0
    return x


def error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return ((got - wanted).norm() / wanted.norm()).item()


# the products

needs_vnni = pytest.mark.skipif(not has_vnni(), reason="oneDNN adds in 16 bits on this CPU")
both = pytest.mark.parametrize("kind", [Product, pytest.param(WideProduct, marks=needs_vnni)])


@both
@pytest.mark.parametrize(("rows", "depth"), [(9, 1), (9, 5), (9, 64), (9, 3072), (65, 128), (640, 33)])
def test_sums_are_exact_whatever_the_numbers(kind, rows, depth):
    """The largest numbers first: in 16 bits two of their products must not overflow."""
    x = torch.randint(-kind.x_levels, kind.x_levels + 1, (rows, depth))
    w = torch.randint(-kind.w_levels, kind.w_levels + 1, (13, depth))
    x[0], x[1], w[0], w[1] = kind.x_levels, -kind.x_levels, kind.w_levels, -kind.w_levels
    most = torch.full((rows, 1), float(kind.x_levels))
    got = kind(w.to(torch.int8), torch.ones(13))(x.float(), most) * most
    close(got.double(), (x @ w.T).double(), rtol=3e-7, atol=0.0)  # float32 of whole numbers


@both
def test_every_output_and_every_row_has_its_own_scale(kind):
    w, scale = torch.randint(-kind.w_levels, kind.w_levels + 1, (5, 16)), torch.tensor([0.0, 1e-6, 1.0, 3.0, 1e6])
    x = torch.randint(-kind.x_levels, kind.x_levels + 1, (2, 3, 16)) / kind.x_levels
    most = torch.logspace(-3, 3, 6).view(2, 3, 1)
    expected = F.linear(x.double(), w * scale[:, None].double()).float()
    close(kind(w.to(torch.int8), scale)(x * most, most), expected)


@both
@pytest.mark.parametrize("shape", [(0, 16), (2, 0, 16)])
def test_there_may_be_no_rows(kind, shape):
    product = kind(torch.randint(-91, 92, (5, 16)).to(torch.int8), torch.ones(5))
    assert product(torch.randn(shape), torch.ones(*shape[:-1], 1)).shape == (*shape[:-1], 5)


def test_two_products_fit_in_16_bits():
    """Some machines never overflow, so that the test above cannot notice there; all of them get the same numbers."""
    assert 2 * (2 * X_LEVELS) * W_LEVELS < 2**15


# turning


@pytest.mark.parametrize("size", [1, 2, 16, 64])
def test_the_matrix_is_hadamards(size):
    assert hadamard(size).tolist() == scipy.linalg.hadamard(size).tolist()


def test_turning_is_the_matrix_product_and_its_sums_are_exact():
    x = stand_out(torch.randn(7, 3, 256)) * torch.logspace(-20, 20, 7)[:, None, None]
    got = turn(x, hadamard(64))
    exact = (x.double().view(7, 3, 4, 64) @ hadamard(64).double()).view(7, 3, 256)
    assert error(got, exact) < 2e-4
    shuffled = torch.randperm(64)  # another order of adding
    again = turn(x.view(-1, 64)[:, shuffled].view(7, 3, 256), hadamard(64)[shuffled])
    assert torch.equal(got, again)


# the map


@pytest.mark.parametrize(("width", "out"), [(768, 2304), (100, 33), (576, 64), (3, 5), (384, 3072)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("vnni", [False, pytest.param(True, marks=needs_vnni)])
def test_it_is_nearly_the_linear_map(width, out, bias, vnni, monkeypatch):
    monkeypatch.setattr(quantised, "has_vnni", lambda: vnni)
    linear = nn.Linear(width, out, bias=bias)
    x = torch.randn(4, 6, width)
    expected = linear(x)
    got = Int8Linear.from_linear(linear.weight, linear.bias)(x)
    assert got.shape == expected.shape and not got.requires_grad
    assert error(got, expected) < 0.02


@pytest.mark.filterwarnings("ignore")
def test_turning_helps_where_numbers_stand_out(monkeypatch):
    """Far closer than one scale for a row without it, and than torch's own int8, which has one for all rows."""
    linear, x = nn.Linear(768, 256), stand_out(torch.randn(64, 768))
    with torch.no_grad():
        linear.weight[:, 7::250] /= 20.0  # as training does to such columns: what stands out is not all that counts
    ours = Int8Linear.from_linear(linear.weight, linear.bias)
    monkeypatch.setattr(quantised, "BLOCK", 1)
    unturned = Int8Linear.from_linear(linear.weight, linear.bias)
    theirs = torch.ao.quantization.quantize_dynamic(nn.Sequential(linear), {nn.Linear}, torch.qint8)
    actual = [error(f(x), linear(x)) for f in (ours, unturned, theirs)]
    assert actual[0] < 0.08 and actual[0] < min(actual[1:]) / 2


@pytest.mark.parametrize(
    ("width", "out", "threads"), [(256, 768, 1), (100, 33, 1), (3072, 64, 1), (192, 4097, 1), (192, 4097, 2)]
)
def test_company_changes_no_bit(width, out, threads):
    ours = Int8Linear.from_linear(torch.randn(out, width), torch.randn(out))
    x = stand_out(torch.randn(64, width)) * torch.logspace(-3, 3, 64)[:, None]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        together = ours(x)
        for row in (0, 20, 41, 63):
            for size in (1, 2, 7):
                start = min(row, 64 - size)
                assert torch.equal(ours(x[start : start + size]), together[start : start + size])
        assert torch.equal(ours(x.view(4, 16, width)).flatten(0, 1), together)
        assert torch.equal(ours(x.T.contiguous().T), together)  # another layout in memory
    finally:
        torch.set_num_threads(before)


def test_rows_of_zeros_and_of_nan_are_their_own_business():
    ours = Int8Linear.from_linear(torch.randn(33, 64), torch.randn(33))
    x = torch.randn(4, 64)
    expected = ours(x)
    x[1], x[2, 5], x[3, 7] = 0.0, torch.nan, torch.inf
    got = ours(x)
    assert torch.equal(got[0], expected[0]) and torch.equal(got[1], ours.bias)
    assert got[2:].isnan().all()


def test_one_vector_no_rows_half_precision_and_weights_of_zero():
    ours = Int8Linear.from_linear(torch.zeros(3, 8), torch.arange(3.0))
    assert ours(torch.randn(8)).tolist() == [0, 1, 2]
    assert ours(torch.randn(0, 8)).shape == (0, 3)
    assert ours(torch.randn(2, 8).bfloat16()).dtype == torch.bfloat16
    assert ours(torch.randn(2, 8)).tolist() == [[0, 1, 2]] * 2


def test_it_refuses_to_be_differentiated():
    ours = Int8Linear.from_linear(torch.randn(3, 8))
    with pytest.raises(ConfigError, match="no gradients"):
        ours(torch.randn(2, 8, requires_grad=True))
    with torch.no_grad():
        assert ours(torch.randn(2, 8, requires_grad=True)).shape == (2, 3)


def test_other_machines_are_told(monkeypatch):
    with pytest.raises(ConfigError, match="for CPUs"):
        Int8Linear.from_linear(torch.empty(3, 8, device="meta"))
    monkeypatch.setattr(torch.backends.quantized, "engine", "qnnpack")
    monkeypatch.setattr(quantised, "has_vnni", lambda: False)
    with pytest.raises(ConfigError, match="AVX2"):
        Int8Linear.from_linear(torch.randn(3, 8))
