"""The plan of an epoch: everything once, within the budget, the same again, wherever we resume."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.loader import Loader, in_order, plan, widths
from regard.errors import CheckpointError, ConfigError, DataError

EOS, PAD = 0, 999


class Toy:
    """Pairs of random lengths; the first source id names the row."""

    def __init__(self, count: int, seed: int = 0, longest: int = 40):
        draw = np.random.default_rng(seed)
        self.sizes = draw.integers(1, longest, (count, 2))

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        s, t = self.sizes[i]
        return np.full(s, i + 1), np.full(t, i + 1)

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        return self.sizes[:, 0], self.sizes[:, 1]


def epoch(loader: Loader) -> list:
    return list(islice(loader, loader.batches_per_epoch))


@given(
    count=st.integers(8, 400),
    tokens=st.integers(30, 600),
    world=st.integers(1, 8),
    multiple=st.sampled_from([1, 8]),
    number=st.integers(0, 3),
)
def test_an_epoch_visits_every_pair_once_within_the_budget(count, tokens, world, multiple, number):
    toy = Toy(count)
    batches = plan(widths(toy, multiple), tokens, seed=1, epoch=number, world=world)
    assert sorted(np.concatenate(batches)) == list(range(count))
    assert len(batches) % world == 0
    budgeted = len(batches) if len(plan(widths(toy, multiple), tokens, 1, number)) + world <= count else 0
    for rows in batches[:budgeted]:
        assert len(rows) == 1 or len(rows) * widths(toy, multiple)[rows].max() <= tokens


@given(count=st.integers(8, 400), tokens=st.integers(1, 600), world=st.integers(1, 8))
def test_an_even_epoch_visits_every_pair_once_in_batches_of_as_many(count, tokens, world):
    """Also where the budget is less than a pair."""
    batches = plan(widths(Toy(count)), tokens, seed=1, epoch=0, world=world, sorted_together=4, evenly=True)
    assert sorted(np.concatenate(batches)) == list(range(count)) and len(batches) % world == 0
    sizes = [len(rows) for rows in batches]
    assert min(sizes) > 0 and (world > 1 or max(sizes) <= 2 * min(sizes))


def test_batches_hold_what_the_plan_says():
    toy = Toy(300)
    loader = Loader(toy, EOS, PAD, 200, seed=0)
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


def test_ranks_share_an_epoch():
    toy = Toy(301)
    loaders = [Loader(toy, EOS, PAD, 150, seed=4, rank=rank, world=3) for rank in range(3)]
    assert len({loader.batches_per_epoch for loader in loaders}) == 1
    rows = [row for loader in loaders for batch in epoch(loader) for row in batch.rows]
    assert sorted(rows) == list(range(301))


def test_hardly_a_pair_per_rank():
    batches = plan(widths(Toy(8)), tokens=1, seed=0, epoch=0, world=3)
    assert sorted(map(len, batches)) == [1, 1, 1, 1, 2, 2]
    assert sorted(np.concatenate(batches)) == list(range(8))


def test_order_is_a_function_of_seed_and_epoch():
    def rows(seed: int, count: int) -> list[tuple[int, ...]]:
        return [tuple(b.rows) for b in islice(Loader(Toy(200), EOS, PAD, 200, seed), count)]

    assert rows(0, 100) == rows(0, 100)
    assert rows(0, 20) != rows(1, 20)
    per_epoch = Loader(Toy(200), EOS, PAD, 200, 0).batches_per_epoch
    assert rows(0, 2 * per_epoch)[per_epoch:] != rows(0, per_epoch)


@pytest.mark.parametrize("after", [0, 1, 17, 18, 19, 55])
def test_resuming_anywhere_continues_the_same_run(after):
    toy = Toy(200)
    whole = [batch.rows.tolist() for batch in islice(Loader(toy, EOS, PAD, 400, 7), after + 40)]
    first = Loader(toy, EOS, PAD, 400, 7)
    for _ in range(after):
        next(first)
    state = first.state()
    assert all(type(value) is int for value in state.values())
    second = Loader(toy, EOS, PAD, 400, 7)
    second.restore(state)
    assert [batch.rows.tolist() for batch in islice(second, 40)] == whole[after:]


def test_a_position_of_another_run_is_refused():
    state = Loader(Toy(200), EOS, PAD, 400, 7).state()
    with pytest.raises(CheckpointError, match="tokens=400, this run has tokens=300"):
        Loader(Toy(200), EOS, PAD, 300, 7).restore(state)
    with pytest.raises(CheckpointError, match="pairs=200"):
        Loader(Toy(201), EOS, PAD, 400, 7).restore(state)


def test_sorting_leaves_little_padding():
    toy = Toy(20_000, longest=30)
    toy.sizes[:, 1] = toy.sizes[:, 0] + np.random.default_rng(1).integers(0, 4, 20_000)  # translations: alike in length
    loader = Loader(toy, EOS, PAD, 2000, 0)
    room = used = 0
    for batch in epoch(loader):
        room += batch.source.numel() + batch.target.numel()
        used += int(batch.source_lengths.sum() + batch.target_lengths.sum())
    assert loader.padding == pytest.approx(1 - used / room)
    assert loader.padding < 0.08  # in random order it is 0.45


def test_a_pair_beyond_the_budget_comes_alone():
    toy = Toy(50)
    toy.sizes[13] = 2000, 3
    batches = epoch(Loader(toy, EOS, PAD, 100, 0))
    assert [len(b) for b in batches if 13 in b.rows] == [1]


def test_in_order_is_one_sorted_pass():
    toy = Toy(150)
    batches = list(in_order(toy, EOS, PAD, 120))
    assert sorted(row for b in batches for row in b.rows) == list(range(150))
    longest = [b.target.size(1) for b in batches]
    assert longest == sorted(longest)
    assert [b.rows.tolist() for b in in_order(toy, EOS, PAD, 120)] == [b.rows.tolist() for b in batches]


def test_impossible_requests():
    with pytest.raises(DataError, match="2 pairs cannot be shared by 3"):
        Loader(Toy(2), EOS, PAD, 100, 0, world=3)
    with pytest.raises(ConfigError, match="at least one token"):
        Loader(Toy(2), EOS, PAD, 0, 0)


def test_dropout_sees_row_epoch_and_side():
    calls = []

    def spy(sentences, rows, epoch, side):
        calls.append((rows.tolist(), epoch, side))
        return [s[:1] for s in sentences]

    loader = Loader(Toy(30), EOS, PAD, 10_000, 0, dropout=spy)
    for expected in (0, 1):
        batch = next(loader)
        assert calls[-2:] == [(batch.rows.tolist(), expected, 0), (batch.rows.tolist(), expected, 1)]
        assert batch.source.shape == (30, 2)
