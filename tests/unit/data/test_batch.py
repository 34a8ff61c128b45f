"""Batches against tables drawn by hand."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from regard.data.batch import Pairs, collate


@pytest.fixture
def batch() -> Pairs:
    return collate([[5, 6], [7], []], [[8], [9, 10, 11], [12, 13]], eos=0, pad=99, rows=[4, 2, 7])


def test_padded_tables(batch):
    assert batch.source.tolist() == [[5, 6, 0], [7, 0, 99], [0, 99, 99]]
    assert batch.target.tolist() == [[8, 0, 99, 99], [9, 10, 11, 0], [12, 13, 0, 99]]
    assert batch.inputs.tolist() == [[99, 8, 0, 99], [99, 9, 10, 11], [99, 12, 13, 0]]
    assert batch.source_lengths.tolist() == [3, 2, 1]
    assert batch.target_lengths.tolist() == [2, 4, 3]
    assert batch.rows.tolist() == [4, 2, 7]
    assert batch.targets_count == 9
    assert not batch.full_source
    assert batch.source.dtype == batch.inputs.dtype == torch.long


def test_padding_by_itself_is_a_part_that_counts_nothing():
    """As when a filled batch is cut very small, because memory runs out."""
    filled = collate([[5, 6]] * 17, [[8]] * 17, eos=0, pad=99).marked()
    padding = filled.part(slice(17, 18))
    assert len(filled) == 18 and padding.targets_count == 0
    assert padding.inputs.shape == padding.labels.shape == padding.source.shape == (1, 1)
    assert (padding.labels < 0).all() and padding.source_lengths.tolist() == [1]


def test_lengths_grow_to_a_multiple():
    batch = collate([[1] * 7], [[1] * 8], eos=0, pad=9, multiple=8)
    assert (batch.source.shape, batch.target.shape) == ((1, 8), (1, 16))
    assert batch.target[0].tolist() == [1] * 8 + [0] + [9] * 7
    assert batch.full_source and batch.targets_count == 9


def test_ids_of_any_width_fit():
    batch = collate([np.array([65_535], np.uint16)], [np.array([70_000], np.uint32)], eos=0, pad=70_001)
    assert (batch.source[0, 0], batch.target[0, 0]) == (65_535, 70_000)


def test_halves_are_what_collate_would_make(batch):
    first, second = batch.split()
    for part, (sources, targets) in zip(
        (first, second), [([[5, 6]], [[8]]), ([[7], []], [[9, 10, 11], [12, 13]])], strict=True
    ):
        whole = collate(sources, targets, 0, 99)
        for name in ("source", "source_lengths", "target", "target_lengths", "inputs"):
            assert_close(getattr(part, name), getattr(whole, name))
    assert first.targets_count + second.targets_count == batch.targets_count
    assert [*first.rows, *second.rows] == [4, 2, 7]
    assert first.full_source and first.split() == [first]


def test_moving_changes_nothing(batch):
    moved = batch.to("meta")
    assert moved.source.device.type == moved.target_lengths.device.type == "meta"
    assert moved.targets_count == 9 and not moved.full_source  # known without asking the device
    assert_close(batch.to("cpu").target, batch.target)
