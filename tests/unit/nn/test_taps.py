"""Looking inside costs nothing when nobody looks, and tells the truth when somebody does."""

import pytest
import torch
from torch import nn

from regard.nn.attention import SelfAttention, plain_attention
from regard.nn.masks import Causal, Lengths
from regard.nn.taps import Tap, watch

close = torch.testing.assert_close


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = SelfAttention(8, 2, 4, 4)
        self.second = SelfAttention(8, 2, 4, 4)

    def forward(self, x, mask):
        return self.second(self.first(x, mask), mask)


def test_a_tap_keeps_nothing_unless_watched():
    tap = Tap()
    tap.see("something")
    assert tap.seen is None and not tap.state_dict() and not list(tap.parameters())


def test_watched_weights_are_those_that_were_used(shake):
    model, x = shake(Two(), 3.0), torch.randn(3, 5, 8)
    for mask in (Causal(5), Lengths(torch.tensor([5, 2, 1]), 5)):
        with watch(model) as seen:
            model(x, mask)
        assert list(seen) == ["first.look", "second.look"]
        look = seen["first.look"][0]
        v = model.first.qkv(x).split(model.first.qkv.parts, -1)[2].unflatten(-1, (2, -1)).transpose(1, 2)
        close(look.weights() @ v, plain_attention(look.q, look.k, v, mask))
        close(model.first.out((look.weights() @ v).transpose(1, 2).flatten(2)), model.first(x, mask))


def test_a_pattern_chooses_and_every_call_is_kept():
    model = Two()
    with watch(model, "second.*") as seen:
        for size in (2, 3):
            model(torch.randn(1, size, 8), Causal(size))
    assert list(seen) == ["second.look"]
    assert [look.weights().shape[-1] for look in seen["second.look"]] == [2, 3]


def test_watching_ends_with_the_block_even_after_an_error():
    model = Two()
    with pytest.raises(ZeroDivisionError), watch(model):
        1 / 0  # noqa: B018
    assert model.first.look.seen is None and model.second.look.seen is None


def test_what_was_seen_stays_after_the_block():
    model = Two()
    with watch(model) as seen:
        model(torch.randn(1, 3, 8), Causal(3))
    model(torch.randn(1, 4, 8), Causal(4))
    assert len(seen["first.look"]) == 1 and seen["first.look"][0].weights().shape == (1, 2, 3, 3)
