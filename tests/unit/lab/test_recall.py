"""Remembering one symbol, what that costs, and the time of a step."""

import pytest
import torch
from torch import nn

from regard.lab import recall as r
from regard.lab.gradients import WIDTH
from regard.models.base import LanguageModel


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def test_question_is_a_symbol_noise_and_a_cue_at_a_distance():
    ids, answers = r.questions(12, 500, rng())
    assert ids.shape == (500, 13) and torch.equal(ids[:, 0], answers)
    assert set(answers.tolist()) == set(range(r.SYMBOLS))
    assert set(ids[:, 1:-1].flatten().tolist()) == set(range(r.SYMBOLS, 2 * r.SYMBOLS))  # noise is never a symbol
    assert (ids[:, -1] == r.VOCAB - 1).all()
    assert torch.equal(r.questions(12, 500, rng())[0], ids)


class Knows(LanguageModel):
    """Says the first id it read, or always the same one."""

    def __init__(self, remembers: bool):
        super().__init__()
        self.token, self.remembers = nn.Embedding(1, 1), remembers

    def forward(self, ids, documents=None):
        first = ids[:, :1] if self.remembers else torch.zeros_like(ids[:, :1])
        return torch.nn.functional.one_hot(first, r.VOCAB).float()

    def logits(self, hidden):
        return hidden


def test_accuracy_is_one_with_memory_and_chance_without():
    assert r.accuracy(Knows(True), 20, rng()) == 1.0
    assert r.accuracy(Knows(False), 20, rng()) == pytest.approx(1 / r.SYMBOLS, abs=0.07)  # 3.4 standard errors


@pytest.mark.parametrize("arch", ["rnn", "gru", "lstm", "gpt", "conv3"])
def test_every_architecture_learns_a_short_distance(arch):
    on, anew = (r.recall(arch, first, seed=0, device="cpu", distances=(2, 3)) for first in (True, False))
    for found in (on, anew):
        assert min(found.accuracy.values()) >= 0.95 and found.farthest == 3
        assert max(found.updates.values()) < r.UPDATES
    assert on.updates[2] == anew.updates[2] and on.updates[3] < anew.updates[3]  # what was learned is built on


def test_what_failed_is_not_tried_farther(monkeypatch):
    monkeypatch.setattr(r, "UPDATES", 1)
    actual = r.recall("rnn", True, seed=0, device="cpu", distances=(10, 30, 100))
    assert list(actual.accuracy) == [10] and actual.accuracy[10] < 0.5 and actual.farthest == 0


def test_convolution_learns_only_within_its_filters():
    actual = r.recall("conv3", False, seed=0, device="cpu", distances=(5, 10))
    assert (
        actual.farthest == 5 and actual.accuracy[10] < 0.3
    )  # chance is 1 in 8; of 256 a share of 0.3 is 8 spreads off
    assert r.recall("mlp", False, seed=0, device="cpu", distances=(5, 10)).farthest == 10


def test_parameters_grow_with_distance_where_they_should():
    ids, _ = r.questions(10, 1, rng())
    words, width, classes = ids.size(1), WIDTH, r.VOCAB
    dense = r.parameters("mlp").numbers[10]
    assert dense == classes * width + (words * width * width + width) + (width * classes + classes)
    assert [r.parameters(arch).per_token for arch in ("mlp", "gpt", "lstm", "conv9")] == [width * width, width, 0, 0]


def test_the_same_number_of_tokens_is_timed_at_every_length(monkeypatch):
    shapes, clock = [], iter([0.5, 4.0, 2.0, 1.0, 3.0, 5.0] * 2)
    monkeypatch.setattr(r, "seconds_of", lambda _, ids: (shapes.append(tuple(ids.shape)), next(clock))[1])
    actual = r.step_time("gpt", seed=0, device="cpu", lengths=(64, 1024))
    assert set(shapes) == {(64, 64), (4, 1024)}
    assert actual.seconds == {64: 1.0, 1024: 1.0}  # the fastest but the first, which warms up


def test_a_timed_step_is_a_whole_step_and_leaves_no_gradient():
    model = r.tiny_model("lstm", 8, r.SPEED_VOCAB, layers=1)
    seen = []
    model.token.weight.register_hook(lambda grad: seen.append(grad.abs().sum().item()))
    assert r.seconds_of(model, torch.randint(r.SPEED_VOCAB, (2, 8))) > 0
    assert len(seen) == 1 and seen[0] > 0 and model.token.weight.grad is None
