"""What is drawn: tables by hand, and frequencies against probabilities."""

import math
import struct
from collections import Counter

import pytest
import torch
from transformers.generation import logits_process as theirs

from regard.generate.sampling import (
    choose,
    choose_each,
    draw,
    gumbel,
    likeliest,
    min_p,
    narrowed,
    no_repeat_ngrams,
    prompt_uniforms,
    repetition_penalty,
    row_uniforms,
    top_k,
    top_p,
    within_reach,
)
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


@pytest.mark.parametrize(
    ("least", "words"), [(0.01, [0, 1, 2, 3, 4]), (0.13, [0, 1, 3, 4]), (0.26, [1, 3, 4]), (0.51, [1, 3]), (1, [1])]
)
def test_min_p_by_hand(least, words):
    """Shares of the likeliest: .25, 1, .125, .625, .5."""
    assert kept(min_p(WORDS, least)) == words


def test_zero_and_one_keep_everything():
    assert torch.equal(top_k(WORDS, 0), WORDS) and torch.equal(top_p(WORDS, 1.0), WORDS)
    assert torch.equal(min_p(WORDS, 0.0), WORDS)


def test_repetition_penalty_by_hand():
    logits, seen = torch.tensor([[2.0, -2.0, 3.0, -1.0]]), torch.tensor([[True, True, False, False]])
    assert repetition_penalty(logits, seen, 2.0).tolist() == [[1.0, -4.0, 3.0, -1.0]]
    assert repetition_penalty(logits, seen, 0.5).tolist() == [[4.0, -1.0, 3.0, -1.0]]


HOWS = [
    dict(temperature=0.7),
    dict(k=7),
    dict(p=0.8),
    dict(least=0.1),
    dict(temperature=1.7, k=40),
    dict(temperature=0.6, k=40, p=0.9),
    dict(temperature=1.3, p=0.95, least=0.03),
    dict(temperature=0.9, k=30, p=0.7, least=0.2),
    dict(p=0.99),
]


@pytest.mark.parametrize("how", HOWS, ids=str)
def test_what_is_kept_is_what_transformers_keeps(how):
    """The same words with the same odds, filters in the same order."""
    rest = logits = 3 * torch.randn(20, 500)
    for name, filter in (
        ("temperature", theirs.TemperatureLogitsWarper),
        ("k", theirs.TopKLogitsWarper),
        ("p", theirs.TopPLogitsWarper),
        ("least", theirs.MinPLogitsWarper),
    ):
        rest = filter(how[name])(None, rest) if name in how else rest
    ours = narrowed(logits, **how)
    assert torch.equal(ours.isfinite(), rest.isfinite())
    torch.testing.assert_close(ours.softmax(-1), rest.softmax(-1))


def test_the_penalty_is_that_of_transformers():
    logits, ids = 3 * torch.randn(20, 500), torch.randint(0, 500, (20, 30))
    seen = torch.zeros(20, 500, dtype=torch.bool).scatter(1, ids, True)
    expected = theirs.RepetitionPenaltyLogitsProcessor(1.3)(ids, logits)
    torch.testing.assert_close(repetition_penalty(logits, seen, 1.3), expected)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_ngrams_are_those_of_transformers(n):
    """Of rows of different lengths, the shortest with less than an n-gram."""
    logits, ids, lengths = torch.randn(20, 5), torch.randint(0, 5, (20, 20)), torch.arange(1, 21)
    got = no_repeat_ngrams(logits, ids, lengths, n)
    for row, length in enumerate(lengths):
        expected = theirs.NoRepeatNGramLogitsProcessor(n)(ids[row : row + 1, :length], logits[row : row + 1])
        assert torch.equal(got[row : row + 1], expected)
    assert 0 < got.isinf().sum() < got.numel()


@pytest.mark.parametrize("how", [dict(), *HOWS], ids=str)
@pytest.mark.parametrize("spread", [1.0, 6.0])
def test_the_short_way_draws_what_the_plain_way_draws(how, spread):
    """Few words looked at, the same word drawn; also with numbers that live on the device."""
    logits, uniform = spread * torch.randn(60, 2000), torch.rand(60, dtype=torch.double)
    plain = draw(narrowed(logits, **how), uniform)
    assert torch.equal(choose(logits, uniform, **how), plain)
    numbers = {name: value if name == "k" else torch.tensor(value) for name, value in how.items()}
    assert torch.equal(choose(logits, uniform, **numbers), plain)
    alone = [choose(logits[b : b + 1], uniform[b : b + 1], **how) for b in range(60)]
    assert torch.equal(torch.cat(alone), plain)


