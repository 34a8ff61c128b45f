"""Batches of things that are no text."""

import numpy as np
import pytest
import torch

from regard.data.samples import Samples, SamplesLoader, in_order
from regard.errors import CheckpointError, ConfigError, WorkFailed
from regard.train.memory import fitted
from regard.train.progress import Progress


class Numbers:
    """Thing i is the number i; changed by chance, it has a fraction."""

    def __init__(self, count: int):
        self.count = count

    def __len__(self) -> int:
        return self.count

    def batch(self, rows, chance=None):
        x = torch.from_numpy(rows.astype(np.float32))
        extra = 0.0 if chance is None else float(chance.random()) / 2
        return Samples((x + extra, None), torch.from_numpy(rows % 3), rows)


def taken(loader: SamplesLoader, batches: int) -> list[np.ndarray]:
    return [next(loader).rows for _ in range(batches)]


def test_an_epoch_visits_each_thing_once_in_an_order_of_its_own():
    loader = SamplesLoader(Numbers(10), 4, seed=1)
    one, two = taken(loader, 3), taken(loader, 3)
    assert [len(rows) for rows in one] == [4, 4, 2]
    assert sorted(np.concatenate(one)) == sorted(np.concatenate(two)) == list(range(10))
    assert not np.array_equal(np.concatenate(one), np.concatenate(two))


def test_a_restored_loader_gives_what_would_have_come_chance_included():
    loader = SamplesLoader(Numbers(10), 4, seed=1)
    taken(loader, 4)
    state = loader.state()
    wanted = [next(loader) for _ in range(5)]
    other = SamplesLoader(Numbers(10), 4, seed=1)
    other.restore(state)
    for batch in wanted:
        found = next(other)
        assert np.array_equal(batch.rows, found.rows) and torch.equal(batch.inputs[0], found.inputs[0])
    with pytest.raises(CheckpointError, match="batch=4"):
        SamplesLoader(Numbers(10), 5, seed=1).restore(state)


def test_ranks_share_an_epoch():
    loaders = [SamplesLoader(Numbers(12), 2, seed=3, rank=rank, world=3) for rank in range(3)]
    seen = [np.concatenate(taken(loader, loader.batches_per_epoch)) for loader in loaders]
    assert sorted(np.concatenate(seen)) == list(range(12))


def test_odds_draw_the_rare_as_often_as_the_common():
    labels = np.array([0] * 90 + [1] * 10)
    loader = SamplesLoader(Numbers(100), 10, seed=0, odds=1 / np.bincount(labels)[labels])
    drawn = labels[np.concatenate(taken(loader, 200))]
    assert abs(drawn.mean() - 0.5) < 4 * 0.5 / np.sqrt(2000)


def test_validation_is_in_order_whole_and_unchanged():
    batches = list(in_order(Numbers(7), 3))
    assert np.array_equal(np.concatenate([b.rows for b in batches]), np.arange(7))
    assert torch.equal(torch.cat([b.inputs[0] for b in batches]), torch.arange(7.0))


def test_halves_hold_the_whole():
    batch = Numbers(5).batch(np.arange(5))
    left, right = batch.split()
    assert torch.equal(torch.cat([left.targets, right.targets]), batch.targets)
    assert left.inputs[1] is None and len(left) + len(right) == 5
    assert len(Numbers(1).batch(np.arange(1)).split()) == 1


def test_a_batch_holds_something():
    with pytest.raises(ConfigError, match="at least one"):
        SamplesLoader(Numbers(3), 0, seed=0)


def test_samples_that_do_not_fit_into_memory_are_cut_until_they_do():
    batch, tried = Samples((torch.ones(8, 3, 4, 4), None), torch.zeros(8).long(), np.arange(8)), []

    def work(piece: Samples, room: int) -> torch.Tensor:
        tried.append(len(piece))
        assert len(tried) < 20, "it begins again and again"
        if len(piece) > room:
            raise torch.OutOfMemoryError("out of memory")
        return piece.inputs[0].sum()

    total = fitted(lambda piece: work(piece, room=2), [batch], at := Progress(), lambda: None, print)
    assert total == 8 * 48 and tried == [8, 4, 2, 2, 2, 2] and at.limit == 2 * 48
    with pytest.raises(WorkFailed, match="one example of 48"):
        fitted(lambda piece: work(piece, room=0), [batch.part(slice(0, 1))], Progress(), lambda: None, print)
