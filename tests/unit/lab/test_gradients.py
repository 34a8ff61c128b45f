"""Gradients against distance: exact Jacobians beside matrix powers and torch's own, and the remedies' own promises."""

import math

import pytest
import torch
from torch import nn
from torch.autograd.functional import jacobian
from torch.func import functional_call

from regard.lab import gradients as g
from regard.lab.figure import draw, style
from regard.lab.recall import Parameters, Recall, StepTime
from regard.lab.report import Measurements
from regard.nn.recurrent import PLAIN_CELLS

close = torch.testing.assert_close
STEPS, INPUTS, WIDTH = 7, 3, 4


def norms_by_distance(jac: torch.Tensor) -> torch.Tensor:
    """D T I -> T, the last input first."""
    return jac.permute(1, 0, 2).flatten(1).norm(dim=1).flip(0)


def reach_of(cell, x):
    return g.reach(lambda rows: g.last_state(cell, rows), x)


def inputs(steps=STEPS, width=INPUTS):
    return torch.randn(steps, width, dtype=torch.float64)


def test_linear_gradient_is_a_matrix_power():
    cell = g.scaled(g.LinearRNN, 1.5).double()
    with torch.no_grad():
        nn.init.orthogonal_(cell.weight_ih)  # turns, and changes no norm
    got = reach_of(cell, inputs(30, g.WIDTH))
    expected = torch.stack([torch.linalg.matrix_power(cell.weight_hh, k).norm() for k in range(30)])
    close(got, expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize(("kind", "layer"), [("rnn", nn.RNN), ("gru", nn.GRU), ("lstm", nn.LSTM)])
def test_cells_agree_with_the_jacobian_of_torchs_layers(kind, layer):
    cell, x = PLAIN_CELLS[kind](INPUTS, WIDTH).double(), inputs()
    theirs = layer(INPUTS, WIDTH, batch_first=True).double()
    theirs.load_state_dict({f"{name}_l0": p for name, p in cell.state_dict().items()})
    close(reach_of(cell, x), norms_by_distance(jacobian(lambda x: theirs(x[None])[0][0, -1], x)))


def test_tanh_cell_and_layer_norm_equal_torchs():
    x, norm = inputs(), nn.LayerNorm(WIDTH).double()
    for kind, between in ((g.Elman, nn.Identity()), (g.NormRNN, norm)):
        cell = kind(INPUTS, WIDTH).double()

        def last(x, cell=cell, between=between):
            h = torch.zeros(WIDTH, dtype=x.dtype)
            for step in x:
                h = torch.tanh(between(cell.weight_ih @ step + cell.weight_hh @ h))
            return h

        close(reach_of(cell, x), norms_by_distance(jacobian(last, x)))


@pytest.mark.parametrize("arch", ["rnn", "lstm", "gpt", "llama", "mlp", "conv3"])
def test_models_agree_with_the_gradient_of_their_table_of_words(arch, shake):
    """Each token stands once, so its row of the table is its input."""
    model = shake(g.tiny_model(arch, 6, vocab=10, layers=2)).double().eval()
    ids = torch.tensor([4, 9, 1, 7, 0, 2])

    def last(table):
        return functional_call(model, {"token.weight": table}, (ids[None],))[0, -1]

    table = jacobian(last, model.token.weight.detach())  # D V I
    close(g.model_reach(model, ids), norms_by_distance(table[:, ids]))


def test_tiny_gradients_do_not_underflow():
    cell = g.LinearRNN(WIDTH, WIDTH).double()
    with torch.no_grad():
        cell.weight_hh.copy_(0.01 * torch.eye(WIDTH))
        nn.init.eye_(cell.weight_ih)
    got = reach_of(cell, inputs(150, WIDTH))
    close(got.log10(), math.log10(math.sqrt(WIDTH)) - 2 * torch.arange(150, dtype=torch.float64))


def test_many_inputs_are_asked_in_parts(monkeypatch):
    cell, x = g.Elman(INPUTS, WIDTH).double(), inputs()
    whole = reach_of(cell, x)
    monkeypatch.setattr(g, "AT_ONCE", STEPS)  # one number of the state at a time
    close(reach_of(cell, x), whole)


def test_factor_per_step_fits_a_geometric_sequence():
    row = 3 * 0.8 ** torch.arange(50, dtype=torch.float64)
    assert g.step_factor(row) == pytest.approx(0.8)
    row[0], row[40:] = 1000.0, 0.0  # distance 0 does not count either
    assert g.step_factor(row) == pytest.approx(0.8)
    assert g.step_factor(torch.zeros(50)) == 0.0


def decay(name, far, steps=20):
    return g.Decay(name, [far ** ((k - 1) / (steps - 1)) for k in range(steps + 1)], g.summarise([far]))


@pytest.mark.parametrize(
    ("far", "fate"), [(1e-3, "vanishes"), (0.02, "persists"), (50.0, "persists"), (1e3, "explodes")]
)
def test_what_becomes_of_a_gradient_is_read_off_its_end(far, fate):
    row = decay("x", far)
    assert row.fate == fate
    assert (row.at(1), row.at(20)) == pytest.approx((1.0, far))


def test_seed_repeats_numbers_and_leaves_the_global_rng_alone():
    before = torch.random.get_rng_state()
    one, same, other = (g.radii(10, seed)[0] for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert one == same and one != other


# -- remedies -----------------------------------------------------------------------------------------------------


def test_scaling_gives_the_radius_asked_for():
    for radius in g.RADII:
        most = torch.linalg.eigvals(g.scaled(g.Elman, radius).weight_hh).abs().max().item()
        assert most == pytest.approx(radius, rel=1e-4)


def test_identity_init_relu_keeps_the_gradient():
    cell = g.ReluRNN(WIDTH, WIDTH).double()
    with torch.no_grad():
        cell.weight_ih.abs_()
    got = reach_of(cell, inputs(20, WIDTH).abs())
    close(got, got[:1].expand(20))


def test_layer_norm_does_not_care_how_large_the_weights_are():
    """Ba et al. 2016, table 1: invariant to re-scaling the weight matrix."""
    cell, x = g.NormRNN(INPUTS, WIDTH).double(), 10 * inputs()
    small = reach_of(cell, x)
    with torch.no_grad():
        cell.weight_ih.mul_(7)
        cell.weight_hh.mul_(7)
    close(reach_of(cell, x), small, rtol=1e-4, atol=1e-6)


def test_lstm_for_n_steps_forgets_one_nth_a_step():
    cell = g.gated(g.PlainLSTM, steps=100)
    i, f, new, out = cell.bias_ih.chunk(4)
    span = 1 / (1 - f.sigmoid())  # how long a unit keeps what it has
    assert span.min() >= 1 and span.max() <= 101 and span.max() > 50
    close(i.sigmoid(), 1 - f.sigmoid())
    assert not new.any() and not out.any() and not cell.bias_hh.any()
    ones = g.gated(g.PlainLSTM, forget=1.0)
    close(ones.bias_ih.chunk(4)[1], torch.ones(g.WIDTH))
    assert ones.bias_ih.sum() == g.WIDTH


def test_what_the_table_says_of_each_remedy():
    """The order of things over 40 steps, with a margin of an order of magnitude."""
    none, relu, norm, gru, lstm, set_, gpt = g.remedies(40, seed=0)
    assert [f.fate for f in (none, norm, gru, lstm)] == ["vanishes"] * 4
    assert [f.fate for f in (relu, set_, gpt)] == ["persists"] * 3
    assert 10 * none.at(40) < norm.at(40) and 10 * norm.at(40) < lstm.at(40) and 10 * none.at(40) < gru.at(40)
    assert 10 * lstm.at(40) < set_.at(40)
    assert all(0.3 < gpt.at(k) < 3 for k in range(1, 41))


def test_the_radius_is_the_factor_a_step_and_tanh_lowers_it():
    rows = {f.name: f.step.mean for f in g.radii(60, seed=0)}
    for radius in (0.5, 1, 1.5):
        assert rows[f"linear, radius {radius:g}"] == pytest.approx(radius, rel=0.02)
        assert rows[f"tanh, radius {radius:g}"] < 0.9 * radius
    assert rows["tanh, radius 3"] > 1.1 > rows["layer norm, radius 3"]


def test_clipping_makes_the_gradient_small_and_brings_nothing_back():
    weak, wild = g.clipping(60, seed=0)
    assert wild.before > 1e3 and wild.after == pytest.approx(g.LIMIT, rel=1e-4)
    assert weak.far_before < 1e-15 and weak.far_after == pytest.approx(weak.far_before)
    assert wild.far_after == pytest.approx(wild.far_before) and wild.far_before > 1e3


# -- the picture --------------------------------------------------------------------------------------------------


def test_every_line_has_a_colour_or_mark_and_a_dash_of_its_own():
    lines = [style(i) for i in range(9)]
    assert len({(line["linestyle"], line["marker"]) for line in lines}) == 9  # told apart without colour
    assert len({(line["color"], line["linestyle"]) for line in lines}) == 9


@pytest.mark.parametrize("more", [False, True], ids=["gradients", "everything"])
def test_the_picture_has_a_panel_for_each_thing_measured(tmp_path, more):
    groups = {"models": [decay("rnn", 1e-60), decay("gpt", 1.0)], "remedies": [decay("none", 1e-60)]}
    recalls = [Recall("rnn", False, {5: 1.0, 10: 0.1}, {5: 20, 10: 200}), Recall("rnn", True, {5: 1.0}, {5: 20})]
    costs, times = [Parameters("mlp", {5: 100, 10: 200})], [StepTime("rnn", {64: 0.01, 128: 0.02})]
    measured = Measurements(**groups, memory=recalls * more, weights=costs * more, speed=times * more)
    path = draw(measured, tmp_path / "all.svg")
    text = path.read_text()
    for panel in ("recall after training", "parameters needed for a distance", "time of a step"):
        assert (f"<!-- {panel}" in text) == more, panel
    for words in ("untrained networks", "remedies", "rnn", "gpt", "float32 ends"):
        assert f"<!-- {words} -->" in text, words
