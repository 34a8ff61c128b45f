"""Masks against tables drawn by hand; plain attention against fast, values and gradients, with nothing to see."""

import itertools

import pytest
import torch
from torch import tensor

from regard.nn.attention import attention_weights, fast_attention, plain_attention, product_attention, takes_products
from regard.nn.masks import Causal, Documents, Everything, Leaning, Lengths, Packed, TableMask, UpTo, Window

close = torch.testing.assert_close
T, F = True, False


def test_everything_is_no_table():
    assert Everything().dense() is None
    assert Everything().select(tensor([0])).dense() is None


def test_lengths_by_hand():
    mask = Lengths(tensor([3, 1, 0]), 3)
    assert mask.dense().shape == (3, 1, 1, 3)
    assert mask.dense()[:, 0, 0].tolist() == [[T, T, T], [T, F, F], [F, F, F]]


def test_causal_by_hand():
    assert Causal(3).dense().tolist() == [[T, F, F], [T, T, F], [T, T, T]]


def test_keys_up_to_a_place_by_hand():
    mask = UpTo(tensor([[0, 1], [2, 3]]), 4)
    rows = [[[1, 0, 0, 0], [1, 1, 0, 0]], [[1, 1, 1, 0], [1, 1, 1, 1]]]
    assert torch.equal(mask.dense(), tensor(rows).bool()[:, None])
    assert mask.dense() is mask.dense() and torch.equal(mask.select(tensor([1])).dense(), mask.dense()[1:])


def test_documents_by_hand():
    """Two documents, then padding as a third; one document in the other row."""
    table = Documents(tensor([[4, 4, 7, 0], [1, 1, 1, 1]])).dense()
    assert table.shape == (2, 1, 4, 4)
    assert table[0, 0].tolist() == [[T, F, F, F], [T, T, F, F], [F, F, T, F], [F, F, F, T]]
    assert torch.equal(table[1, 0], Causal(4).dense())


def test_window_by_hand():
    places = torch.arange(4)
    assert Window(Causal(4), places, places, 2).dense().tolist() == [
        [T, F, F, F],
        [T, T, F, F],
        [F, T, T, F],
        [F, F, T, T],
    ]
    both = Window(Everything(), places, places, 2).dense()
    assert both.tolist() == [[T, T, F, F], [T, T, T, F], [F, T, T, T], [F, F, T, T]]
    rows = Window(Everything(), tensor([[3], [1]]), places, 3).dense()  # each row at its own place
    assert rows[:, 0, 0].tolist() == [[F, T, T, T], [T, T, T, T]]


def test_packed_by_hand():
    """Two tokens, none, one, and one of padding."""
    mask = Packed(tensor([0, 2, 2, 3, 4], dtype=torch.int32), 4, longest=2)
    assert mask.dense().shape == (1, 1, 4, 4)
    assert mask.dense()[0, 0].tolist() == [[T, T, F, F], [T, T, F, F], [F, F, T, F], [F, F, F, T]]


def test_the_kernel_of_packed_rows_gets_what_it_wants(monkeypatch):
    """Stood in for by attention of one text after the other: T H K in, int32 starts, the longest text. And its
    gradients are those of the plain way with the whole table."""
    starts = tensor([0, 5, 5, 6, 13, 16], dtype=torch.int32)
    mask, seen = Packed(starts, 16, longest=7), []

    def one_by_one(q, k, v, first, second, longest, other):
        assert first is second is starts and first.dtype == torch.int32 and longest == other == 7
        seen.append(tuple(q.shape))
        parts = [
            torch.nn.functional.scaled_dot_product_attention(*(x[a:b].transpose(0, 1)[None] for x in (q, k, v)))
            for a, b in itertools.pairwise(starts.tolist())
            if b > a
        ]
        return torch.cat([y[0].transpose(0, 1) for y in parts])  # T H K

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", one_by_one)
    monkeypatch.setattr(Packed, "has_kernel", lambda self, q: True)
    given = [torch.randn(1, 16, 3, 4, dtype=torch.float64).transpose(1, 2) for _ in range(3)]  # 1 H T K
    results = []
    for attention in (fast_attention, plain_attention):
        inputs = [x.clone().requires_grad_() for x in given]
        y = attention(*inputs, mask)
        y.square().sum().backward()
        results.append([y.detach(), *(x.grad for x in inputs)])
    close(results[0], results[1])
    assert seen == [(16, 3, 4)]
    dropped = fast_attention(*given, mask, dropout=0.5)  # what the kernel cannot do goes the other way
    assert len(seen) == 1 and not torch.allclose(dropped, results[0][0])


