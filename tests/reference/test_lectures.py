"""The examples of the lecture slides, worked out by hand there and computed here. docs/lectures.md tells the story."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn, tensor

from regard.models import build
from regard.models.transformer import TransformerConfig
from regard.nn import ladder
from regard.nn.attention import SelfAttention, merge_heads, plain_attention, split_heads
from regard.nn.blocks import FeedForward
from regard.nn.masks import Causal, Everything
from regard.nn.positions import Interleaved, Sinusoidal

close = torch.testing.assert_close

# -- keys and values ---------------------------------------------------------------------------------------------------

KEYS = tensor([[0.7, 0.0, 0.5], [0.0, 0.7, 0.5]])  # boy, girl: how much man, woman, child is in them
VALUES = tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])  # boy, girl: child, female, male
MAN, WOMAN, CHILD = torch.eye(3)


@pytest.mark.parametrize(("query", "answer"), [(MAN, [0.7, 0.0, 0.7]), (WOMAN, [0.7, 0.7, 0.0])], ids=["man", "woman"])
def test_key_value_mapping_one_query(query, answer):
    close(ladder.lookup(query, KEYS, VALUES), tensor(answer))


def test_key_value_mapping_as_a_matrix():
    got = ladder.lookup(torch.stack([MAN, WOMAN, CHILD]), KEYS, VALUES)
    close(got, tensor([[0.7, 0.0, 0.7], [0.7, 0.7, 0.0], [1.0, 0.5, 0.5]]))  # child: half of boy, half of girl


# -- the ladder --------------------------------------------------------------------------------------------------------


@pytest.fixture
def x():
    return torch.randn(4, 6, dtype=torch.float64)


@pytest.fixture
def maps():
    """Query, key and value maps: 6 -> 3, 6 -> 3, 6 -> 5."""
    return [torch.randn(6, n, dtype=torch.float64) for n in (3, 3, 5)]


def by_hand(scores, values):
    """Σ_j exp(s_ij) v_j / Σ_j exp(s_ij), number by number; a missing pair is None."""
    rows = []
    for row in scores:
        parts = [0.0 if s is None else math.exp(s) for s in row]
        rows.append(sum(p / sum(parts) * v for p, v in zip(parts, values, strict=True)))
    return torch.stack(rows)


def dots(a, b):
    return [[sum(p * q for p, q in zip(u, v, strict=True)) for v in b.tolist()] for u in a.tolist()]


def test_every_step_of_the_ladder_by_hand(x, maps):
    query, key, value = maps
    close(ladder.look_at_all(x)[0], by_hand(dots(x, x), x))
    others = [[None if i == j else s for j, s in enumerate(row)] for i, row in enumerate(dots(x, x))]
    close(ladder.look_at_others(x)[0], by_hand(others, x))
    close(ladder.with_values(x, value)[0], by_hand(dots(x, x), x @ value))
    qk = dots(x @ query, x @ key)
    close(ladder.with_queries_and_keys(x, *maps)[0], by_hand(qk, x @ value))
    close(ladder.scaled(x, *maps)[0], by_hand([[s / math.sqrt(3) for s in row] for row in qk], x @ value))


def test_weights_of_every_step_sum_to_one(x, maps):
    for _, weights in (
        ladder.look_at_all(x),
        ladder.look_at_others(x),
        ladder.with_values(x, maps[2]),
        ladder.with_queries_and_keys(x, *maps),
        ladder.scaled(x, *maps),
    ):
        assert weights.shape == (4, 4) and (weights >= 0).all()
        close(weights.sum(-1), torch.ones(4, dtype=torch.float64))


def test_looking_at_others_leaves_oneself_out(x):
    assert ladder.look_at_others(x)[1].diagonal().abs().max() == 0
    close(ladder.look_at_others(x[:1])[0], torch.zeros(1, 6, dtype=torch.float64))  # alone: nobody to look at


def test_the_last_step_is_torchs_attention_and_ours(x, maps):
    q, k, v = (x @ m for m in maps)
    top = ladder.scaled(x, *maps)[0]
    close(top, F.scaled_dot_product_attention(q[None], k[None], v[None])[0])
    close(top, plain_attention(q[None, None], k[None, None], v[None, None], Everything())[0, 0])
    unscaled = F.scaled_dot_product_attention(q[None], k[None], v[None], scale=1.0)[0]
    close(ladder.with_queries_and_keys(x, *maps)[0], unscaled)


# -- several heads, and the slide's encoder ----------------------------------------------------------------------------


def test_three_heads_of_width_two():
    """2x4 -> three heads of 2x2 -> side by side 2x6 -> 2x4."""
    attention = SelfAttention(width=4, heads=3, key_width=2, value_width=2).double()
    x = torch.randn(1, 2, 4, dtype=torch.float64)
    q, k, v = (split_heads(part, 3) for part in attention.qkv(x).split(attention.qkv.parts, -1))
    side_by_side = merge_heads(plain_attention(q, k, v, Everything()))
    assert (q.shape, v.shape, side_by_side.shape) == ((1, 3, 2, 2), (1, 3, 2, 2), (1, 2, 6))
    out = attention(x, Everything())
    assert out.shape == x.shape
    close(out, attention.out(side_by_side))

    # head by head, with the ladder: head h has rows 2h and 2h+1 of each map
    maps = attention.qkv.weight.split(attention.qkv.parts)
    biases = attention.qkv.bias.split(attention.qkv.parts)
    ones = torch.cat((x[0], torch.ones(2, 1, dtype=torch.float64)), 1)  # a bias is one more input that is always 1
    heads = []
    for h in range(3):
        rows = slice(2 * h, 2 * h + 2)
        q, k, v = (torch.cat((m[rows], b[rows, None]), 1).T for m, b in zip(maps, biases, strict=True))
        heads.append(ladder.scaled(ones, q, k, v)[0])
    close(side_by_side[0], torch.cat(heads, 1))


def test_the_slides_encoder_keeps_the_shape():
    """Attention, then one feed-forward shared by all rows; without residual or norm."""
    attention = SelfAttention(width=4, heads=3, key_width=2, value_width=2)
    mlp = FeedForward(4, 8, "relu")
    x = torch.randn(1, 2, 4)
    mixed = attention(x, Everything())
    out = mlp(mixed)
    assert out.shape == x.shape
    for row in range(2):  # each row by itself, through the same weights
        close(out[0, row], mlp.down.weight @ F.relu(mlp.up.weight @ mixed[0, row] + mlp.up.bias) + mlp.down.bias)


# -- positions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [8, 64, 512])
def test_halves_and_interleaved_differ_by_the_order_of_columns(width):
    columns = torch.cat((torch.arange(0, width, 2), torch.arange(1, width, 2)))
    assert torch.equal(Sinusoidal(100, width).table, Interleaved(100, width).table[:, columns])


@pytest.mark.parametrize("layout", [Sinusoidal, Interleaved])
def test_position_products_depend_on_distance_alone(layout):
    table = layout(200, 64).table.double()
    products = table @ table.T
    for k in (0, 1, 7, 50):
        along = products.diagonal(k)
        close(along, along[:1].expand_as(along), rtol=0, atol=2e-5)
        expected = sum(math.cos(k / 10000 ** (2 * i / 64)) for i in range(32))  # cos a cos b + sin a sin b = cos(a - b)
        close(along[0].item(), expected, rtol=0, atol=2e-5)
    assert (products[0, 1:] < products[0, 0]).all()


def encoder(positions, shake):
    config = TransformerConfig(
        vocab=11, width=16, heads=2, ffn=24, encoder_layers=2, decoder_layers=1, positions=positions, max_length=8
    )
    model = shake(build(config), 2.0).double().eval()
    return lambda ids: model.encode(ids[None], None)[0][0]  # S -> S D


WORDS, ORDER = tensor([3, 1, 4, 1, 5, 9]), tensor([4, 2, 0, 5, 1, 3])


def test_without_positions_an_encoder_reads_a_bag_of_words(shake):
    read = encoder("none", shake)
    close(read(WORDS[ORDER]), read(WORDS)[ORDER])  # shuffled words in, the same rows shuffled out
    close(read(WORDS[ORDER]).mean(0), read(WORDS).mean(0))
    close(read(WORDS)[1], read(WORDS)[3])  # the same word twice: nothing tells the two apart


@pytest.mark.parametrize("positions", ["sinusoidal", "interleaved", "learned"])
def test_with_positions_order_counts(positions, shake):
    read = encoder(positions, shake)
    assert (read(WORDS[ORDER]) - read(WORDS)[ORDER]).abs().max() > 0.1
    assert (read(WORDS[ORDER]).mean(0) - read(WORDS).mean(0)).abs().max() > 0.01
    assert (read(WORDS)[1] - read(WORDS)[3]).abs().max() > 0.02


# -- who may look at whom ----------------------------------------------------------------------------------------------


def test_the_causal_table_of_the_slide():
    """Lass uns diesen Satz uebersetzen: each word sees itself and the words before it."""
    drawn = """
        x . . . .
        x x . . .
        x x x . .
        x x x x .
        x x x x x
    """
    table = tensor([[mark == "x" for mark in line.split()] for line in drawn.split("\n") if line.strip()])
    assert torch.equal(Causal(5).dense(), table)


def test_a_word_cannot_be_told_what_follows_it():
    attention = SelfAttention(width=4, heads=2, key_width=2, value_width=2)
    x = torch.randn(1, 5, 4)
    changed = x.clone()
    changed[:, 3:] += 1
    before, after = attention(x, Causal(5)), attention(changed, Causal(5))
    close(before[:, :3], after[:, :3])
    assert (before[:, 3:] - after[:, 3:]).abs().max() > 1e-3


def test_weights_are_shared_over_time():
    """The slide's unrolled network: one cell, used at every step."""
    from regard.nn.recurrent import PlainRNN, unroll

    cell = PlainRNN(3, 4)
    x = torch.randn(1, 3, 3)
    h = torch.zeros(1, 4)
    for t in range(3):
        h = torch.tanh(x[:, t] @ cell.weight_ih.T + cell.bias_ih + h @ cell.weight_hh.T + cell.bias_hh)
    close(unroll(cell, x, (torch.zeros(1, 4),))[1][0], h)
    assert len(list(nn.ModuleList([cell]).parameters())) == 4
