"""Baselines for tables: each wins where it should."""

import numpy as np
import pytest

from regard.metrics.tables import learned_baselines


def parts(targets):
    x = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)
    y = targets(x)
    return (x[:300], y[:300]), (x[300:], y[300:])


def test_a_linear_model_wins_on_a_line_and_trees_on_exclusive_or():
    line = learned_baselines(*parts(lambda x: 3.0 * x[:, 0] - x[:, 2] + 7), numbers=True)
    assert line["a linear model"] > 0.99 > line["gradient-boosted trees"] > 0.8
    exclusive = learned_baselines(*parts(lambda x: ((x[:, 0] > 0) ^ (x[:, 1] > 0)).astype(int)), numbers=False)
    assert exclusive["gradient-boosted trees"] > 0.9 and exclusive["a linear model"] < 0.65


def test_a_class_with_one_row_is_no_obstacle():
    scores = learned_baselines(*parts(lambda x: np.where(np.arange(400) == 5, 2, x[:, 1] > 0)), numbers=False)
    assert scores["a linear model"] == pytest.approx(1.0, abs=0.05)
