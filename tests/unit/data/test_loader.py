"""The plan of an epoch: everything once, within the budget, the same again, wherever we resume."""

from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data.batch import Samples
from regard.data.loader import FixedSize, Loader, Source, TokenBudget, in_order
from regard.data.sources import PairSource
from regard.data.store import Ragged
from regard.errors import CheckpointError, ConfigError, DataError, WorkFailed
from regard.training.memory import fitted
from regard.training.progress import Progress

EOS, PAD = 0, 999


class Toy:
    """Pairs of random lengths; the first source id names the row."""

    def __init__(self, count: int, seed: int = 0, longest: int = 40):
        self.sizes = np.random.default_rng(seed).integers(1, longest, (count, 2))

    def columns(self) -> dict[str, Ragged]:
        sides = zip(("source", "target"), self.sizes.T, strict=True)
        return {side: Ragged.of([np.full(n, i + 1) for i, n in enumerate(sizes)]) for side, sizes in sides}


def source(pairs: Toy, multiple: int = 1, dropout=None) -> PairSource:
    return PairSource(**pairs.columns(), eos=EOS, pad=PAD, multiple=multiple, dropout=dropout)


def loader_of(pairs: Toy, tokens: int, seed: int, **more) -> Loader:
    return Loader(source(pairs), TokenBudget(tokens), seed, **more)


def plan(pairs: PairSource, tokens: int, seed: int, epoch: int, **more) -> list[np.ndarray]:
    return TokenBudget(tokens, **more).batches(pairs, np.random.default_rng((seed, epoch)))


def epoch(loader: Loader) -> list:
    return list(islice(loader, loader.batches_per_epoch))


@given(
    count=st.integers(8, 400),
    tokens=st.integers(30, 600),
    multiple=st.sampled_from([1, 8]),
    number=st.integers(0, 3),
)
def test_an_epoch_visits_every_pair_once_within_the_budget(count, tokens, multiple, number):
    toy = source(Toy(count), multiple)
    batches = plan(toy, tokens, seed=1, epoch=number)
    assert sorted(np.concatenate(batches)) == list(range(count))
    for rows in batches:
        assert len(rows) == 1 or len(rows) * toy.widths[rows].max() <= tokens


@given(count=st.integers(8, 400), tokens=st.integers(1, 600))
def test_an_even_epoch_visits_every_pair_once_in_batches_of_as_many(count, tokens):
    """Also where the budget is less than a pair."""
    batches = plan(source(Toy(count)), tokens, seed=1, epoch=0, sorted_together=4, evenly=True)
    assert sorted(np.concatenate(batches)) == list(range(count))
    sizes = [len(rows) for rows in batches]
    assert min(sizes) > 0 and max(sizes) <= 2 * min(sizes)


def test_batches_hold_what_the_plan_says():
    toy = Toy(300)
    loader = loader_of(toy, 200, seed=0)
    seen = []
    for batch in epoch(loader):
        assert len(batch) == 1 or len(batch) * max(batch.source.size(1), batch.target.size(1)) <= 200
        for k, row in enumerate(batch.rows):
            s, t = toy.sizes[row]
            assert batch.source[k].tolist() == [row + 1] * s + [EOS] + [PAD] * (batch.source.size(1) - s - 1)
            assert batch.target[k].tolist() == [row + 1] * t + [EOS] + [PAD] * (batch.target.size(1) - t - 1)
            seen.append(row)
    assert sorted(seen) == list(range(300))
    assert loader.epoch == 0
    next(loader)
    assert loader.epoch == 1


def test_a_skipped_batch_changes_none_of_the_others():
    one, other = (loader_of(Toy(60), 150, seed=4) for _ in range(2))
    for turn in range(3 * one.batches_per_epoch):
        batch = next(one)
        if turn % 2:
            other.skip()
        else:
            assert np.array_equal(next(other).rows, batch.rows)
    assert one.state() == other.state() and one.epoch > 0


