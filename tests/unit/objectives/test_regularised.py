"""Distillation and R-Drop next to torch's own Kullback-Leibler divergence, for every objective that has classes."""

import copy

import pytest
import torch
import torch.nn.functional as F
from tests.unit.objectives.test_held_out import CASES

from regard.models import build
from regard.objectives.base import Objective
from regard.objectives.regularised import Regularised

NAMES = [name for name, case in CASES.items() if type(case()[2]).scored is not Objective.scored]


@pytest.fixture(params=NAMES)
def case(request):
    """A model, two teachers, a ragged batch and the plain objective, all in float64."""
    config, batches, plain, _ = CASES[request.param]()
    models = []
    for seed in range(3):
        torch.manual_seed(seed)
        model = build(config).double()
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(8.0 if p.ndim > 1 else 1.0)
        models.append(model)
    return models[0], models[1:], batches[0], plain


def outputs(objective, model, batch):
    """Log-probabilities and targets of the positions that count."""
    model.eval()
    logits, targets = objective.scored(model, *objective.inputs(batch)), objective.targets(batch)
    return logits[targets >= 0].float().log_softmax(-1), targets[targets >= 0]


def test_every_objective_with_classes_can_be_taught():
    assert set(NAMES) == set(CASES) - {"mlm"}


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_teachers_give_the_mean_of_their_probabilities(case, share):
    model, teachers, batch, plain = case
    log_p, targets = outputs(plain, model, batch)
    mean = torch.stack([outputs(plain, teacher, batch)[0].exp() for teacher in teachers]).mean(0)
    divergence = F.kl_div(log_p, mean, reduction="sum") - (mean * mean.log()).sum()
    expected = (1 - share) * F.nll_loss(log_p, targets, reduction="sum") + share * divergence
    loss = Regularised(plain, teachers=teachers, share=share).loss_sum(model, batch)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)


def test_a_model_that_equals_its_teacher_learns_nothing_from_it(case):
    model, _, batch, plain = case
    twin, parameters = copy.deepcopy(model), list(model.eval().parameters())
    losses = plain.loss_sum(model, batch), Regularised(plain, teachers=[twin], share=1.0).loss_sum(model, batch)
    grads = [torch.autograd.grad(loss, parameters, allow_unused=True) for loss in losses]
    by_targets, by_twin = (max(g.abs().max() for g in some if g is not None) for some in grads)
    assert by_twin < 1e-5 * by_targets


def test_teachers_are_not_trained_and_have_no_dropout(case):
    model, teachers, batch, plain = case
    objective = Regularised(plain, teachers=[t.train() for t in teachers])
    model.eval()
    first, second = (objective.loss_sum(model, batch) for _ in range(2))
    first.backward()
    assert torch.equal(first, second)
    assert all(p.grad is None for teacher in teachers for p in teacher.parameters())


def test_both_passes_of_r_drop_are_taught(case):
    """Without dropout both are the same, so R-Drop adds nothing."""
    model, teachers, batch, plain = case
    model.eval()
    once = Regularised(plain, teachers=teachers).loss_sum(model, batch)
    torch.testing.assert_close(Regularised(plain, 4.0, teachers).loss_sum(model, batch), once, rtol=1e-5, atol=1e-5)


def test_r_drop_is_the_mean_divergence_of_two_passes(case):
    """The weight in front of both directions of the divergence, computed from the same two passes."""
    model, _, batch, plain = case
    torch.manual_seed(3)
    logits = plain.scored(model.train(), *plain.inputs(batch.twice())).float()
    targets = plain.targets(batch.twice())
    p, q = logits[targets >= 0].log_softmax(-1).chunk(2)
    both = F.kl_div(p, q, reduction="sum", log_target=True) + F.kl_div(q, p, reduction="sum", log_target=True)
    words = F.cross_entropy(logits, targets, reduction="sum", ignore_index=-1)
    torch.manual_seed(3)
    loss = Regularised(plain, 4.0).loss_sum(model, batch)
    torch.testing.assert_close(loss, (words + 4.0 * both / 2) / 2, rtol=1e-5, atol=1e-5)
