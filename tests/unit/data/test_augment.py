"""Pictures changed by chance: each change against a loop over single pictures, or a table worked out by hand."""

import numpy as np
import pytest
import torch

from regard.data.augment import (
    COLOURS,
    SHAPES,
    Augment,
    augmented,
    cropped,
    cut_in,
    erased,
    operated,
    recoloured,
    warped,
)
from regard.errors import ConfigError


def pictures(B=6, C=3, side=8, seed=0):
    return torch.randint(0, 256, (B, C, side, side), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def still(names, B=4):
    return {name: torch.zeros(B, 1, 1, 1) if names is COLOURS else torch.zeros(B) for name in names}


def test_a_crop_is_a_window_of_the_padded_picture():
    x = pictures(B=40)
    actual = cropped(x, 2, draw())
    wide = torch.nn.functional.pad(x, (2,) * 4)
    starts = set()
    for a, b in zip(wide, actual, strict=True):
        fitting = [(i, j) for i in range(5) for j in range(5) if torch.equal(a[:, i : i + 8, j : j + 8], b)]
        assert len(fitting) == 1
        starts.update(fitting)
    assert len(starts) > 12  # of 25


def test_flips_are_mirrors_half_of_the_time():
    x, labels = pictures(B=400), torch.zeros(400).long()
    actual, _ = augmented(x, labels, 2, Augment(flip=True), np.random.default_rng(0))
    mirrored = (actual == x.flip(3)).flatten(1).all(1)
    assert (mirrored | (actual == x).flatten(1).all(1)).all()
    assert abs(mirrored.float().mean() - 0.5) < 4 * 0.5 / 20  # four standard deviations


def test_augment_depends_on_the_seed_alone():
    every = Augment(crop=0.1, flip=True, operations=2, erase=0.5, mixup=0.4, cutmix=1.0)
    x, labels = pictures(), torch.arange(6) % 3
    one, two, other = (augmented(x, labels, 3, every, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(one[0], two[0]) and torch.equal(one[1], two[1])
    assert not torch.equal(one[0], other[0])
    assert one[0].dtype == torch.uint8 and one[0].shape == x.shape


def test_mixed_pictures_are_blends_and_labels_tell_the_shares():
    x, labels = pictures(), torch.tensor([0, 1, 2, 2, 0, 0])
    actual, shares = augmented(x, labels, 3, Augment(mixup=0.8), np.random.default_rng(3))
    keep = float(shares[0, 0]) if labels[5] != 0 else float(shares[1, 1])  # picture 1 has label 1, its partner 4 has 0
    expected = (keep * x.float() + (1 - keep) * x.flip(0).float()).round()
    assert (actual.float() - expected).abs().max() <= 1 and 0 < keep < 1
    assert torch.allclose(shares.sum(1), torch.ones(6)) and shares[1, 0] == pytest.approx(1 - keep)


def test_a_cut_in_keeps_the_share_it_tells():
    x = pictures(side=16)
    x[3:] = 255 - x[:3].flip(0)  # every pixel differs from its partner's
    for seed in range(20):
        actual, keep = cut_in(x, 0.7, np.random.default_rng(seed))
        assert (actual == x).float().mean() == pytest.approx(keep)
        taken = actual != x
        assert torch.equal(actual[taken], x.flip(0)[taken])


def test_an_erased_rectangle_is_one_rectangle_of_the_promised_size():
    x = torch.zeros(200, 1, 24, 24, dtype=torch.uint8)
    actual = erased(x, 1.0, draw())
    for picture in actual[:, 0]:
        rows, columns = picture.amax(1).nonzero(), picture.amax(0).nonzero()
        high, wide = (int(t.max() - t.min()) + 1 for t in (rows, columns))
        assert 0.01 <= high * wide / 24**2 <= 0.40 and (picture == 0).float().mean() < 1
    often = (erased(x, 0.25, draw()).flatten(1).amax(1) > 0).float().mean()
    assert abs(often - 0.25) < 4 * (0.25 * 0.75 / 200) ** 0.5


def test_no_operation_leaves_a_picture_as_it_is():
    x = pictures(B=4).float()
    assert torch.allclose(warped(x, still(SHAPES)), x, atol=1e-2)
    assert torch.allclose(recoloured(x, still(COLOURS)), x, atol=1e-2)


def test_a_shift_moves_by_its_part_of_the_side_and_a_turn_turns():
    x = torch.zeros(1, 1, 20, 20)
    x[0, 0, 10, 4] = 200
    right = warped(x, still(SHAPES, 1) | {"shift_x": torch.ones(1)})  # what is seen at x comes from x + 0.3 side
    assert (right[0, 0] > 100).nonzero().tolist() == [] and warped(x, still(SHAPES, 1) | {"shift_x": -torch.ones(1)})[
        0, 0, 10, 10
    ] == pytest.approx(200, abs=1)
    middle = torch.zeros(1, 1, 21, 21)
    middle[0, 0, 10, :] = 200
    turned = warped(middle, still(SHAPES, 1) | {"turn": torch.ones(1)})[0, 0]
    rise = [int(turned[:, i].argmax()) for i in (4, 16)]
    assert abs(rise[0] - rise[1]) == pytest.approx(12 * np.tan(np.pi / 6), abs=1)


@pytest.mark.parametrize(
    ("name", "amount", "before", "after"),
    [
        ("brightness", 1.0, [100, 50, 10], [190, 95, 19]),
        ("solarise", 1.0, [100, 50, 10], [155, 205, 245]),
        ("solarise", 0.5, [200, 127, 10], [55, 127, 10]),
        ("posterise", 0.5, [100, 50, 10], [100, 48, 8]),
        ("contrast", -1.0, [100, 100, 100], [100, 100, 100]),
    ],
)
def test_colours_change_as_worked_out_by_hand(name, amount, before, after):
    x = torch.tensor(before).float()[None, :, None, None].expand(1, 3, 4, 4)
    actual = recoloured(x, still(COLOURS, 1) | {name: torch.full((1, 1, 1, 1), amount)})
    assert actual[0, :, 0, 0].tolist() == pytest.approx(after, abs=0.5)


def test_no_colour_is_grey_and_no_contrast_is_the_mean():
    x = pictures(B=1).float()
    grey = recoloured(x, still(COLOURS, 1) | {"colour": torch.full((1, 1, 1, 1), -1 / 0.9)})
    assert (grey - grey[:, :1]).abs().max() < 1e-2
    flat = recoloured(x, still(COLOURS, 1) | {"contrast": torch.full((1, 1, 1, 1), -1 / 0.9)})
    assert flat.std() < 1e-2


def test_as_many_operations_as_asked_for_and_others_for_each_picture():
    x = pictures(B=64, side=16)
    actual = operated(x, 1, 1.0, draw())
    changed = (actual != x).flatten(1).any(1).float().mean()
    assert changed > 0.9  # a picture may be one that an operation leaves alone
    assert torch.equal(operated(x, 1, 0.0, draw()), x)


@pytest.mark.parametrize("wrong", [dict(crop=-1), dict(operations=99), dict(strength=2.0), dict(mixup=-0.1)])
def test_wrong_settings_are_told_at_birth(wrong):
    with pytest.raises(ConfigError, match=r"data\.augment"):
        Augment(**wrong)