def test_a_leaning_mask_adds_to_the_scores_of_those_that_may_be_seen():
    q = torch.zeros(1, 1, 2, 4, dtype=torch.float64)
    v = torch.eye(3, dtype=torch.float64)[None, None]
    mask = Leaning(TableMask(tensor([[T, T, F], [T, T, T]])), tensor([[[[0.0, 1.0, 9.0], [2.0, 0.0, 0.0]]]]))
    e = torch.e
    expected = tensor([[1 / (1 + e), e / (1 + e), 0.0], [e * e / (e * e + 2), 1 / (e * e + 2), 1 / (e * e + 2)]])
    for attention in (plain_attention, fast_attention):
        close(attention(q, torch.zeros_like(v[..., :1]).expand(-1, -1, -1, 4), v, mask)[0, 0], expected.double())


def test_what_the_kernels_take_is_worked_out_once():
    for mask in (TableMask(torch.ones(2, 2, dtype=torch.bool)), Leaning(Everything(), torch.zeros(1, 1, 2, 2))):
        first = mask.sdpa(torch.float32)["attn_mask"]
        assert mask.sdpa(torch.float32)["attn_mask"] is first
        assert mask.sdpa(torch.bfloat16)["attn_mask"].dtype == torch.bfloat16


def test_rows_of_a_batch_keep_their_masks():
    rows = tensor([2, 0])
    lengths = Lengths(tensor([3, 1, 2]), 3)
    assert torch.equal(lengths.select(rows).dense(), lengths.dense()[rows])
    table = TableMask(torch.rand(3, 1, 2, 3) > 0.5)
    assert torch.equal(table.select(rows).dense(), table.dense()[rows])
    assert torch.equal(Causal(3).select(rows).dense(), Causal(3).dense())


MASKS = {
    "everything": lambda: Everything(),
    "causal": lambda: Causal(5),
    "lengths": lambda: Lengths(tensor([5, 2, 1]), 5),
    "documents": lambda: Documents(tensor([[1, 1, 2, 2, 2], [0, 0, 0, 0, 1], [5, 4, 3, 2, 1]])),
    "leaning": lambda: Leaning(Causal(5), torch.randn(1, 2, 5, 5, generator=torch.Generator().manual_seed(1))),
    "a row of nobody": lambda: TableMask(tensor([[T, T, F, F, T], [F] * 5, [T] * 5, [F, F, F, F, T], [T, F, F, F, F]])),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=list(MASKS))
def test_plain_is_fast_values_and_gradients(mask):
    """Three heads with values wider than keys, in float64."""
    shapes = [(3, 2, 5, 4), (3, 2, 5, 4), (3, 2, 5, 6)]
    qkv = [(torch.randn(s, dtype=torch.float64) * 2).requires_grad_() for s in shapes]
    plain, fast = plain_attention(*qkv, mask()), fast_attention(*qkv, mask())
    close(plain, fast)
    expected = torch.randn_like(plain)
    for a, b in zip(torch.autograd.grad(plain, qkv, expected), torch.autograd.grad(fast, qkv, expected), strict=True):
        assert a.isfinite().all()
        close(a, b)


BEAMS = {
    "everything": Everything(),
    "lengths": Lengths(torch.arange(20) % 7 + 1, 7),
    "a row of nobody": TableMask(torch.rand(20, 1, 5, 7, generator=torch.Generator().manual_seed(1)) > 0.7),
}