def test_order_is_a_function_of_seed_and_epoch():
    def rows(seed: int, count: int) -> list[tuple[int, ...]]:
        return [tuple(b.rows) for b in islice(loader_of(Toy(200), 200, seed), count)]

    assert rows(0, 100) == rows(0, 100)
    assert rows(0, 20) != rows(1, 20)
    per_epoch = loader_of(Toy(200), 200, 0).batches_per_epoch
    assert rows(0, 2 * per_epoch)[per_epoch:] != rows(0, per_epoch)


@pytest.mark.parametrize("after", [0, 1, 17, 18, 19, 55])
def test_resuming_anywhere_continues_the_same_run(after):
    toy = Toy(200)
    whole = [batch.rows.tolist() for batch in islice(loader_of(toy, 400, 7), after + 40)]
    first = loader_of(toy, 400, 7)
    for _ in range(after):
        next(first)
    state = first.state()
    assert all(type(value) is int for value in state.values())
    second = loader_of(toy, 400, 7)
    second.restore(state)
    assert [batch.rows.tolist() for batch in islice(second, 40)] == whole[after:]


def test_a_position_of_another_run_is_refused():
    state = loader_of(Toy(200), 400, 7).state()
    with pytest.raises(CheckpointError, match="tokens=400, this run has tokens=300"):
        loader_of(Toy(200), 300, 7).restore(state)
    with pytest.raises(CheckpointError, match="pairs=200"):
        loader_of(Toy(201), 400, 7).restore(state)


def test_sorting_leaves_little_padding():
    toy = Toy(20_000, longest=30)
    toy.sizes[:, 1] = toy.sizes[:, 0] + np.random.default_rng(1).integers(0, 4, 20_000)  # translations: alike in length
    loader = loader_of(toy, 2000, 0)
    room = used = 0
    for batch in epoch(loader):
        room += batch.source.numel() + batch.target.numel()
        used += int(batch.source_lengths.sum() + batch.target_lengths.sum())
    assert loader.padding == pytest.approx(1 - used / room)
    assert loader.padding < 0.08  # in random order it is 0.45


def test_a_pair_beyond_the_budget_comes_alone():
    toy = Toy(50)
    toy.sizes[13] = 2000, 3
    batches = epoch(loader_of(toy, 100, 0))
    assert [len(b) for b in batches if 13 in b.rows] == [1]


def test_in_order_is_one_sorted_pass():
    toy = Toy(150)
    batches = list(in_order(source(toy), TokenBudget(120)))
    assert sorted(row for b in batches for row in b.rows) == list(range(150))
    longest = [b.target.size(1) for b in batches]
    assert longest == sorted(longest)
    assert [b.rows.tolist() for b in in_order(source(toy), TokenBudget(120))] == [b.rows.tolist() for b in batches]


def test_impossible_requests():
    with pytest.raises(ConfigError, match="at least one token"):
        loader_of(Toy(2), 0, 0)


def test_dropout_sees_row_epoch_and_side():
    calls = []

    def spy(sentences, rows, epoch, side):
        calls.append((rows.tolist(), epoch, side))
        return [s[:1] for s in sentences]

    loader = Loader(source(Toy(30), dropout=spy), TokenBudget(10_000), 0)
    for expected in (0, 1):
        batch = next(loader)
        assert calls[-2:] == [(batch.rows.tolist(), expected, 0), (batch.rows.tolist(), expected, 1)]
        assert batch.source.shape == (30, 2)


# Batches of a fixed size


class Numbers(Source):
    """Example i is the number i; augmented, it has a fraction."""

    def __init__(self, count: int):
        self.count = count

    def __len__(self) -> int:
        return self.count

    def batch(self, rows, rng=None):
        x = torch.from_numpy(rows.astype(np.float32))
        extra = 0.0 if rng is None else float(rng.random()) / 2
        return Samples((x + extra, None), torch.from_numpy(rows % 3), rows)


def taken(loader: Loader, batches: int) -> list[np.ndarray]:
    return [next(loader).rows for _ in range(batches)]


