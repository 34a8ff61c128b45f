"""Binary cross-entropy over labels, compared with torch; thresholds compared with trying them all."""

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from torch import nn

from regard.data.batch import Samples
from regard.objectives.classify import ClassifySamples
from regard.objectives.multilabel import MultiLabelLoss, best_thresholds

SETS = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0]])


class Linear(nn.Linear):
    def scores(self, x):
        return x


def test_loss_is_binary_cross_entropy_over_labels():
    torch.manual_seed(0)
    model, x, codes = Linear(4, 3), torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 0])
    batch = Samples((x,), codes, np.arange(5))
    targets = torch.from_numpy(SETS).float()[codes]
    expected = nn.functional.binary_cross_entropy_with_logits(model(x), targets)
    objective = MultiLabelLoss(ClassifySamples(), SETS)
    torch.testing.assert_close(objective.loss_sum(model, batch) / 5, expected)
    scores = objective.held_out(model, [batch])
    assert scores["loss"] == pytest.approx(expected.item())
    predicted = model(x).detach().numpy() > 0
    assert scores["macro_f1"] == pytest.approx(f1_score(targets.numpy(), predicted, average="macro", zero_division=0))


@pytest.mark.parametrize("seed", range(5))
def test_thresholds_are_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    true, p = rng.random((30, 4)) < 0.3, rng.integers(1, 20, (30, 4)) / 20  # many equal probabilities
    for label, threshold in enumerate(best_thresholds(true, p)):
        tried = [f1_score(true[:, label], p[:, label] >= t, zero_division=0) for t in np.unique(p[:, label])]
        assert f1_score(true[:, label], p[:, label] >= threshold) == pytest.approx(max(tried))


def test_a_label_without_examples_keeps_the_usual_threshold():
    assert best_thresholds(np.zeros((4, 1)), np.full((4, 1), 0.9)) == [0.5]
