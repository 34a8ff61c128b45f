"""Perplexity of models whose probabilities are written down, window by window; and beside transformers' losses."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard.errors import ConfigError, DataError
from regard.metrics.perplexity import perplexity, windows


class Fake(nn.Module):
    """A table of next-token probabilities, one row per state."""

    def __init__(self, table: list[list[float]], context: int = 0):
        super().__init__()
        self.table = torch.tensor(table, dtype=torch.float64)
        self.config = SimpleNamespace(vocab=self.table.size(1), context=context)
        self.shapes: list[tuple[int, ...]] = []

    def logits(self, hidden):
        return (hidden @ self.table).log()


class Bigram(Fake):
    """The state is the last id."""

    def forward(self, ids, documents=None):
        self.shapes.append(tuple(ids.shape))
        return F.one_hot(ids, len(self.table)).double()


class Places(Fake):
    """The state is the place in the window: how much context a target had."""

    def forward(self, ids, documents=None):
        return F.one_hot(torch.arange(ids.size(1)).expand(ids.shape), len(self.table)).double()


# From 0: 1 bit to 0, 2 bits to 1 and 2. From 1: 3 bits to 1, 1 bit to 2 (and the rest to 0). From 2: always 0.
HALVES = [[1 / 2, 1 / 4, 1 / 4], [3 / 8, 1 / 8, 1 / 2], [1, 0, 0]]
TEXT = [0, 1, 1, 2, 0, 0, 2, 0]
BITS = 2 + 3 + 1 + 0 + 1 + 2 + 0  # of the seven targets


@pytest.mark.parametrize(("context", "stride"), [(7, 7), (3, 3), (3, 1), (4, 2), (100, 100), (1, 1), (5, 4)])
@pytest.mark.parametrize("tokens", [1, 6, 1000])
def test_a_bigram_table_by_hand(context, stride, tokens):
    """A bigram model needs one id of context, so all windows give the same: 9 bits for 7 targets."""
    got = perplexity(Bigram(HALVES), np.array(TEXT, dtype=np.uint16), context, stride, tokens, bytes=18, words=2)
    assert got.loss == pytest.approx(BITS * math.log(2) / 7)
    assert got.perplexity == pytest.approx(2 ** (BITS / 7))
    assert got.bits_per_byte == pytest.approx(BITS / 18)
    assert got.word_perplexity == pytest.approx(2 ** (BITS / 2))
    assert (got.targets, got.context, got.stride) == (7, context, stride)


@pytest.mark.parametrize(
    ("context", "stride", "places"),
    [
        (4, 4, [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]),  # the last window is short
        (4, 2, [0, 1, 2, 3, 2, 3, 2, 3, 2, 3]),
        (4, 3, [0, 1, 2, 3, 1, 2, 3, 1, 2, 3]),
        (4, 1, [0, 1, 2, 3, 3, 3, 3, 3, 3, 3]),
        (5, 4, [0, 1, 2, 3, 4, 1, 2, 3, 4, 1]),
        (10, 3, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (1, 1, [0] * 10),
    ],
)
def test_every_target_is_scored_once_with_the_context_promised(context, stride, places):
    """The model says how sure it is at each place, so the loss tells which place every target was scored at."""
    p = [1 / (2 + place) for place in range(10)]
    model = Places([[x, 1 - x] for x in p])
    got = perplexity(model, [0] * 11, context, stride, tokens_per_batch=8)
    assert got.loss == pytest.approx(sum(-math.log(p[place]) for place in places) / 10)
    scored = [(start, i) for start, stop, first in windows(10, context, stride) for i in range(first, stop)]
    assert [i for _, i in scored] == list(range(10))
    assert [i - start for start, i in scored] == places


@pytest.mark.parametrize(("context", "stride"), [(16, 16), (16, 5), (7, 3), (16, 1)])
def test_a_gpt_has_the_losses_of_transformers(context, stride, shake, tmp_path):
    """Their way of striding: of each window only the labels that no window before it had, the others set to -100."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from regard.models.published import load_model

    theirs = shake(GPT2LMHeadModel(GPT2Config(vocab_size=61, n_positions=17, n_embd=16, n_layer=2, n_head=2))).eval()
    theirs.lm_head.weight.data.mul_(20)  # tied; at its birth all words are nearly equal
    theirs.save_pretrained(tmp_path)
    ours, theirs = load_model(tmp_path).double(), theirs.double()
    ids = torch.randint(0, 61, (1, 50))
    total, done = 0.0, 1  # the first id is no target
    for start in range(0, 49, stride):
        stop = min(start + context + 1, 50)  # a window of their labels holds its inputs, and one more id
        labels = ids.clone()
        labels[:, :done] = -100
        if done < stop:
            with torch.no_grad():
                loss = theirs(ids[:, start:stop], labels=labels[:, start:stop]).loss
            total += loss.item() * (stop - done)
            done = stop
    assert done == 50
    got = perplexity(ours, ids[0].numpy(), context, stride, tokens_per_batch=64)
    assert got.loss == pytest.approx(total / 49, rel=1e-6)  # they take the softmax in float32


def test_batches_hold_whole_windows_up_to_the_tokens_asked_for():
    model = Bigram(HALVES)
    perplexity(model, [0] * 24, context=4, stride=4, tokens_per_batch=11)
    assert model.shapes == [(2, 4), (2, 4), (1, 4), (1, 3)]


def test_evaluation_is_still_and_leaves_the_mode_as_it_was():
    class Dropping(Bigram):
        def forward(self, ids, documents=None):
            return F.dropout(super().forward(ids), 0.5, self.training) + 1e-3

    model = Dropping(HALVES).train()
    first = perplexity(model, TEXT, 4, 2)
    assert first == perplexity(model, TEXT, 4, 2) and model.training
    perplexity(model.eval(), TEXT, 4, 2)
    assert not model.training


def test_bytes_and_words_that_are_not_known_are_not_made_up():
    got = perplexity(Bigram(HALVES), TEXT, 4, 4)
    assert got.bits_per_byte == got.word_perplexity == 0
    assert "byte" not in str(got) and "word" not in str(got)
    assert "7 targets; context 4, stride 4" in str(got)
    full = str(perplexity(Bigram(HALVES), TEXT, 4, 4, bytes=18, words=2))
    assert "0.5000 bits per byte" in full and "22.63 per word" in full


def test_hopeless_is_a_number_too():
    got = perplexity(Bigram([[1 - 1e-300, 1e-300]] * 2), [0, 1, 1, 1], 2, 2, words=1)
    assert math.isfinite(got.word_perplexity)


def test_what_cannot_be_scored_is_said():
    model = Bigram(HALVES, context=4)
    for context in (0, 5):
        with pytest.raises(ConfigError, match=f"context is {context}; this model reads 1 to 4"):
            perplexity(model, TEXT, context, 1)
    for stride in (0, 4):
        with pytest.raises(ConfigError, match=f"stride {stride} with context 3"):
            perplexity(model, TEXT, 3, stride)
    with pytest.raises(DataError, match="a text of 1 ids"):
        perplexity(model, [0], 2, 2)
    with pytest.raises(DataError, match="holds the id 3, but the model has only ids below 3"):
        perplexity(model, [0, 3, 0], 2, 2)
