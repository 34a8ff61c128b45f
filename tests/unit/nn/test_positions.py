"""The position tables, number by number from section 3.5 of the paper."""

import math

import pytest
import torch

from regard.nn.positions import POSITIONS, Interleaved, Learned, NoPositions, Sinusoidal

close = torch.testing.assert_close


@pytest.mark.parametrize("width", [6, 7])
def test_interleaved_is_the_printed_formula(width):
    table = Interleaved(50, width).table
    for p in (0, 1, 2, 49):
        for column in range(width):
            angle = p / 10000 ** (2 * (column // 2) / width)
            want = math.cos(angle) if column % 2 else math.sin(angle)
            assert table[p, column].item() == pytest.approx(want, abs=1e-6)


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