@pytest.mark.parametrize("spread", [1.0, 30.0, torch.inf], ids=["usual", "too large for a power", "not finite"])
@pytest.mark.parametrize("mask", BEAMS.values(), ids=list(BEAMS))
@torch.no_grad()
def test_the_products_for_many_beams_are_plain_attention(mask, spread):
    """Also where scores that are masked are far larger than the rest."""
    q, k, v = torch.randn(20, 4, 5, 8), torch.randn(20, 4, 7, 8), torch.randn(20, 4, 7, 6)
    k[:, :, -1] *= spread
    q[0] *= 0.0 if spread == torch.inf else spread
    assert takes_products(q, k, mask)
    got = product_attention(q, k, v, mask.dense())
    close(got, plain_attention(q, k, v, mask), equal_nan=True)
    close(fast_attention(q, k, v, mask), got, rtol=0.0, atol=0.0, equal_nan=True)


@pytest.mark.parametrize("mask", [mask for name, mask in MASKS.items() if name != "leaning"])
@torch.no_grad()
def test_the_products_for_short_texts_are_plain_attention(mask, monkeypatch):
    """All texts together, and one at a time."""
    q, k, v = torch.randn(3, 2, 5, 4) * 2, torch.randn(3, 2, 5, 4), torch.randn(3, 2, 5, 6)
    expected = plain_attention(q, k, v, mask())
    close(product_attention(q, k, v, mask().dense()), expected)
    monkeypatch.setattr("regard.nn.attention.CACHED", 50)
    close(product_attention(q, k, v, mask().dense()), expected)


@pytest.mark.parametrize("threads", [1, 2])
@torch.no_grad()
def test_what_the_fused_kernel_does_better_is_left_to_it(threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    everything, several = Everything(), threads > 1

    def takes(texts: int, queries: int, keys: int) -> bool:
        return takes_products(torch.randn(texts, 4, queries, 8), torch.randn(texts, 4, keys, 8), everything)

    assert takes(16, 8, 64) and takes(16, 32, 32) and not takes(16, 1, 7)
    assert takes(16, 8, 65) == takes(16, 9, 33) == takes(16, 33, 9) == takes(16, 128, 128) == several
    assert takes(15, 5, 7) == takes(3, 5, 7) == several
    assert not takes(2, 5, 7) and not takes(16, 129, 9) and not takes(16, 9, 129)
    q, k = torch.randn(16, 4, 5, 8), torch.randn(16, 4, 7, 8)
    assert not takes_products(q.double(), k.double(), everything) and not takes_products(q, k[:, :2], everything)
    assert not takes_products(q, k, Leaning(everything, torch.zeros(1, 4, 5, 7)))
    with torch.enable_grad():
        assert not takes_products(q, k, everything)


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("queries", [1, 5])
def test_heads_that_share_keys_are_heads_with_copied_keys(groups, queries):
    q = torch.randn(2, 6, queries, 4, dtype=torch.float64)
    k, v = (torch.randn(2, 6 // groups, 5, 4, dtype=torch.float64) for _ in range(2))
    copied = [torch.stack([x] * groups, 2).flatten(1, 2) for x in (k, v)]  # neighbours share
    mask = Lengths(tensor([5, 2]), 5)
    expected = plain_attention(q, *copied, mask)
    close(plain_attention(q, k, v, mask), expected)
    close(fast_attention(q, k, v, mask), expected)


def test_a_query_with_nothing_to_see_gets_zeros():
    q = torch.randn(1, 1, 2, 4)
    mask = TableMask(tensor([[F, F], [T, F]]))
    assert attention_weights(q, q, mask.dense())[0, 0].tolist() == [[0, 0], [1, 0]]
    for attention in (plain_attention, fast_attention):
        out = attention(q, q, q, mask)[0, 0]
        assert out[0].tolist() == [0, 0, 0, 0]
        close(out[1], q[0, 0, 0])


def test_masked_weights_are_zero_and_the_rest_sum_to_one():
    q, k = torch.randn(3, 2, 4, 8), torch.randn(3, 2, 5, 8) * 3
    mask = Lengths(tensor([5, 2, 1]), 5).dense()
    weights = attention_weights(q, k, mask)
    assert weights.masked_select(~mask).abs().max() == 0
    close(weights.sum(-1), torch.ones(3, 2, 4))
