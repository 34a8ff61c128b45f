"""Decoding with a cache equals attention over everything so far: word by word, and in chunks."""

import pytest
import torch

from regard.errors import ConfigError
from regard.nn.attention import SelfAttention
from regard.nn.cache import Cache, Past, at_once
from regard.nn.masks import Causal, TableMask

close = torch.testing.assert_close


@pytest.mark.parametrize("slots", [torch.arange, slice], ids=["tensor", "slice"])
@pytest.mark.parametrize("sizes", [[1] * 6, [6], [2, 3, 1], [4, 1, 1]], ids=str)
def test_cached_attention_is_attention_at_once(sizes, slots, shake):
    attention = shake(SelfAttention(width=8, heads=2, key_width=3, value_width=3), 2.0).double()
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    whole = attention(x, Causal(6))
    cache = Cache(layers=3, rows=2, heads=2, capacity=6, head_width=3, like=x)
    for keys in cache.keys:
        keys.fill_(7.0)
    parts, start = [], 0
    for size in sizes:
        stop = start + size
        mask = TableMask(Causal(6).dense()[start:stop, :stop])
        parts.append(attention(x[:, start:stop], mask, cache.layer(1, slots(start, stop), stop)))
        start = stop
    close(torch.cat(parts, 1), whole)
    assert (cache.keys[0] == 7.0).all() and (cache.keys[2] == 7.0).all()  # other layers were not touched


def test_rows_that_leave_take_their_keys_with_them():
    cache = Cache(layers=2, rows=3, heads=1, capacity=4, head_width=2, like=torch.zeros(1))
    layer = cache.layer(0, torch.tensor([0, 1]), 2)
    k, v = torch.randn(3, 1, 2, 2), torch.randn(3, 1, 2, 2)
    layer.extend(k, v)
    cache.select(torch.tensor([2, 0]), 2)
    keys, values = cache.layer(0, torch.tensor([2]), 3).extend(torch.ones(2, 1, 1, 2), torch.ones(2, 1, 1, 2))
    close(keys, torch.cat((k[[2, 0]], torch.ones(2, 1, 1, 2)), 2))
    close(values, torch.cat((v[[2, 0]], torch.ones(2, 1, 1, 2)), 2))


def test_rows_may_become_more():
    cache = Cache(layers=1, rows=2, heads=1, capacity=3, head_width=2, like=torch.zeros(1))
    k = torch.randn(2, 1, 2, 2)
    cache.layer(0, slice(0, 2), 2).extend(k, -k)
    cache.select(torch.tensor([1, 0, 1]), 2)
    keys, values = cache.layer(0, slice(2, 3), 3).extend(torch.ones(3, 1, 1, 2), torch.ones(3, 1, 1, 2))
    close(keys, torch.cat((k[[1, 0, 1]], torch.ones(3, 1, 1, 2)), 2))
    close(values, torch.cat((-k[[1, 0, 1]], torch.ones(3, 1, 1, 2)), 2))


def past(rows=2, capacity=6, fixed=False) -> Past:
    state = Past(Cache(layers=1, rows=rows, heads=1, capacity=capacity + 1, head_width=1, like=torch.zeros(1)))
    state.cache.clear(slice(None))
    state.fixed = fixed
    return state


def written(step, tokens, rows=2):
    """Keys so far, after this step's keys 1, 2, 3 … are written."""
    k = torch.arange(1.0, tokens + 1).expand(rows, 1, -1)[..., None]
    return step.caches[0].extend(k, k)[0][:, 0, :, 0].tolist()


def test_rows_that_stand_at_one_place_use_slices_and_few_masks():
    state = past()
    step = state.grow(2)
    assert step.mask.sdpa(torch.float32) == {"is_causal": True} and step.where.tolist() == [0, 1]
    assert written(step, 2) == [[1, 2]] * 2
    step = state.grow(1)
    assert step.mask.dense() is None and step.where.tolist() == [2]  # one word sees all there is
    assert written(step, 1) == [[1, 2, 1]] * 2
    step = state.grow(2)
    assert step.mask.dense().tolist() == [[True] * 4 + [False], [True] * 5]
    assert step.keys.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("fixed", [False, True])
def test_rows_that_stand_apart_write_and_look_each_at_its_place(fixed):
    state = past(fixed=fixed)
    state.grow(3, torch.tensor([3, 1]))
    step = state.grow(2)
    assert step.where.tolist() == [[3, 4], [1, 2]] and state.places.tolist() == [5, 3]
    table = step.mask.dense()[:, 0].int()
    assert table[..., :5].tolist() == [[[1, 1, 1, 1, 0], [1] * 5], [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0]]]
    assert table.size(-1) == (6 if fixed else 5) and not table[..., 5:].any()
    assert [row[:5] for row in written(step, 2)] == [[0, 0, 0, 1, 2], [0, 1, 2, 0, 0]]


def test_what_was_never_written_is_never_mixed_in():
    """Memory may hold anything, NaN too; weight zero times NaN would be NaN."""
    state = past()
    for whole in (*state.cache.keys, *state.cache.values):
        whole.fill_(torch.nan)
    written(state.grow(2, torch.tensor([2, 1])), 2)
    step = state.grow(1)
    assert torch.tensor(written(step, 1)).isfinite().all()


def test_step_with_device_positions_never_syncs_the_host():
    """What may be replayed: the same Python objects come out, whatever the places are."""
    state = past(fixed=True)
    state.grow(2)
    before = state.stop, state.level, state.places.data_ptr()
    first, second = state.grow(1), state.grow(1)
    assert (state.stop, state.level, state.places.data_ptr()) == before
    assert first.stop == second.stop == 6
    assert first.mask.dense().shape == second.mask.dense().shape == (2, 1, 1, 6)
    assert [first.where.tolist(), second.where.tolist()] == [[[2], [2]], [[3], [3]]]
    state.grow(4)  # beyond the capacity: finished rows that go on do no harm
    assert state.grow(1).where.tolist() == [[5], [5]]


def test_a_full_cache_says_so():
    state = past()
    state.grow(5)
    with pytest.raises(ConfigError, match="7 tokens do not fit into a cache for 6"):
        state.grow(2)
    state.grow(1)


def test_places_restart_with_every_document():
    documents = torch.tensor([[3, 3, 1, 1, 1], [0, 0, 0, 0, 0]])
    step = at_once(torch.zeros(2, 5, dtype=torch.long), documents, layers=2)
    assert step.where.tolist() == [[0, 1, 0, 1, 2], [0, 1, 2, 3, 4]]
    assert step.keys is step.where and step.caches == [None, None]


def test_one_index_into_all_rows_writes_what_three_do():
    whole, flat = (Cache(2, 3, 2, 5, 4, torch.empty(0)) for _ in range(2))
    for one, other in zip((*whole.keys, *whole.values), (*flat.keys, *flat.values), strict=True):
        other.copy_(one.normal_())
    slots = torch.tensor([[4, 0], [1, 2], [3, 4]])
    k, v = torch.randn(2, 3, 2, 2, 4)
    wants, gots = whole.layer(1, slots, 4).extend(k, v), flat.ragged(slots, 4)[1].extend(k, v)
    for want, got in zip((*wants, *whole.keys, *whole.values), (*gots, *flat.keys, *flat.values), strict=True):
        assert torch.equal(want, got)
