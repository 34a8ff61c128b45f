"""Decoding with a cache equals attention over everything so far: word by word, and in chunks."""

import pytest
import torch

from regard.nn.attention import SelfAttention
from regard.nn.cache import Cache
from regard.nn.masks import Causal, Table

close = torch.testing.assert_close


@pytest.mark.parametrize("slots", [torch.arange, slice], ids=["tensor", "slice"])
@pytest.mark.parametrize("sizes", [[1] * 6, [6], [2, 3, 1], [4, 1, 1]], ids=str)
def test_cached_attention_is_attention_at_once(sizes, slots, shake):
    attention = shake(SelfAttention(width=8, heads=2, key_width=3, value_width=3), 2.0).double()
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    whole = attention(x, Causal(6))
    cache = Cache(layers=3, rows=2, heads=2, capacity=6, head_width=3, like=x)
    cache.keys.fill_(7.0)
    parts, start = [], 0
    for size in sizes:
        stop = start + size
        mask = Table(Causal(6).dense()[start:stop, :stop])
        parts.append(attention(x[:, start:stop], mask, cache.layer(1, slots(start, stop), stop)))
        start = stop
    close(torch.cat(parts, 1), whole)
    assert (cache.keys[[0, 2]] == 7.0).all()  # other layers were not touched


def test_rows_that_leave_take_their_keys_with_them():
    cache = Cache(layers=2, rows=3, heads=1, capacity=4, head_width=2, like=torch.zeros(1))
    layer = cache.layer(0, torch.tensor([0, 1]), 2)
    k, v = torch.randn(3, 1, 2, 2), torch.randn(3, 1, 2, 2)
    layer.extend(k, v)
    cache.select(torch.tensor([2, 0]), 2)
    keys, values = cache.layer(0, torch.tensor([2]), 3).extend(torch.ones(2, 1, 1, 2), torch.ones(2, 1, 1, 2))
    close(keys, torch.cat((k[[2, 0]], torch.ones(2, 1, 1, 2)), 2))
    close(values, torch.cat((v[[2, 0]], torch.ones(2, 1, 1, 2)), 2))
