"""The chunked loss equals torch's own, values and gradients, whatever is left out."""

import math

import pytest
import torch
import torch.nn.functional as F

from regard.objectives.losses import (
    chunked_cross_entropy_sum,
    plain_cross_entropy_sum,
    sample,
    sampled_cross_entropy_sum,
)


def data(words: int = 11, rows: int = 16):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(9, 4, generator=g)
    weight = torch.randn(rows, 4, generator=g)
    return x, weight, torch.randint(0, words, (9,), generator=g)


def results(loss, x, weight):
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    value = 0.5 * loss(x, weight)  # the gradient that comes from above is not 1
    value.backward()
    return value.detach(), x.grad, weight.grad


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("vocab", [0, 11])
@pytest.mark.parametrize("rows", [1, 4, 9, 100])
def test_chunks_give_what_torch_gives(rows, vocab, smoothing):
    x, weight, targets = data()
    targets[2] = -1  # does not count

    def torchs(x, weight):
        words = (x @ weight.T)[:, : vocab or None]
        return F.cross_entropy(words, targets, reduction="sum", label_smoothing=smoothing, ignore_index=-1)

    expected = results(torchs, x, weight)
    plain = results(lambda x, w: plain_cross_entropy_sum(x, w, targets, smoothing, vocab=vocab), x, weight)
    chunked = results(lambda x, w: chunked_cross_entropy_sum(x, w, targets, smoothing, rows, vocab), x, weight)
    for got in (plain, chunked):
        torch.testing.assert_close(got, expected)
    if vocab:
        assert not chunked[2][vocab:].any(), "rows that are no words learn nothing"


def test_a_head_that_does_not_learn_costs_no_gradient():
    x, weight, targets = data()
    x.requires_grad_()
    chunked_cross_entropy_sum(x, weight, targets, rows=4).backward()
    expected = results(lambda x, w: plain_cross_entropy_sum(x, w, targets), x.detach(), weight)[1]
    torch.testing.assert_close(x.grad, 2 * expected)
    assert weight.grad is None


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_sample_of_all_words_is_the_whole_softmax(smoothing):
    x, weight, targets = data()

    def torchs(x, weight):
        return F.cross_entropy(x @ weight.T, targets, reduction="sum", label_smoothing=smoothing)

    got = results(lambda x, w: sampled_cross_entropy_sum(x, w, targets, 100, smoothing), x, weight)
    torch.testing.assert_close(got, results(torchs, x, weight))


@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_sampled_loss_is_the_plain_one_of_the_same_sample(smoothing, blocks, monkeypatch):
    monkeypatch.setattr("regard.objectives.losses.onednn_is_faster", lambda: blocks)
    x, weight, targets = data(words=5, rows=40)

    def plain(x, weight):
        torch.manual_seed(3)
        chosen, places, shift = sample(40, targets, 7)
        return plain_cross_entropy_sum(x, weight[chosen], places, smoothing, shift)

    def fast(x, weight):
        torch.manual_seed(3)
        return sampled_cross_entropy_sum(x, weight, targets, 7, smoothing)

    torch.testing.assert_close(results(fast, x, weight), results(plain, x, weight))


def test_the_words_drawn_stand_for_all_that_are_absent():
    targets = torch.tensor([6, 2, 6])
    chosen, places, shift = sample(10, targets, 4)
    assert chosen[:2].tolist() == [2, 6]
    assert places.tolist() == [1, 0, 1]
    assert len(set(chosen.tolist())) == 6
    torch.testing.assert_close(shift, torch.tensor([0.0, 0.0, *[math.log(8 / 4)] * 4]))
    assert not sample(2, torch.tensor([0, 1]), 4)[2].any(), "nothing is left to draw"


def test_the_sampled_partition_function_is_unbiased():
    """exp(loss + logit of the target) is the partition function; its mean over 4,000 draws is that of all words.

    The standard error is 0.4 % of it: a miss of 2 % is one of five standard errors.
    """
    x, weight, targets = data(words=3, rows=40)
    x, targets = 0.3 * x[:1], targets[:1]
    torch.manual_seed(0)
    logit = (x @ weight[targets].T).item()
    draws = [sampled_cross_entropy_sum(x, weight, targets, 8).add(logit).exp().item() for _ in range(4000)]
    assert sum(draws) / len(draws) == pytest.approx((x @ weight.T).exp().sum().item(), rel=0.02)
