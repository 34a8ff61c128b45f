"""Series side by side: padding, windows, hidden points."""

from collections import Counter

import numpy as np
import pytest
import torch

from regard.data.loader import FixedSize, Loader, class_odds
from regard.data.series import Curves
from regard.data.series_batch import HiddenSource, SeriesSource


def curves(lengths=(3, 5, 2), errors=True):
    n = sum(lengths)
    return Curves(
        ids=[str(i) for i in range(len(lengths))],
        offsets=np.concatenate(([0], np.cumsum(lengths))),
        times=np.arange(n) + 1e9 + 0.25,
        values=np.arange(n) * 10.0,
        errors=np.arange(n) / 10 if errors else None,
        bands=np.arange(n) % 2 if errors else None,
        band_names=("g", "r") if errors else ("value",),
        labels=["b", "a", "b"],
    )


def test_padding_is_zero_and_times_count_from_the_first_point():
    batch = SeriesSource(curves(), ("a", "b"), max_length=4).batch(np.array([0, 1]))
    times, values, errors, bands, lengths, known = batch.inputs
    assert times.tolist() == [[0, 1, 2, 0], [0, 1, 2, 3]], "of dates as large as these float32 knows no hours"
    assert values.tolist() == [[0, 10, 20, 0], [30, 40, 50, 60]] and lengths.tolist() == [3, 4]
    assert errors.shape == bands.shape == (2, 4) and bands[1].tolist() == [1, 0, 1, 0] and known is None
    assert batch.targets.tolist() == [1, 0]


@pytest.mark.parametrize(("limit", "read"), [(4, 4), (5, 5), (6, 5), (9, 5)])
def test_a_series_is_read_up_to_exactly_the_limit(limit, read):
    long = Curves(["a"], np.array([0, 5]), np.arange(5.0), np.arange(5.0), None, None, ("value",), ["a"])
    clock, values, *_ = SeriesSource(long, ("a", "b"), max_length=limit).batch(np.array([0])).inputs
    assert values[0].tolist() == clock[0].tolist() == list(range(read))


def test_what_is_not_there_is_none():
    batch = SeriesSource(curves((3, 3, 3), errors=False), ("a", "b"), 9).batch(np.array([2, 0]))
    assert batch.inputs[2] is batch.inputs[3] is batch.inputs[4] is None


def test_a_window_is_a_stretch_and_every_stretch_comes():
    source, rng = SeriesSource(curves(), ("a", "b"), 9, window=2), np.random.default_rng(0)
    seen = Counter(tuple(source.batch(np.array([1]), rng).inputs[1][0].tolist()) for _ in range(400))
    assert set(seen) == {(30, 40), (40, 50), (50, 60), (60, 70)} and min(seen.values()) > 60
    assert source.batch(np.array([1])).inputs[1].size(1) == 5, "held-out series are whole"


def test_thinned_series_lose_points_anywhere_but_no_order():
    rng = np.random.default_rng(0)
    source = SeriesSource(curves((40, 4, 3)), ("a", "b"), 30, window=20, thin=0.5)
    counts, first = [], Counter()
    for _ in range(300):
        times, values, _, bands, lengths, _ = source.batch(np.array([0, 1]), rng).inputs
        long, short = values[0, : lengths[0]].tolist(), values[1, : lengths[1]].tolist()
        assert long == sorted(set(long)) and max(long) < 300, "in order, none twice, within max_length"
        assert times[0, 0] == 0 and (times[0, : lengths[0]] * 10 == values[0, : lengths[0]] - values[0, 0]).all()
        assert (bands[0, : lengths[0]] == values[0, : lengths[0]] / 10 % 2).all() and not values[1, lengths[1] :].any()
        assert set(short) <= {400, 410, 420, 430}
        counts.append((len(long), len(short)))
        first.update(long)
    longs, shorts = map(set, zip(*counts, strict=True))
    assert longs == set(range(10, 21)) and shorts == {2, 3, 4}
    assert len(first) == 30 and min(first.values()) > 100, "every point stays about half of the times"
    assert source.batch(np.array([0])).inputs[1].size(1) == 30, "held-out series are whole"


def test_validation_masks_are_fixed_and_never_hide_padding():
    source = HiddenSource(curves((3, 50, 2)), ("a", "b"), 50)
    one, two = (source.batch(np.array([0, 1, 2])) for _ in range(2))
    hidden = one.inputs[-1]
    assert torch.equal(hidden, two.inputs[-1]) and not hidden[0, 3:].any() and not hidden[2, 2:].any()
    assert one.targets.tolist() == hidden.sum(1).tolist() and 0.1 < hidden[1].float().mean() < 0.5
    other = source.batch(np.array([0, 1, 2]), np.random.default_rng(5)).inputs[-1]
    assert not torch.equal(hidden, other)


def test_training_moves_values_within_their_errors_and_hides_some():
    source = SeriesSource(curves((400, 2, 2)), ("a", "b"), 400, jitter=2.0, hide=0.25)
    plain, moved = source.batch(np.array([0])), source.batch(np.array([0]), np.random.default_rng(0))
    assert len(plain.inputs) == 6 and len(moved.inputs) == 7, "held-out series are as they are"
    steps = (moved.inputs[1] - plain.inputs[1])[0, 1:] / moved.inputs[2][0, 1:]
    assert abs(float(steps.std()) - 2.0) < 4 * 2.0 / np.sqrt(2 * 400) and abs(float(steps.mean())) < 4 * 2.0 / 20
    assert abs(float(moved.inputs[6].float().mean()) - 0.25) < 4 * 0.44 / 20


def test_odds_make_rare_classes_frequent():
    targets = np.array([0] * 90 + [1] * 10)
    source = SeriesSource(curves((1,) * 100), ("a", "b"), 1)
    source.targets = targets
    loader = Loader(source, FixedSize(10, class_odds(targets)), 0)
    drawn = np.concatenate([next(loader).targets.numpy() for _ in range(200)])
    assert abs(drawn.mean() - 0.5) < 4 * 0.5 / np.sqrt(2000)