def test_within_reach_are_all_that_top_p_keeps_and_not_many_more():
    logits = 6 * torch.randn(3, 5000)
    near = within_reach(logits.log_softmax(-1), 0.9)
    keeps = top_p(logits, 0.9).isfinite().any(0).nonzero().squeeze(1)
    assert set(keeps.tolist()) <= set(near.tolist()) and len(near) < 2500
    flat = torch.zeros(1, 64).log_softmax(-1)  # all words alike: all are needed
    assert len(within_reach(flat, 0.999)) == 64


def test_however_cold_it_is_greedy():
    logits = 40 * torch.randn(50, 300)
    for temperature in (1e-3, 1e-30, 1e-44):
        assert torch.equal(choose(logits, torch.rand(50), temperature), logits.argmax(-1))
    assert torch.equal(narrowed(logits, 0.0).softmax(-1), torch.nn.functional.one_hot(logits.argmax(-1), 300).float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_likeliest_is_the_first_of_equals(dtype):
    logits = torch.randn(50, 999, dtype=dtype)
    assert torch.equal(likeliest(logits), logits.float().argmax(-1) if dtype == torch.bfloat16 else logits.argmax(-1))
    assert likeliest(torch.tensor([0.0, 3.0, 1.0, 3.0], dtype=dtype)).item() == 1
    part = torch.randn(7, 64, dtype=dtype)[:, :50]  # as a padded head gives them
    assert torch.equal(likeliest(part), likeliest(part.contiguous()))


def test_rows_are_filtered_each_by_itself():
    both = torch.stack([WORDS, WORDS.flip(0)])
    assert [kept(row) for row in top_k(both, 2)] == [[1, 3], [1, 3]]
    assert [kept(row) for row in top_p(both, 0.7)] == [[1, 3, 4], [0, 1, 3]]


def splitmix64(seed: int, nth: int) -> int:
    """The n-th number of SplitMix64, counted from 1, in whole numbers of any size."""
    z = (seed + nth * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


def test_noise_is_made_of_splitmix64():
    """Its published first numbers, and the same noise from whole numbers and `math`."""
    assert [splitmix64(1234567, n) for n in (1, 2)] == [6457827717110365317, 3203168211198807973]
    for uniform in (0.0, 0.3, 1 - 2**-53):
        seed = splitmix64(struct.unpack("<Q", struct.pack("<d", uniform))[0], 0)
        expected = [-math.log(-math.log(((splitmix64(seed, n) >> 12) + 0.5) / 2**52)) for n in range(-3, 40)]
        got = gumbel(torch.tensor([uniform], dtype=torch.double), torch.arange(-3, 40))
        assert got.tolist() == pytest.approx(expected, rel=1e-12)


def test_a_word_that_was_cut_is_never_drawn():
    cut = torch.tensor([-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf])
    drawn = draw(cut.expand(1000, 5), torch.rand(1000))
    assert set(drawn.tolist()) == {1, 3}
    far = torch.full((1000, 1000), -torch.inf)
    far[:, [7, 900]] = 0.0
    assert set(draw(far, torch.rand(1000)).tolist()) == {7, 900}


def test_a_draw_is_hardly_moved_by_rounding():
    """Errors of at most e in every logit flip a draw with a probability of e / 3: 1.7 of these 5,000, and 12 with odds
    below one in a million. Inverting a cumulative distribution in the order of the vocabulary flips about 150."""
    error, flips = 1e-3, 0
    for _ in range(5):
        logits, uniform = 2 * torch.randn(1000, 2000), torch.rand(1000, dtype=torch.double)
        moved = logits + error * (2 * torch.rand_like(logits) - 1)
        flips += int((draw(logits, uniform) != draw(moved, uniform)).sum())
    assert flips < 12


def test_words_of_several_blocks_come_as_often_as_they_should():
    """20,000 draws of 300 words: five standard deviations for each."""
    words = torch.randn(300).log_softmax(-1)
    drawn = draw(words.expand(20_000, 300), torch.rand(20_000, dtype=torch.double)).bincount(minlength=300) / 20_000
    p = words.exp()
    assert ((drawn - p).abs() < 5 * (p * (1 - p) / 20_000).sqrt()).all()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_are_the_probabilities(temperature):
    """40,000 draws: five standard deviations are at most 0.0125 (odds of a false alarm under one in 100,000)."""
    uniform = row_uniforms(list(range(400)), 100, seed=3).flatten()
    ids = draw((WORDS / temperature).expand(40_000, 5), uniform)
    expected = WORDS.exp() ** (1 / temperature)
    torch.testing.assert_close(ids.bincount(minlength=5) / 40_000, expected / expected.sum(), rtol=0, atol=0.0125)


def test_luck_is_a_rows_own():
    """Whatever company, order or length: row 5 of seed 1 has the same numbers."""
    assert torch.equal(row_uniforms([5, 2], 40, 1)[0], row_uniforms([5], 40, 1)[0])
    assert torch.equal(row_uniforms([2, 5], 40, 1)[1], row_uniforms([5], 40, 1)[0])
    for steps in (1, 7, 16, 33):
        assert torch.equal(row_uniforms([5], 40, 1)[0, :steps], row_uniforms([5], steps, 1)[0])
    assert not torch.equal(row_uniforms([5], 40, 1), row_uniforms([6], 40, 1))
    assert not torch.equal(row_uniforms([5], 40, 1), row_uniforms([5], 40, 2))


def test_luck_of_is_the_prompts_own():
    """However many steps; another completion, prompt or seed has other luck. Fine enough for a rare word."""
    numbers = prompt_uniforms([3, 1], 2, 7, 40)
    for steps in (1, 7, 33):
        assert torch.equal(numbers[:steps], prompt_uniforms([3, 1], 2, 7, steps))
    others = [
        prompt_uniforms([3, 1], 1, 7, 40),
        prompt_uniforms([1, 3], 2, 7, 40),
        prompt_uniforms([3], 2, 7, 40),
        prompt_uniforms([3, 1], 2, -7, 40),
    ]
    assert not any((numbers == other).any() for other in others)
    many = prompt_uniforms([0], 0, 0, 50_000)
    assert many.dtype == torch.double and many.min() >= 0 and many.max() < 1 and len(many.unique()) == 50_000
    assert abs(many.mean() - 0.5) < 5 * (1 / 12 / 50_000) ** 0.5


@pytest.mark.parametrize(("temperature", "k"), [(1.0, 0), (0.5, 0), (2.0, 3)])
def test_sampled_sentences_come_as_often_as_the_model_says(model, batch, temperature, k):
    """4,000 sentences of at most two words and an end, the third step being out of room: five standard deviations."""
    n, source = 4000, batch.row(1)
    uniform = row_uniforms(list(range(n)), 3, seed=11)
    how = dict(eos=0, pad=5, temperature=temperature, k=k)
    hypotheses = sample(model, source.expand(n, -1), None, torch.full((n,), 3), uniform, start=how["pad"], **how)
    counts = Counter(
        tuple(row[:m]) for (row,), (m,) in zip(hypotheses.ids.tolist(), hypotheses.lengths.tolist(), strict=True)
    )
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


def test_rows_with_settings_of_their_own_draw_as_alone():
    """One pass for all rows, against `choose` for each."""
    logits = 3 * torch.randn(8, 300, dtype=torch.double)
    settings = torch.tensor(
        [
            [0, 0, 1, 0], [1, 0, 1, 0], [0.7, 5, 1, 0], [1.3, 0, 0.8, 0], [1, 0, 1, 0.1], [0.9, 50, 0.9, 0.02],
            [2, 1, 1, 0], [0.5, 300, 0.99, 0],
        ],
        dtype=torch.double,
    )  # fmt: skip
    for step in range(20):
        uniform = torch.rand(8, dtype=torch.double, generator=torch.Generator().manual_seed(step))
        together = choose_each(logits, uniform, settings)
        for row, (temperature, k, p, least) in enumerate(settings.tolist()):
            one = logits[row : row + 1]
            alone = (
                choose(one, uniform[row : row + 1], temperature, int(k), p, least) if temperature else one.argmax(-1)
            )
            assert together[row] == alone, (step, row)
