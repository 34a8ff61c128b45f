"""Rows of text: every target once, the same shape always, nothing seen across documents, wherever we resume."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data.batch import Tokens
from regard.data.blocks import TextRows
from regard.data.loader import Loader, in_order
from regard.data.store import Flat
from regard.data.text import TokenFile
from regard.errors import CheckpointError, ConfigError, DataError


def numbered(length: int) -> TokenFile:
    """A text whose ids are its places, in shards of seven."""
    ids = np.arange(length)
    return TokenFile(Flat([ids[i : i + 7] for i in range(0, length, 7)]))


def records(lengths: list[int]) -> TokenFile:
    """Records with ids 100 i + place; the second half of each is the answer."""
    ids = np.concatenate([100 * i + np.arange(n) for i, n in enumerate(lengths)])
    answers = np.concatenate([np.arange(n) >= n // 2 for n in lengths])
    return TokenFile.of(ids, np.concatenate([[0], np.cumsum(lengths)]), answers)


def blocks_of(tokens: TokenFile, context: int, tokens_per_batch: int, seed: int, **more) -> Loader:
    rows = TextRows(tokens, context, tokens_per_batch)
    return Loader(rows, rows.plan, seed, **more)


def valid(tokens: TokenFile, context: int, tokens_per_batch: int) -> list[Tokens]:
    rows = TextRows(tokens, context, tokens_per_batch)
    return list(in_order(rows, rows.plan))


def epoch(blocks: Loader) -> list[Tokens]:
    return list(islice(blocks, blocks.batches_per_epoch))


def counted(batch: Tokens) -> list[tuple[int, int]]:
    """(input, target) of every target that counts."""
    yes = torch.ones_like(batch.targets, dtype=torch.bool) if batch.counts is None else batch.counts
    return list(zip(batch.inputs[yes].tolist(), batch.targets[yes].tolist(), strict=True))


# Text


@given(
    length=st.integers(60, 300), context=st.integers(1, 20), per_batch=st.integers(1, 90),
    seed=st.integers(0, 3), number=st.integers(0, 2),
)  # fmt: skip
def test_an_epoch_visits_every_target_once(length, context, per_batch, seed, number):
    blocks = blocks_of(numbered(length), context, per_batch, seed)
    blocks.restore(blocks.state() | {"epoch": number})
    batches = epoch(blocks)
    shape = (max(1, per_batch // context), context + 1)
    assert {tuple(batch.ids.shape) for batch in batches} == {shape}
    assert sorted(pair for batch in batches for pair in counted(batch)) == [(i, i + 1) for i in range(length - 1)]
    assert sum(batch.count for batch in batches) == length - 1


@given(length=st.integers(2, 300), context=st.integers(1, 20), per_batch=st.integers(1, 90))
def test_validation_visits_every_target_once_in_order(length, context, per_batch):
    first, second = (valid(numbered(length), context, per_batch) for _ in range(2))
    assert [pair for batch in first for pair in counted(batch)] == [(i, i + 1) for i in range(length - 1)]
    assert {tuple(batch.ids.shape) for batch in first} == {(max(1, per_batch // context), context + 1)}
    assert all(torch.equal(a.ids, b.ids) for a, b in zip(first, second, strict=True))
    assert all(batch.counts is None for batch in first[:-1])  # whole windows, so there is nothing to leave out


def test_rows_are_slices_of_text_with_new_offsets_each_epoch():
    blocks = blocks_of(numbered(1000), 10, 50, seed=1)
    starts = []
    for _ in range(4):
        rows = [row[counts].tolist() for b in epoch(blocks) for row, counts in zip(b.inputs, masks(b), strict=True)]
        assert all(row == list(range(row[0], row[0] + len(row))) for row in rows if row)
        assert Counter(map(len, rows))[10] >= 98
        starts.append(sorted({row[0] % 10 for row in rows if len(row) == 10}))
    assert all(len(start) == 1 for start in starts) and len({s[0] for s in starts}) > 1


def masks(batch: Tokens) -> torch.Tensor:
    return torch.ones_like(batch.targets, dtype=torch.bool) if batch.counts is None else batch.counts


def test_the_order_is_a_function_of_seed_and_epoch():
    def text(seed: int) -> list[list[list[int]]]:
        blocks = blocks_of(numbered(500), 10, 50, seed)
        return [[batch.ids.tolist() for batch in epoch(blocks)] for _ in range(2)]

    assert text(1) == text(1)
    assert text(1)[0] != text(1)[1] and text(1)[0] != text(2)[0]


@pytest.mark.parametrize("tokens", [numbered(400), records([5, 9, 3] * 30)], ids=["text", "records"])
@pytest.mark.parametrize("steps", [0, 3, 40])
def test_resuming_gives_the_batch_that_would_have_come(tokens, steps):
    one = blocks_of(tokens, 12, 40, seed=3, content=5)
    for _ in range(steps):
        next(one)
    other = blocks_of(tokens, 12, 40, seed=3, content=5)
    other.restore(one.state())
    for _ in range(10):
        a, b = next(one), next(other)
        assert torch.equal(a.ids, b.ids) and a.count == b.count
    assert one.state() == other.state()


@pytest.mark.parametrize("changed", ["context", "tokens_per_batch", "seed", "content", "length"])
def test_resuming_with_other_data_is_refused(changed):
    blocks = blocks_of(numbered(400), 12, 40, seed=3)
    told = "the data has changed" if changed == "content" else f"{changed}="
    with pytest.raises(CheckpointError, match=f"{told}.*resume with the data and settings"):
        blocks.restore(blocks.state() | {changed: 999})


def test_text_that_is_too_short():
    with pytest.raises(DataError, match=r"has 20 tokens to train on, one row needs 21; .* a context of at most 19"):
        blocks_of(numbered(20), 20, 100, seed=0)
    assert len(epoch(blocks_of(numbered(20), 19, 100, seed=0))) == 1
    with pytest.raises(ConfigError, match="at least one token"):
        blocks_of(numbered(20), 4, 0, seed=0)


# Records


@given(
    lengths=st.lists(st.integers(1, 14), min_size=1, max_size=40),
    context=st.integers(3, 20),
    per_batch=st.integers(1, 60),
)
def test_every_answer_is_learned_once_and_documents_are_apart(lengths, context, per_batch):
    tokens = records(lengths)
    expected = [
        (100 * i + t, 100 * i + t + 1)
        for i, n in enumerate(lengths)
        for t in range(min(n, context + 1) - 1)
        if t + 1 >= n // 2
    ]
    for batches in (epoch(blocks_of(tokens, context, per_batch, seed=0)), valid(tokens, context, per_batch)):
        assert sorted(pair for batch in batches for pair in counted(batch)) == expected
        assert sum(batch.count for batch in batches) == len(expected)
        for batch in batches:
            assert batch.documents.shape == batch.inputs.shape
            for ids, documents in zip(batch.inputs.tolist(), batch.documents.tolist(), strict=True):
                real = [(d, i // 100) for i, d in zip(ids, documents, strict=True) if d]
                assert len(set(real)) == len({d for d, _ in real})  # one number, one record


def test_packing_worked_out_by_hand():
    tokens = records([4, 5, 3, 2, 6])
    (batch,) = valid(tokens, context=7, tokens_per_batch=21)  # rows of 8 ids
    assert batch.ids.tolist() == [
        [0, 1, 2, 3, 200, 201, 202, 0],
        [100, 101, 102, 103, 104, 300, 301, 0],
        [400, 401, 402, 403, 404, 405, 0, 0],
    ]
    assert batch.documents.tolist() == [[1, 1, 1, 1, 2, 2, 2], [1, 1, 1, 1, 1, 2, 2], [1, 1, 1, 1, 1, 1, 0]]
    assert batch.counts.int().tolist() == [[0, 1, 1, 0, 1, 1, 0], [0, 1, 1, 1, 0, 1, 0], [0, 0, 1, 1, 1, 0, 0]]
    assert batch.rows.tolist() == [0, 1, 2]


def test_little_is_wasted():
    rng = np.random.default_rng(0)
    tokens = records(rng.integers(5, 60, 1000).tolist())
    blocks = blocks_of(tokens, 127, 8 * 127, seed=0)
    room = blocks.batches_per_epoch * 8 * 128
    assert len(tokens) / room > 0.95


# The batch


def test_a_batch_says_what_counts():
    whole = Tokens(torch.arange(8).view(2, 4))
    assert whole.inputs.tolist() == [[0, 1, 2], [4, 5, 6]] and whole.targets.tolist() == [[1, 2, 3], [5, 6, 7]]
    assert (whole.count, whole.chosen, len(whole)) == (6, None, 2)
    counts = torch.tensor([[True, False, True], [False, False, True]])
    some = Tokens(torch.arange(8).view(2, 4), counts=counts)
    assert some.count == 3
    assert some.targets.flatten()[some.chosen].tolist() == [1, 3, 7]


def test_halves_make_the_whole():
    (batch,) = valid(records([4, 5, 3, 2, 6]), 7, 21)
    parts = batch.split()
    assert [len(p) for p in parts] == [1, 2]
    assert sum(p.count for p in parts) == batch.count
    for name in ("ids", "counts", "documents"):
        assert torch.equal(torch.cat([getattr(p, name) for p in parts]), getattr(batch, name))
    assert np.concatenate([p.rows for p in parts]).tolist() == [0, 1, 2]
    assert parts[0].split() == [parts[0]]
    moved = batch.to("cpu")
    assert moved.count == batch.count and torch.equal(moved.ids, batch.ids)
    assert [len(p) for p in Tokens(torch.zeros(3, 5, dtype=torch.long)).split()] == [1, 2]