def test_fixed_size_visits_each_example_once_in_a_new_order():
    loader = Loader(Numbers(10), FixedSize(4), seed=1)
    one, two = taken(loader, 3), taken(loader, 3)
    assert [len(rows) for rows in one] == [4, 4, 2]
    assert sorted(np.concatenate(one)) == sorted(np.concatenate(two)) == list(range(10))
    assert not np.array_equal(np.concatenate(one), np.concatenate(two))


def test_restored_loader_repeats_augmentation():
    loader = Loader(Numbers(10), FixedSize(4), seed=1)
    taken(loader, 4)
    state = loader.state()
    expected = [next(loader) for _ in range(5)]
    other = Loader(Numbers(10), FixedSize(4), seed=1)
    other.restore(state)
    for batch in expected:
        actual = next(other)
        assert np.array_equal(batch.rows, actual.rows) and torch.equal(batch.inputs[0], actual.inputs[0])
    with pytest.raises(CheckpointError, match="batch=4"):
        Loader(Numbers(10), FixedSize(5), seed=1).restore(state)


def test_odds_draw_the_rare_as_often_as_the_common():
    labels = np.array([0] * 90 + [1] * 10)
    loader = Loader(Numbers(100), FixedSize(10, 1 / np.bincount(labels)[labels]), seed=0)
    drawn = labels[np.concatenate(taken(loader, 200))]
    assert abs(drawn.mean() - 0.5) < 4 * 0.5 / np.sqrt(2000)


def test_validation_is_in_order_whole_and_unchanged():
    batches = list(in_order(Numbers(7), FixedSize(3)))
    assert np.array_equal(np.concatenate([b.rows for b in batches]), np.arange(7))
    assert torch.equal(torch.cat([b.inputs[0] for b in batches]), torch.arange(7.0))


def test_halves_of_samples_hold_the_whole():
    batch = Numbers(5).batch(np.arange(5))
    left, right = batch.split()
    assert torch.equal(torch.cat([left.targets, right.targets]), batch.targets)
    assert left.inputs[1] is None and len(left) + len(right) == 5
    assert len(Numbers(1).batch(np.arange(1)).split()) == 1


def test_fixed_size_is_at_least_one():
    with pytest.raises(ConfigError, match="at least one"):
        Loader(Numbers(3), FixedSize(0), seed=0)


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


def test_an_epoch_of_nothing_is_refused():
    with pytest.raises(DataError, match="there are no samples to train on"):
        Loader(Numbers(0), FixedSize(4), seed=0)


class Dice(Source):
    """Examples that are nothing but what was thrown for them."""

    def __len__(self) -> int:
        return 12

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> Samples:
        thrown = np.zeros(len(rows)) if rng is None else rng.random(len(rows))
        return Samples((torch.from_numpy(thrown),), torch.zeros(len(rows)), rows)


def test_chance_is_another_one_for_every_seed_epoch_and_batch():
    """Augmentation throws anew each time: no two batches of any run may share their dice, and a run repeats its own."""

    def thrown() -> dict[tuple, float]:
        loaders = {seed: Loader(Dice(), FixedSize(3), seed) for seed in (0, 1, 2)}
        return {
            (key, number, place): float(batch.inputs[0][0])
            for key, loader in loaders.items()
            for number in range(3)
            for place, batch in enumerate(epoch(loader))
        }

    first = thrown()
    assert len(first) == 3 * 3 * 4 and len(set(first.values())) == len(first)
    assert thrown() == first
    assert not any(batch.inputs[0].any() for batch in in_order(Dice(), FixedSize(3))), "validation throws none"


def test_short_pairs_come_as_often_as_requested():
    toy = Toy(200, longest=8)
    pairs = PairSource(**toy.columns(), eos=EOS, pad=PAD, repeat_short=3)
    rows = [row for batch in epoch(Loader(pairs, TokenBudget(60), 0)) for row in batch.rows]
    assert [rows.count(row) for row in range(200)] == [3 if size <= 3 else 1 for size in toy.sizes[:, 0]]
