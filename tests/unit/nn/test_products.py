"""oneDNN's products are those of float64, values and gradients, and are used only where they are faster."""

import pytest
import torch
import torch.nn.functional as F

from regard.nn import products
from regard.nn.linear import Linear
from regard.nn.products import SETTING, WORTH, FastLinear, by_amd, fast_linear, fast_products, in_blocks, takes_fast

needs_setting = pytest.mark.skipif(
    not hasattr(SETTING, "fp32_precision") or torch.cpu._is_amx_tile_supported(),
    reason="this torch cannot choose, or this processor would round to bf16",
)


@pytest.fixture
def faster(monkeypatch):
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)


def results(product, *inputs):
    inputs = [None if x is None else x.clone().requires_grad_() for x in inputs]
    y = product(*inputs)
    (y * torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).view_as(y)).sum().backward()
    return [y.detach().double(), *(x.grad.double() for x in inputs if x is not None)]


@needs_setting
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(300, 64), (20, 15, 64)], ids=str)
def test_values_and_gradients_are_those_of_float64(faster, shape, bias):
    g = torch.Generator().manual_seed(0)
    x, weight = torch.randn(shape, generator=g), torch.randn(256, 64, generator=g)
    b = torch.randn(256, generator=g) if bias else None
    exact = results(F.linear, *(z if z is None else z.double() for z in (x, weight, b)))
    for got, want in zip(results(fast_linear, x, weight, b), exact, strict=True):
        assert (got - want).norm() < 1e-6 * want.norm()


def test_rows_are_filled_up_to_whole_blocks():
    assert in_blocks(torch.ones(64, 2)).shape == (64, 2)
    filled = in_blocks(torch.ones(65, 2, dtype=torch.long), -1)
    assert filled.shape == (128, 2)
    assert (filled[:65] == 1).all()
    assert (filled[65:] == -1).all()
    assert in_blocks(torch.ones(3)).tolist() == [1.0] * 3 + [0.0] * 61


def test_a_frozen_weight_costs_no_gradient(faster):
    x, weight = torch.randn(300, 64, requires_grad=True), torch.randn(256, 64)
    FastLinear.apply(x, weight, None).sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(0).expand(300, -1), rtol=1e-4, atol=1e-4)
    assert weight.grad is None


def test_a_layer_takes_it_for_large_products_in_training_only(faster, monkeypatch):
    calls = []
    monkeypatch.setattr("regard.nn.linear.fast_linear", lambda x, *rest: (calls.append(x.shape), F.linear(x, *rest))[1])
    layer, x = Linear(128, 128), torch.randn(1024, 128)
    layer(x)
    assert calls == [x.shape], "1,024 rows of 128 by 128 are just enough"
    layer(x[:1023])
    layer.double()(x.double())
    with torch.no_grad():
        layer.float()(x)
    with torch.autocast("cpu", torch.bfloat16):
        layer(x)
    assert calls == [x.shape]
    monkeypatch.setattr(products, "onednn_is_faster", lambda: False)
    assert not takes_fast(x, layer.weight)


@needs_setting
def test_the_setting_is_torchs_again_after_the_block(faster, monkeypatch):
    before = SETTING.fp32_precision
    seen = []

    def fail():
        with fast_products():
            seen.append(SETTING.fp32_precision)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert seen == ["bf16"]
    with fast_products(WORTH - 1):
        assert SETTING.fp32_precision == before, "small products are not worth it"
    assert SETTING.fp32_precision == before
    monkeypatch.setattr(products, "onednn_is_faster", lambda: False)
    with fast_products():
        assert SETTING.fp32_precision == before


def test_the_maker_of_a_processor_is_read(tmp_path):
    for maker, expected in (("AuthenticAMD", True), ("GenuineIntel", False)):
        (tmp_path / maker).write_text(f"processor\t: 0\nvendor_id\t: {maker}\ncpu family\t: 25\n")
        assert by_amd(tmp_path / maker) is expected
    (tmp_path / "arm").write_text("processor\t: 0\n")
    assert not by_amd(tmp_path / "arm")
    assert not by_amd(tmp_path / "missing")
