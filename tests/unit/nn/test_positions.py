"""The position tables, number by number from section 3.5 of the paper."""

import math

import pytest
import torch

from regard.nn.masks import Causal, Everything
from regard.nn.positions import (
    FIRST,
    POSITIONS,
    Alibi,
    Interleaved,
    Learned,
    NoPositions,
    Rotary,
    Sinusoidal,
    Stretch,
    StretchedRotary,
    rates,
    rotate,
    slopes,
)

close = torch.testing.assert_close


@pytest.mark.parametrize("width", [6, 7])
def test_interleaved_is_the_printed_formula(width):
    table = Interleaved(50, width).table
    for p in (0, 1, 2, 49):
        for column in range(width):
            angle = p / 10000 ** (2 * (column // 2) / width)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert table[p, column].item() == pytest.approx(expected, abs=1e-6)


def test_sines_come_first_in_the_other_layout():
    table = Sinusoidal(10, 6).table
    close(table[3, :3], torch.tensor([math.sin(3 / 10000 ** (2 * i / 6)) for i in range(3)]))
    close(table[3, 3:], torch.tensor([math.cos(3 / 10000 ** (2 * i / 6)) for i in range(3)]))


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_are_looked_up_in_any_order_and_shape(name):
    places = POSITIONS[name](9, 4)
    where = torch.tensor([[0, 3], [8, 3]])
    got = places(where)
    assert got.shape == (2, 2, 4)
    close(got[0, 1], got[1, 1])
    close(got[1, 0], places(torch.tensor(8)))
    if name != "none":
        assert (got[0, 0] - got[0, 1]).abs().max() > 1e-3


def test_only_learned_positions_are_trained_or_saved():
    assert {n: len(list(p(9, 4).parameters())) for n, p in POSITIONS.items()} == {
        "none": 0,
        "sinusoidal": 0,
        "interleaved": 0,
        "learned": 1,
    }
    assert not Sinusoidal(9, 4).state_dict() and not NoPositions(9, 4).state_dict()
    assert list(Learned(9, 4).state_dict()) == ["table"]
    assert NoPositions(9, 4)(torch.arange(3)).abs().max() == 0


@pytest.mark.parametrize("width", [4, 5])
def test_learned_positions_may_start_as_sinusoids(width):
    places = Learned(9, width)
    places.start_as_waves()
    angles = [[p / 10000 ** (2 * i / width) for i in range((width + 1) // 2)] for p in range(9)]
    expected = [[*map(math.sin, row), *map(math.cos, row[: width // 2])] for row in angles]
    close(places.table, torch.tensor(expected))
    assert places.table.requires_grad


def test_rotary_turns_pairs_by_the_printed_angle():
    """Su et al. 2021, equation 15, with pair i made of columns i and i + K/2."""
    x, K = torch.randn(1, 1, 9, 6, dtype=torch.float64), 6
    got = rotate(x, Rotary(9, K, 100.0).double()(torch.arange(9)))
    for place in range(9):
        for i in range(3):
            angle = place / 100 ** (2 * i / K)
            a, b = x[0, 0, place, i].item(), x[0, 0, place, i + 3].item()
            assert got[0, 0, place, i].item() == pytest.approx(a * math.cos(angle) - b * math.sin(angle), abs=1e-6)
            assert got[0, 0, place, i + 3].item() == pytest.approx(a * math.sin(angle) + b * math.cos(angle), abs=1e-6)


def test_rotated_products_know_distances_only():
    rotary, q, k = Rotary(64, 8).double(), torch.randn(8).double(), torch.randn(8).double()

    def product(i, j):
        where = torch.tensor([i, j])
        turned = rotate(torch.stack((q, k))[None, None], rotary(where))[0, 0]
        return turned[0] @ turned[1]

    close(product(3, 1), product(42, 40), rtol=0, atol=1e-5)
    assert (product(3, 1) - product(3, 2)).abs() > 1e-3


@pytest.mark.parametrize(("turns", "share"), [(16.0, 1.0), (2.0, 1 / 3 + 2 / 3 / 8), (0.5, 1 / 8)])
def test_slow_waves_are_stretched(turns, share):
    """A wave of 16 turns keeps its pace, one of half a turn is 8 times slower, one of 2 turns in between."""
    tokens = 2 * math.pi * turns / rates(6, 10.0)[1].item()  # in which the second wave makes so many turns
    stretched = StretchedRotary(8, 6, 10.0, Stretch(factor=8.0, low=1.0, high=4.0, context=tokens))
    assert stretched.rates()[1].item() == pytest.approx(rates(6, 10.0)[1].item() * share)


def test_every_row_may_stand_elsewhere():
    rotary, x = Rotary(20, 4), torch.randn(2, 3, 5, 4)
    where = torch.stack((torch.arange(5), torch.arange(7, 12)))
    together = rotate(x, rotary(where))
    for b in range(2):
        close(together[b], rotate(x[b : b + 1], rotary(where[b]))[0])


def test_slopes_are_those_of_the_paper():
    """Press et al. 2022, section 3: 1/2 … 1/256 for 8 heads; for 12, every second of 16's follow those of 8."""
    powers = {8: range(1, 9), 16: [n / 2 for n in range(1, 17)], 12: [*range(1, 9), 0.5, 1.5, 2.5, 3.5], 1: [8]}
    for heads, expected in powers.items():
        assert slopes(heads).tolist() == pytest.approx([2.0**-n for n in expected], rel=1e-14)


@pytest.mark.parametrize("heads", [1, 2, 6, 8, 12, 20])
def test_slopes_are_those_of_the_public_models(heads):
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    theirs = bloom.build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)  # slope times place of the key
    close(slopes(heads).float(), theirs[:, 0, 1])


def test_the_lean_is_the_slope_times_the_distance():
    alibi = Alibi(2)
    bias = alibi(Causal(3), torch.arange(3), torch.arange(3)).bias()
    assert bias.shape == (1, 2, 3, 3)
    close(bias[0, 0].tril(), -(2.0**-4) * torch.tensor([[0.0, 0, 0], [1, 0, 0], [2, 1, 0]]))
    rows = alibi(Everything(), torch.tensor([[4], [2]]), torch.arange(5)).bias()  # each row at its own place
    close(rows[:, 1, 0], -(2.0**-8) * torch.tensor([[4.0, 3, 2, 1, 0], [2, 1, 0, 1, 2]]))


@pytest.mark.parametrize(("make", "wave"), [(Sinusoidal, math.sin), (Rotary, math.cos)])
def test_a_table_of_waves_grows_to_the_text_and_not_to_the_claim(make, wave):
    claimed = make(2**31 - 1, 6)
    assert {len(table) for table in claimed.buffers()} == {FIRST}, "2^31 places cost as much as a few thousand"
    with torch.inference_mode():
        claimed.reach(FIRST + 1)
    table = next(claimed.buffers())
    assert not table.is_inference(), "training needs it too"
    for place in (0, 5, FIRST - 1, FIRST, 2 * FIRST - 1):
        assert table[place, 0].item() == pytest.approx(wave(place), abs=1e-6)


def test_a_table_of_waves_never_exceeds_its_places():
    table = Sinusoidal(FIRST + 7, 4)
    table.reach(FIRST + 1)
    assert len(table.table) == FIRST + 7
