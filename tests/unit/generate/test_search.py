"""Beam search against everything a toy can say, against a plain beam search, and against its own batch."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from regard.errors import ConfigError
from regard.generate import search
from regard.generate.search import Beam, Search, beam_search, search_fixed
from regard.generate.topk import LOG2, best_of, best_words
from regard.models import build
from regard.models.transformer import TransformerConfig
from regard.predictors import Translator

EOS, PAD = 0, 5


@pytest.fixture(params=[search.CACHED, 1], ids=["at once", "one sentence at a time"])
def cached(request, monkeypatch):
    """Logits computed at a time."""
    monkeypatch.setattr(search, "CACHED", request.param)


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def ranked(known, alpha):
    """Sentences best first by log-probability / penalty, with both numbers."""
    return sorted(((total / penalty(len(s), alpha), total, s) for s, total in known.items()), reverse=True)


def as_lists(found, b):
    return [tuple(ids[:n]) for ids, n in zip(found.ids[b].tolist(), found.lengths[b].tolist(), strict=True)]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_a_wide_beam_finds_what_enumeration_finds(model, batch, everything, alpha):
    """A beam of 85 holds all sentences of at most 3 words: the whole ranking must come out, of a ragged batch."""
    hypotheses = beam_search(
        model, batch.source, batch.lengths, torch.full((3,), 4), Search(beams=85, alpha=alpha, eos=EOS, pad=PAD)
    )
    for b in range(3):
        expected = ranked(everything(model, batch.row(b), 4), alpha)
        assert len(expected) == 85
        torch.testing.assert_close(
            hypotheses.scores[b].double(), torch.tensor([w[0] for w in expected]).double(), atol=1e-4, rtol=0
        )
        known = {s: (score, total) for score, total, s in expected}
        for n, sentence in enumerate(as_lists(hypotheses, b)):
            score, total = known.pop(sentence)  # each once
            assert hypotheses.scores[b, n].item() == pytest.approx(score, abs=1e-4)
            assert hypotheses.log_probabilities[b, n].item() == pytest.approx(total, abs=1e-4)


def test_the_penalty_changes_who_wins(model, batch, everything):
    """Otherwise the test above would say little about it."""
    known = everything(model, batch.row(0), 4)
    short, long = ranked(known, 0.0)[0][2], ranked(known, 4.0)[0][2]
    assert len(short) < len(long)


def repeats(ids, n):
    """Whether the last `n` ids come earlier, too."""
    return n and any(ids[i : i + n] == ids[-n:] for i in range(len(ids) - n))


@torch.no_grad()
def plain_beam_search(model, source, limit, beams, alpha, ngram=0):
    """Word by word with full passes: extend all, keep the 2N best, file endings among the N best, go on with N."""
    alive, results = [((), 0.0)], []
    for length in range(1, limit + 1):
        options = []
        for ids, total in alive:
            words = model.logits(model(source, None, torch.tensor([[PAD, *ids]])))[0, -1].double().log_softmax(-1)
            allowed = [EOS] if length == limit else [w for w in range(PAD) if not repeats((*ids, w), ngram)]
            options += [((*ids, w), total + words[w].item()) for w in allowed]
        options = sorted(options, key=lambda o: -o[1])[: 2 * beams]
        results += [(t / penalty(length, alpha), ids) for ids, t in options[:beams] if ids[-1] == EOS]
        alive = [o for o in options if o[0][-1] != EOS][:beams]
        if len(results) >= beams or not alive:
            break
    return sorted(results, reverse=True)[:beams]


@pytest.mark.parametrize(("beams", "ngram"), [(1, 0), (2, 0), (3, 0), (5, 0), (1, 1), (3, 2)])
def test_a_narrow_beam_is_the_plain_beam_search(model, batch, beams, ngram, cached):
    limits = torch.tensor([8, 6, 3])
    search = Search(beams=beams, alpha=0.6, eos=EOS, pad=PAD, no_repeat_ngram=ngram)
    hypotheses = beam_search(model, batch.source, batch.lengths, limits, search)
    for b in range(3):
        expected = plain_beam_search(model, batch.row(b), int(limits[b]), beams, 0.6, ngram)
        scores = [s for s in hypotheses.scores[b].tolist() if s > -float("inf")]
        assert scores == pytest.approx([w[0] for w in expected], abs=1e-4)
        assert as_lists(hypotheses, b)[: len(expected)] == [w[1] for w in expected]


@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.6, 3.0])
@pytest.mark.parametrize("wanted", [1, 2, 5])
def test_ending_early_loses_none_of_the_wanted(model, batch, alpha, wanted):
    whole, short = (
        beam_search(model, batch.source, batch.lengths, torch.full((3,), 9), how)
        for how in (Search(beams=5, alpha=alpha, eos=EOS, pad=PAD, wanted=n) for n in (0, wanted))
    )
    for b in range(3):
        assert as_lists(short, b)[:wanted] == as_lists(whole, b)[:wanted]
    assert torch.equal(short.scores[:, :wanted], whole.scores[:, :wanted])


def test_a_search_ends_when_nothing_can_be_better():
    """The best ending has a score of -1; whatever is alive has lost more than the penalty can give back."""
    beam = Beam(Search(beams=2, alpha=1.0, eos=EOS, pad=PAD, wanted=1), torch.tensor([7, 7, 7]), 7, None)
    beam.finished_scores[:, 0] = -1.0
    words = torch.tensor([[-1.9, -5.0], [-2.1, -5.0], [-4.0, -5.0]])  # penalty(7) is 2
    logits = torch.full((3, 1, 6), -1e9)
    logits[:, 0, 1:3] = words
    logits[:, 0, 3] = (1 - words.exp().sum(1)).log()  # the rest of the probability: alive at first, then taken out
    beam.scores[:] = 0.0
    beam.search = replace(beam.search, never=(3,))
    beam.never = torch.tensor([3])
    model = SimpleNamespace(config=SimpleNamespace(vocab=6), logits=lambda hidden: hidden)
    beam.advance(model, logits)
    assert beam.done.tolist() == [False, True, True]


@torch.no_grad()
def test_a_beam_of_one_is_greedy(model, batch):
    hypotheses = beam_search(model, batch.source, batch.lengths, torch.full((3,), 7), Search(beams=1, eos=EOS, pad=PAD))
    for b in range(3):
        ids = []
        while len(ids) < 7 and EOS not in ids:
            logits = model.logits(model(batch.row(b), None, torch.tensor([[PAD, *ids]])))[0, -1, :PAD]
            ids.append(int(logits.argmax()) if len(ids) < 6 else EOS)
        assert as_lists(hypotheses, b) == [tuple(ids)]


@pytest.mark.parametrize("look_every", [2, 3, 50])
def test_how_often_we_look_for_the_finished_changes_nothing(model, look_every):
    """A sentence that is finished and stays on must not find more; a penalty that loves long ones would show it."""
    source, limits = torch.randint(1, PAD, (12, 4)), torch.randint(2, 12, (12,))
    search = Search(beams=2, alpha=3.0, eos=EOS, pad=PAD)
    a, b = (beam_search(model, source, None, limits, search, None, n) for n in (1, look_every))
    alone = [beam_search(model, source[i : i + 1], None, limits[i : i + 1], search) for i in range(12)]
    assert torch.equal(a.ids, b.ids) and torch.equal(a.lengths, b.lengths)
    assert [as_lists(a, i) for i in range(12)] == [as_lists(one, 0) for one in alone]
    torch.testing.assert_close(a.scores, b.scores)


@pytest.mark.parametrize("ragged", [False, True])
def test_searches_in_fixed_memory_find_the_same(model, ragged):
    """As a GPU searches: all hypotheses from the start, sentences stay to the end, memory is used again."""
    search, shelf = Search(beams=3, eos=EOS, pad=PAD, no_repeat_ngram=2 * ragged), {}
    for seed in range(3):
        rng = torch.Generator().manual_seed(seed)
        source, limits = torch.randint(1, PAD, (5, 4), generator=rng), torch.randint(2, 8, (5,), generator=rng)
        limits[0] = 8
        lengths = torch.randint(1, 5, (5,), generator=rng) if ragged else None
        expected = beam_search(model, source, lengths, limits, search)
        got = search_fixed(model, source, lengths, limits, search, 2, shelf)
        assert [as_lists(got, b) for b in range(5)] == [as_lists(expected, b) for b in range(5)]
        torch.testing.assert_close(got.scores, expected.scores)
        torch.testing.assert_close(got.log_probabilities, expected.log_probabilities)
    assert len(shelf) == 1


def test_no_more_recorded_searches_are_kept_than_fit(model):
    search, shelf = Search(beams=2, eos=EOS, pad=PAD), {}
    for length in (2, 3, 4, 5, 6, 2):
        search_fixed(model, torch.ones(1, length, dtype=torch.long), None, torch.tensor([3]), search, 1, shelf)
    assert [key[0][1] for key in shelf] == [4, 5, 6, 2]


def test_every_sentence_has_its_own_limit_and_ends_in_it(model, batch):
    limits = torch.tensor([1, 2, 6])
    hypotheses = beam_search(model, batch.source, batch.lengths, limits, Search(beams=4, eos=EOS, pad=PAD))
    for b in range(3):
        for ids, score in zip(as_lists(hypotheses, b), hypotheses.scores[b].tolist(), strict=True):
            if score > -float("inf"):
                assert len(ids) <= limits[b] and ids[-1] == EOS and EOS not in ids[:-1] and PAD not in ids
    assert (
        as_lists(hypotheses, 0)[0] == (EOS,) and (hypotheses.scores[0, 1:] == -float("inf")).all()
    )  # one sentence has no words
    padding = torch.arange(6) >= hypotheses.lengths[:, :, None]
    assert (hypotheses.ids[padding & hypotheses.scores.isfinite()[:, :, None]] == PAD).all()


def test_a_least_length_is_kept(model, batch):
    search = Search(beams=3, min_length=4, eos=EOS, pad=PAD)
    hypotheses = beam_search(model, batch.source, batch.lengths, torch.full((3,), 7), search)
    assert hypotheses.scores.isfinite().all() and (hypotheses.lengths > 4).all()


def test_a_prefix_is_forced_and_the_rest_is_searched(model, batch, everything, cached):
    """Prefixes of different lengths; one sentence is free. Against enumeration of what may follow."""
    begins = [(4, 4), (), (2,)]
    prefix = torch.tensor([[4, 4], [PAD, PAD], [2, PAD]])
    search = Search(beams=85, alpha=0.6, eos=EOS, pad=PAD)
    hypotheses = beam_search(model, batch.source, batch.lengths, torch.full((3,), 4), search, prefix)
    for b in range(3):
        expected = ranked(everything(model, batch.row(b), 4, begins[b]), 0.6)
        got = [
            s for s, score in zip(as_lists(hypotheses, b), hypotheses.scores[b].tolist(), strict=True) if score > -1e9
        ]
        assert len(got) == len(expected) and got[0] == expected[0][2] and set(got) == {w[2] for w in expected}
        scores = hypotheses.scores[b, : len(expected)].tolist()
        assert scores == pytest.approx([w[0] for w in expected], abs=1e-4)


def test_best_of_is_topk():
    """Long rows take the way by blocks."""
    for k, size in ((1, 700), (6, 4000), (10, 6001)):
        scores = torch.randn(3, size)
        scores[0, : size // 2] = -torch.inf
        values, places = best_of(scores, k)
        assert torch.equal(values, scores.topk(k, 1).values)
        assert torch.equal(scores.gather(1, places), values) and all(len(set(r)) == k for r in places.tolist())


@pytest.mark.parametrize(("N", "V"), [(1, 4096), (5, 8000), (4, 8001), (5, 4127), (2, 20000)])
@pytest.mark.parametrize("spread", [1.0, 40.0], ids=["small logits", "large logits"])
def test_best_words_are_those_of_log_softmax(N, V, spread):
    logits, scores = torch.randn(3, N, V) * spread, torch.randn(3, N)
    for never in (V - 1, 70, -1):
        logits[:, :, never] += 9 * spread  # often the likeliest
        totals = logits.double().log_softmax(-1) + scores[:, :, None]
        totals[:, :, never] = -torch.inf
        expected, places = totals.flatten(1).topk(2 * N, 1)
        best, parents, ids = best_words(logits / LOG2, scores, 2 * N, never)
        torch.testing.assert_close(best.double(), expected, rtol=1e-5, atol=1e-4)
        assert torch.equal(parents * V + ids, places)


def test_best_words_of_few_possible_hypotheses():
    """A hypothesis that is impossible adds nothing."""
    logits, scores = torch.randn(2, 3, 5000), torch.tensor([[0.0, -torch.inf, -torch.inf], [-torch.inf, -1.0, -2.0]])
    best, parents, _ = best_words(logits / LOG2, scores, 6, 4999)
    totals = logits.log_softmax(-1) + scores[:, :, None]
    totals[:, :, 4999] = -torch.inf
    torch.testing.assert_close(best, totals.flatten(1).topk(6, 1).values)
    assert (parents[0] == 0).all() and (parents[1] > 0).all()


@torch.no_grad()
@pytest.mark.parametrize("bias", [False, True])
def test_a_large_vocabulary_is_searched_by_blocks_with_equal_results(shake, monkeypatch, bias):
    config = TransformerConfig(
        vocab=5000, width=16, encoder_layers=1, decoder_layers=1, heads=2, ffn=16, dropout=0.0, output_bias=bias
    )
    model = shake(build(config), 2.5).eval()
    source = torch.randint(0, 4999, (7, 6), generator=torch.Generator().manual_seed(1))
    args = model, source, torch.tensor([6, 5, 6, 2, 1, 6, 4]), torch.tensor([9, 4, 7, 9, 9, 3, 9])
    how = Search(beams=4, eos=EOS, pad=4999)
    calls = []
    monkeypatch.setattr(search, "best_words", lambda *a: calls.append(1) or best_words(*a))
    fast = beam_search(*args, how)
    assert calls
    monkeypatch.setattr(search, "LARGE", 10**6)
    plain = beam_search(*args, how)
    assert torch.equal(fast.ids, plain.ids) and torch.equal(fast.lengths, plain.lengths)
    torch.testing.assert_close(fast.scores, plain.scores)


# -- through the door --------------------------------------------------------------------------------------------------


@pytest.fixture
def texts():
    g = torch.Generator().manual_seed(2)
    sizes = torch.randint(0, 9, (20,), generator=g).tolist()
    return [" ".join(map(str, torch.randint(1, PAD, (n,), generator=g).tolist())) for n in sizes]


ORDER = torch.randperm(20, generator=torch.Generator().manual_seed(1)).tolist()


@pytest.mark.parametrize("size", [1, 3, 7])
def test_a_translation_does_not_depend_on_its_company(model, numbers, texts, size):
    translator = Translator(model, numbers)
    how = dict(beam=4, n_best=4)
    straight = translator.hypotheses(texts, batch=20, **how)
    shuffled = translator.hypotheses([texts[i] for i in ORDER], batch=size, **how)
    for place, i in enumerate(ORDER):
        assert [h.ids for h in shuffled[place]] == [h.ids for h in straight[i]], texts[i]
        assert [h.score for h in shuffled[place]] == pytest.approx([h.score for h in straight[i]], abs=1e-4)


@pytest.mark.parametrize("size", [1, 3, 7])
def test_a_sampled_translation_does_not_depend_on_its_company(model, numbers, texts, size):
    translator = Translator(model, numbers)
    for how in (dict(seed=1), dict(seed=2, temperature=0.7, top_k=3), dict(seed=3, top_p=0.8)):
        together = translator.sample(texts, batch=20, **how)
        assert [h.ids for h in translator.sample(texts, batch=size, **how)] == [h.ids for h in together]


def test_sampled_translations_do_not_depend_on_batch_size(numbers, shake):
    """Logits of another batch differ by about 1e-6, so one of these 1,200 samples differs with odds of 1 in 2,000."""
    words = 4000
    config = TransformerConfig(
        vocab=words + 1, width=16, heads=2, ffn=16, encoder_layers=1, decoder_layers=1, max_length=16
    )
    numbers.pad = words
    translator = Translator(shake(build(config), 2.5).eval(), numbers)
    texts = [" ".join(map(str, torch.randint(1, words, (1 + n % 8,)).tolist())) for n in range(300)]
    one, seven, many = (
        [h.ids for h in translator.sample(some, seed=1, batch=size, max_length=4)]
        for size, some in ((1, texts[:50]), (7, texts), (64, texts))
    )
    assert one == many[:50] and seven == many and len(set(map(tuple, many))) == 300


def test_a_forced_translation_does_not_depend_on_its_company(model, numbers, texts):
    """One long prefix in the batch must not give the others more room than `max_length`."""
    translator = Translator(model, numbers)
    begins = ["3 3 1 4 2 1", *["2"] * 19]
    how = dict(beam=3, n_best=3, max_length=4)
    together = translator.hypotheses(texts, prefix=begins, **how)
    alone = [translator.hypotheses([t], prefix=[b], **how)[0] for t, b in zip(texts, begins, strict=True)]
    assert [[h.ids for h in found] for found in together] == [[h.ids for h in found] for found in alone]


def test_an_empty_prefix_forces_nothing(model, numbers):
    translator = Translator(model, numbers)
    assert translator.translate(["1 2 3"], prefix=[""]) == translator.translate(["1 2 3"])


def test_translations_begin_with_their_prefix(model, numbers):
    texts, begins = ["1 2 3", "4", "2 2"], ["3 1", "", "4 4 4"]
    got = Translator(model, numbers).translate(texts, prefix=begins, beam=2)
    assert [text.startswith(begin) for text, begin in zip(got, begins, strict=True)] == [True] * 3


def test_scores_of_found_translations_are_those_of_given_ones(model, numbers, texts):
    translator = Translator(model, numbers)
    hypotheses = [h[0] for h in translator.hypotheses(texts, beam=2)]
    given = translator.score(texts, [h.text for h in hypotheses], batch=6)
    assert [h.log_probability for h in hypotheses] == pytest.approx(given, abs=1e-4)


def test_scores_of_sampled_translations_are_those_of_given_ones(model, numbers, texts):
    translator = Translator(model, numbers)
    hypotheses = translator.sample(texts, seed=4)
    given = translator.score(texts, [h.text for h in hypotheses], batch=6)
    assert [h.log_probability for h in hypotheses] == pytest.approx(given, abs=1e-4)


def test_n_best_are_different_sorted_and_need_a_beam_of_that_size(model, numbers):
    translator = Translator(model, numbers)
    (hypotheses,) = translator.hypotheses(["1 2 3 4"], beam=5, n_best=3)
    assert len({tuple(h.ids) for h in hypotheses}) == 3
    assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
    with pytest.raises(ConfigError, match="beam of at least 6"):
        translator.hypotheses(["1"], beam=5, n_best=6)
    assert translator.hypotheses([]) == []


def test_what_may_not_come_does_not_come(model, batch, everything):
    """Every sentence without the word that never may come, and without the one that may not come first, as ranked by
    enumeration; the words left over are not made likelier."""
    search = Search(beams=85, alpha=0.6, eos=EOS, pad=PAD, never=(2,), not_first=(3, EOS))
    hypotheses = beam_search(model, batch.source, batch.lengths, torch.full((3,), 4), search)
    begun = beam_search(model, batch.source, batch.lengths, torch.full((3,), 5), search, prefix=torch.full((3, 1), 2))
    for b in range(3):
        for outcome, begin in ((hypotheses, ()), (begun, (2,))):
            known = everything(model, batch.row(b), 4 + len(begin), begin)
            allowed = {s: p for s, p in known.items() if 2 not in s[len(begin) :] and s[len(begin)] not in (3, EOS)}
            assert 0 < len(allowed) < 85
            expected = ranked(allowed, 0.6)
            got = [s for s, score in zip(as_lists(outcome, b), outcome.scores[b].tolist(), strict=True) if score > -1e9]
            assert set(got) == set(allowed) and got[0] == expected[0][2]
