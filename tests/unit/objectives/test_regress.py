"""Least squares, compared with torch and scikit-learn."""

import numpy as np
import torch
from sklearn.metrics import mean_absolute_error, r2_score
from torch import nn

from regard.data.batch import Samples
from regard.objectives.classify import ClassifySamples
from regard.objectives.regress import RegressLoss

VALUES = np.array([10.0, 20.0, 50.0])


class Linear(nn.Linear):
    def scores(self, x):
        return x


def batches(generator):
    x, codes = torch.randn(7, 4, generator=generator), torch.tensor([0, 2, 1, 1, 0, 2, 2])
    return [Samples((x[:4],), codes[:4], np.arange(4)), Samples((x[4:],), codes[4:], np.arange(4, 7))]


def test_loss_is_the_squared_error_of_standardised_targets():
    generator = torch.Generator().manual_seed(0)
    model, objective = Linear(4, 1), RegressLoss(ClassifySamples(), VALUES, mean=30.0, std=5.0)
    batch = batches(generator)[0]
    targets = torch.from_numpy((VALUES - 30) / 5).float()[batch.targets]
    expected = nn.functional.mse_loss(model(batch.inputs[0])[:, 0], targets, reduction="sum")
    torch.testing.assert_close(objective.loss_sum(model, batch), expected)
    assert objective.count(batch) == 4


def test_validation_scores_are_those_of_scikit_learn():
    generator = torch.Generator().manual_seed(1)
    model, objective, parts = Linear(4, 1), RegressLoss(ClassifySamples(), VALUES, 30.0, 5.0), batches(generator)
    scores = objective.held_out(model, parts)
    true = VALUES[torch.cat([b.targets for b in parts])]
    predicted = torch.cat([model(b.inputs[0])[:, 0] for b in parts]).detach().numpy() * 5.0 + 30.0
    np.testing.assert_allclose(scores["r2"], r2_score(true, predicted), rtol=1e-5)
    np.testing.assert_allclose(scores["mae"], mean_absolute_error(true, predicted), rtol=1e-5)


def test_r2_is_left_out_where_all_targets_are_equal():
    batch = Samples((torch.zeros(2, 4),), torch.tensor([1, 1]), np.arange(2))
    assert "r2" not in RegressLoss(ClassifySamples(), VALUES).held_out(Linear(4, 1), [batch])
