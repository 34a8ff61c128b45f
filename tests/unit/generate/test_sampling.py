"""What is drawn: tables by hand, and frequencies against probabilities."""

from collections import Counter

import pytest
import torch

from regard.generate.sampling import draw, luck, top_k, top_p
from regard.generate.search import sample

WORDS = torch.tensor([0.1, 0.4, 0.05, 0.25, 0.2]).log()  # likeliest first: 1, 3, 4, 0, 2


def kept(logits):
    return logits.isfinite().nonzero().flatten().tolist()


@pytest.mark.parametrize(
    ("k", "words"),
    [(1, [1]), (2, [1, 3]), (3, [1, 3, 4]), (4, [0, 1, 3, 4]), (5, [0, 1, 2, 3, 4]), (9, [0, 1, 2, 3, 4])],
)
def test_top_k_by_hand(k, words):
    assert kept(top_k(WORDS, k)) == words
    assert torch.equal(top_k(WORDS, k)[words], WORDS[words])  # those that stay keep their odds


@pytest.mark.parametrize(
    ("p", "words"),
    [(0.0, [1]), (0.01, [1]), (0.39, [1]), (0.41, [1, 3]), (0.64, [1, 3]), (0.66, [1, 3, 4]), (0.84, [1, 3, 4]),
     (0.86, [0, 1, 3, 4]), (0.94, [0, 1, 3, 4]), (0.96, [0, 1, 2, 3, 4]), (1.0, [0, 1, 2, 3, 4])],
)  # fmt: skip
def test_top_p_by_hand(p, words):
    """The smallest set of the likeliest words that reaches p: .4, .65, .85, .95, 1."""
    assert kept(top_p(WORDS, p)) == words


def test_zero_and_one_keep_everything():
    assert torch.equal(top_k(WORDS, 0), WORDS) and torch.equal(top_p(WORDS, 1.0), WORDS)


def test_rows_are_filtered_each_by_itself():
    both = torch.stack([WORDS, WORDS.flip(0)])
    assert [kept(row) for row in top_k(both, 2)] == [[1, 3], [1, 3]]
    assert [kept(row) for row in top_p(both, 0.7)] == [[1, 3, 4], [0, 1, 3]]


def test_draw_by_hand():
    """Cumulative .1 .5 .55 .8 1: where a number between 0 and 1 falls."""
    uniform = torch.tensor([0.0, 0.09, 0.11, 0.49, 0.51, 0.54, 0.56, 0.79, 0.81, 0.999999])
    assert draw(WORDS.expand(10, 5), uniform).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_a_word_that_was_cut_is_never_drawn():
    cut = torch.tensor([-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf])
    edges = torch.tensor([0.0, 0.5, 1 - 2**-24])
    assert draw(cut.expand(3, 5), edges).tolist() == [1, 3, 3]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_are_the_probabilities(temperature):
    """40,000 draws: five standard deviations are at most 0.0125 (odds of a false alarm under one in 100,000)."""
    uniform = luck(list(range(400)), 100, seed=3).flatten()
    ids = draw((WORDS / temperature).expand(40_000, 5), uniform)
    want = WORDS.exp() ** (1 / temperature)
    torch.testing.assert_close(ids.bincount(minlength=5) / 40_000, want / want.sum(), rtol=0, atol=0.0125)


def test_luck_is_a_rows_own():
    """Whatever company, order or length: row 5 of seed 1 has the same numbers."""
    assert torch.equal(luck([5, 2], 40, 1)[0], luck([5], 40, 1)[0])
    assert torch.equal(luck([2, 5], 40, 1)[1], luck([5], 40, 1)[0])
    for steps in (1, 7, 16, 33):
        assert torch.equal(luck([5], 40, 1)[0, :steps], luck([5], steps, 1)[0])
    assert not torch.equal(luck([5], 40, 1), luck([6], 40, 1))
    assert not torch.equal(luck([5], 40, 1), luck([5], 40, 2))


@pytest.mark.parametrize(("temperature", "k"), [(1.0, 0), (0.5, 0), (2.0, 3)])
def test_sampled_sentences_come_as_often_as_the_model_says(model, batch, temperature, k):
    """4,000 sentences of at most two words and an end, the third step being out of room: five standard deviations."""
    n, source = 4000, batch.row(1)
    uniform = luck(list(range(n)), 3, seed=11)
    how = dict(eos=0, pad=5, temperature=temperature, k=k)
    found = sample(model, source.expand(n, -1), None, torch.full((n,), 3), uniform, **how)
    counts = Counter(tuple(row[:m]) for (row,), (m,) in zip(found.ids.tolist(), found.lengths.tolist(), strict=True))
    first = next_word(model, source, [], temperature, k)
    known = {(0,): first[0]}
    for word in range(1, 5):
        second = next_word(model, source, [word], temperature, k)
        known[word, 0] = first[word] * second[0]
        known |= {(word, other, 0): first[word] * second[other] for other in range(1, 5)}
    assert set(counts) <= set(known) and sum(known.values()) == pytest.approx(1)
    for sentence, p in known.items():
        assert abs(counts[sentence] / n - p) < 5 * (p * (1 - p) / n) ** 0.5 + 1e-3, sentence


@torch.no_grad()
def next_word(model, source, words, temperature, k) -> list[float]:
    """Probabilities of words 0 to 4 after `words`, of which the k likeliest may come; padding is never said."""
    odds = (model.logits(model(source, None, torch.tensor([[5, *words]])))[0, -1, :5].double() / temperature).exp()
    least = sorted(odds.tolist())[-k] if k else 0.0
    odds = torch.where(odds >= least, odds, 0.0)
    return (odds / odds.sum()).tolist()
