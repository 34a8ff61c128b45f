"""The loss of pairs against the formula written out, one pair at a time."""

import math

import pytest
import torch

from regard.objectives.contrast import SHARPNESS, contrast


def test_the_loss_is_that_of_the_paper_in_both_directions():
    one, two = (torch.nn.functional.normalize(torch.randn(5, 7, dtype=torch.float64), dim=-1) for _ in range(2))
    total = 0.0
    for side, other in ((one, two), (two, one)):
        for i in range(5):
            scores = [math.exp(SHARPNESS * float(side[i] @ other[j])) for j in range(5)]
            total -= math.log(scores[i] / sum(scores)) / 2
    assert float(contrast(one, two)) == pytest.approx(total)
