"""Recorded steps, with a recording that a CPU can make: it does again what it did, into the same tensors."""

import numpy as np
import pytest
import torch
from tests.conftest import shake

from regard.data.batch import collate, collate_labelled, few
from regard.data.blocks import TextRows
from regard.data.loader import Loader
from regard.data.store import Flat
from regard.data.text import TokenFile
from regard.models import BertConfig, build, config_for
from regard.objectives.classify import ClassifyLoss
from regard.objectives.next_token import NextToken
from regard.objectives.regularised import Regularised
from regard.objectives.tag import TagLoss
from regard.objectives.translate import TranslateLoss
from regard.training.optim import Optimiser
from regard.training.recorded import WARM, RecordedStep
from regard.training.settings import Optim


class DoneAgain(RecordedStep):
    def apart(self, batches, count):
        return self.launched(batches, count)

    def captured(self, batch, count):
        return lambda: self.launched([batch], count)

    def has_room(self):
        return True


def trained(objective, model, batches, recorded, count, lr=1e-2):
    """The losses of steps on `batches`, and the weights after them."""
    optimiser = Optimiser(model, Optim(lr=lr, eps=1e-2))  # eps: no bias moves by rounding

    def step(batches, count):
        loss = torch.zeros(())
        for batch in batches:
            part = objective.loss_sum(model, batch) / count
            part.backward()
            loss += part.detach()
        return loss, *optimiser.update(loss)

    work = DoneAgain(step, torch.device("cpu"), fills=True) if recorded else step
    losses = [work(micros, sum(map(count, micros)))[0].clone() for micros in batches]
    return work, (torch.stack(losses), *(p.detach() for p in model.parameters()))


@pytest.mark.parametrize("regularised", [False, True])
@pytest.mark.parametrize("arch", ["gpt", "lstm"])
def test_replayed_steps_train_as_launched_ones_do(arch, regularised):
    """Batches of a text, some not full, one of another shape, and one that two are accumulated in; with R-Drop and a
    teacher either."""
    text, results = np.random.default_rng(0).integers(0, 97, 1000), []
    for recorded in (False, True):
        torch.manual_seed(0)
        rows = TextRows(TokenFile(Flat([text])), 32, 8 * 32)
        loader = Loader(rows, rows.plan, seed=0)
        batches = [[next(loader)] for _ in range(10)]
        assert {b.counts is None for (b,) in batches} == {True, False} and len({len(b) for (b,) in batches}) == 1
        batches.insert(7, [batches[0][0].part(slice(3))])
        batches.insert(8, [batches[1][0], batches[2][0]])
        config = config_for(arch, "tiny", 97, task="lm", dropout=0.1)
        model, teacher = build(config).train(), build(config)
        objective = Regularised(NextToken(), 3.0, [teacher], 0.4) if regularised else NextToken()
        work, result = trained(objective, model, batches, recorded, objective.count)
        results.append(result)
    assert len(work.recordings) == 1 and sorted(work.seen.values()) == [1, WARM + 1] and WARM < 7
    for plain, replayed in zip(*results, strict=True):
        torch.testing.assert_close(replayed, plain, rtol=1e-4, atol=1e-6)


def ragged(family):
    """Ten batches of pairs or labelled texts, of shapes that `marked` makes equal, and one of another."""
    rng = np.random.default_rng(0)
    batches = []
    for rows, longest in [(18 - i % 2, 7 - i % 3) for i in range(10)] + [(3, 12)]:
        texts = [rng.integers(0, 90, n) for n in [longest, *rng.integers(1, longest + 1, rows - 1)]]
        if family == "translate":
            others = [rng.integers(0, 90, n) for n in [longest, *rng.integers(1, longest + 1, rows - 1)]]
            batches.append(collate(texts, others, eos=95, pad=96))
        else:
            per_piece = family == "tag"
            labels = [rng.integers(-1, 3, len(text)) if per_piece else rng.integers(0, 3, 1) for text in texts]
            full = [(text, len(text), label) for text, label in zip(texts, labels, strict=True)]
            batches.append(collate_labelled(full, pad=96, per_piece=per_piece))
    return batches


FAMILIES = {
    "translate": (lambda: TranslateLoss(0.1), dict(task="translate")),
    "classify": (lambda: ClassifyLoss(weights=(1.0, 2.0, 0.5)), dict(head="sequence", labels=("a", "b", "c"))),
    "tag": (lambda: TagLoss(), dict(head="token", labels=("a", "b", "c"))),
}


def network(family, seed, settings):
    torch.manual_seed(seed)
    if family == "translate":
        config = config_for("transformer", "tiny", 97, dropout=0.0, **settings)
    else:
        sizes = dict(width=16, layers=2, heads=2, ffn=32, dropout=0.0, attention_dropout=0.0)
        config = BertConfig(vocab=97, **sizes, **settings)
    return shake(build(config), by=2.0).train()


@pytest.mark.parametrize("regularised", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_filled_batches_train_as_ragged_ones_do(family, regularised):
    """Padding up to a recorded shape changes no loss and no weight, with R-Drop and a teacher either."""
    make, settings = FAMILIES[family]

    results = []
    for recorded in (False, True):
        objective = Regularised(make(), 3.0, [network(family, 1, settings)], 0.4) if regularised else make()
        batches = [[batch] for batch in ragged(family)]
        work, result = trained(objective, network(family, 0, settings), batches, recorded, objective.count, lr=1e-3)
        results.append(result)
    assert len(work.recordings) == 1 and sorted(work.seen.values()) == [1, WARM + 1]
    for plain, replayed in zip(*results, strict=True):
        torch.testing.assert_close(replayed, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_ragged_batches_are_left_alone_where_the_gpu_is_busy(family):
    """Filling them would cost more than recording gains."""
    seen = []
    work = DoneAgain(lambda batches, _: seen.append(batches), torch.device("cpu"), fills=False)
    batches = ragged(family)
    for batch in batches:
        work([batch], 1)
    assert [batch for (batch,) in seen] == batches and not work.seen


def test_every_recording_needs_memory_for_the_largest_step_so_far(monkeypatch):
    """Also if there are others, whose steps may have been smaller."""
    used = dict(memory_reserved=5, memory_allocated=3, max_memory_allocated=7)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (6, 11))
    for name in used:
        monkeypatch.setattr(torch.cuda, name, lambda _, name=name: used[name])
    work = RecordedStep(lambda batches, _: batches, torch.device("cpu"), fills=True)
    assert work.has_room()
    work.pool = object()
    assert work.has_room()
    used["max_memory_allocated"] = 8
    assert not work.has_room()


@pytest.mark.parametrize(("count", "rounded"), [(1, 1), (16, 16), (17, 18), (31, 32), (33, 36), (257, 288), (512, 512)])
def test_rows_are_rounded_up_to_few_numbers(count, rounded):
    assert few(count) == rounded
