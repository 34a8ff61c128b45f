"""Baselines and scores of series, against scikit-learn and by hand."""

import dataclasses

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from regard.data.history import Windows
from regard.data.series import Curves
from regard.metrics.forecast import STRENGTHS, LinearForecast, naive, season_of, to_beat
from regard.metrics.series import balanced_accuracy, nearest, summary, weighted_log_loss


def some(count: int, seed: int) -> Curves:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 30, count)
    total = lengths.sum()
    labels = [str(x) for x in rng.integers(0, 3, count)]
    values = rng.normal(size=total) * np.repeat([1 + 2 * int(x) for x in labels], lengths)
    return Curves(
        ids=[str(i) for i in range(count)],
        offsets=np.concatenate(([0], np.cumsum(lengths))),
        times=np.concatenate([np.sort(rng.random(n)) for n in lengths]),
        values=values,
        errors=None,
        bands=rng.integers(0, 2, total),
        band_names=("g", "r"),
        labels=labels,
    )


def test_the_nearest_are_those_of_scikit_learn():
    train, test = some(200, 0), some(300, 1)
    scale = StandardScaler().fit(summary(train))
    theirs = KNeighborsClassifier(5).fit(scale.transform(summary(train)), train.labels)
    ours, other = np.array(nearest(train, test)), theirs.predict(scale.transform(summary(test)))
    votes = np.sort(theirs.predict_proba(scale.transform(summary(test))), 1)
    clear = votes[:, -1] > votes[:, -2]  # of a tie they name the first in the alphabet, we the nearest
    assert clear.mean() > 0.5 and (ours[clear] == other[clear]).all()
    assert (ours == np.array(test.labels)).mean() > 0.4


def test_neighbours_missing_values_become_the_training_mean():
    train, test = some(200, 0), some(100, 1)
    rng = np.random.default_rng(2)
    known, asked = rng.normal(size=(200, 2)), rng.normal(size=(100, 2))
    filled = known.copy()
    known[::3, 1] = np.nan
    filled[::3, 1] = np.nanmean(known[:, 1])
    blank, usual = asked.copy(), asked.copy()
    blank[::2, 1], usual[::2, 1] = np.nan, np.nanmean(known[:, 1])
    expected = nearest(dataclasses.replace(train, known=filled), dataclasses.replace(test, known=usual))
    assert nearest(dataclasses.replace(train, known=known), dataclasses.replace(test, known=blank)) == expected


def test_scores_in_which_classes_count_alike():
    rng = np.random.default_rng(0)
    likely = rng.dirichlet(np.ones(4), 50)
    true = rng.integers(0, 3, 50)  # class 3 never comes
    assert balanced_accuracy(true, likely.argmax(1)) == pytest.approx(balanced_accuracy_score(true, likely.argmax(1)))
    weights = [1.0, 2.0, 0.5, 9.0]
    per_class = [log_loss(true[true == c], likely[true == c], labels=range(4)) for c in range(3)]
    expected = (1.0 * per_class[0] + 2.0 * per_class[1] + 0.5 * per_class[2]) / 3.5
    assert weighted_log_loss(likely, true, weights) == pytest.approx(expected)


def test_linear_baseline_is_ridge_on_differences_to_last_value():
    rng = np.random.default_rng(0)
    values = np.cumsum(rng.normal(size=(120, 2)), 0) * [1, 50] + 3 * np.sin(np.arange(120))[:, None]
    windows, held_out = Windows(values, 0, 70, 6, 3), Windows(values, 70, 90, 6, 3)
    spread = np.array([2.0, 100.0])

    def differences(windows):
        batch = windows.batch(np.arange(len(windows)))
        pairs = [
            (p[:, c] / spread[c], f[:, c] / spread[c])
            for p, f in zip(batch.inputs[0].double(), batch.targets.double(), strict=True)
            for c in (0, 1)
        ]
        return (np.stack([np.asarray(pair[i] - pair[0][-1]) for pair in pairs]) for i in (0, 1))

    x, y = differences(windows)
    other_x, other_y = differences(held_out)
    fits = {s: Ridge(alpha=s * (x**2).sum() / 6, fit_intercept=False, solver="cholesky").fit(x, y) for s in STRENGTHS}
    best = min(fits, key=lambda s: ((fits[s].predict(other_x) - other_y) ** 2).mean())
    ours = LinearForecast(windows, held_out, spread)
    assert STRENGTHS[0] < best < STRENGTHS[-1] and ours.strength == pytest.approx(best)
    assert np.allclose(ours.map.numpy(), fits[best].coef_.T, atol=1e-5)
    rows = to_beat(ours, Windows(values, 90, 120, 6, 3), spread, season=2)
    last = np.stack([values[t - 2 : t][[0, 1, 0]] - values[t : t + 3] for t in range(90, 118)]) / spread
    assert rows[0].mse == pytest.approx((last**2).mean(), rel=1e-5) and rows[0].name == "the last 2 rows again"
    assert rows[0].mae == pytest.approx(np.abs(last).mean(), rel=1e-5)


def test_of_a_random_walk_hardly_more_than_the_last_value_is_told():
    values = np.cumsum(np.random.default_rng(1).normal(size=(400, 1)), 0)
    linear = LinearForecast(Windows(values, 0, 200, 40, 3), Windows(values, 200, 400, 40, 3), np.ones(1))
    assert linear.strength > 1 and np.abs(linear.map.numpy()).sum(0).max() < 0.3


def test_of_what_never_moves_the_last_value_is_told():
    windows = Windows(np.full((60, 1), 0.1), 0, 60, 6, 3)
    linear = LinearForecast(windows, windows, np.ones(1))
    assert [row.mse for row in to_beat(linear, windows, np.ones(1), 1)] == [0, 0]


def test_a_season_is_found_and_told_again():
    import torch

    t = np.arange(500)
    values = np.stack([np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 24) + 0.001 * t], 1)
    assert season_of(values, 100) == 24
    assert season_of(np.random.default_rng(0).normal(size=(50, 1)).cumsum(0)[:4], 2) == 1
    past = torch.arange(5.0)[None, :, None]
    assert naive(past, 5, 2)[0, :, 0].tolist() == [3, 4, 3, 4, 3]
