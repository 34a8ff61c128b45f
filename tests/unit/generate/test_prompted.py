"""Beam search after prompts, against everything a toy can say and against a plain beam search."""

import itertools

import pytest
import torch

from regard.errors import ConfigError
from regard.generate.prompted import best

END = 0
PROMPTS = [[3, 1, 4], [1], [5, 2, 2, 4], [2, 3]]


@torch.no_grad()
def everything(model, prompt, limit):
    """All continuations of at most `limit` ids with the log-probability of each, their end included."""
    words = range(1, model.config.vocab)
    known = {}
    for n in range(limit + 1):
        rows = [[*s, END] for s in itertools.product(words, repeat=n)]
        texts = torch.tensor([[*prompt, *row] for row in rows])
        likely = model.logits(model(texts[:, :-1])).log_softmax(-1)[:, len(prompt) - 1 :]
        totals = likely.gather(-1, torch.tensor(rows)[:, :, None]).sum((1, 2))
        known |= {tuple(row[:-1]): total for row, total in zip(rows, totals.tolist(), strict=True)}
    return known


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_wide_beam_finds_what_enumeration_finds(pairs, alpha):
    """Five words and an end, at most three of them: all 156 continuations, ranked, of a ragged batch."""
    model = pairs().double()
    found = best(model, PROMPTS, [END], beams=156, alpha=alpha, max_tokens=3)
    for prompt, hypotheses in zip(PROMPTS, found, strict=True):
        known = everything(model, prompt, 3)
        score = {s: total / ((6 + len(s)) / 6) ** alpha for s, total in known.items()}
        expected = sorted(known, key=lambda s: -score[s])
        assert [h.score for h in hypotheses] == pytest.approx([score[s] for s in expected], abs=1e-4)
        assert {tuple(h.ids) for h in hypotheses} == set(known)
        for h in hypotheses:
            assert h.log_probability == pytest.approx(known[tuple(h.ids)], abs=1e-4)


@torch.no_grad()
def plain_beam_search(model, prompt, limit, beams, alpha, bigrams):
    """With full passes: extend all, keep the 2N best, file endings among the N best, go on with N."""
    alive, results = [((), 0.0)], []
    for length in range(1, limit + 2):
        options = []
        for ids, total in alive:
            words = model.logits(model(torch.tensor([[*prompt, *ids]])))[0, -1].double().log_softmax(-1)
            text = [*prompt, *ids]
            seen = {w for first, w in itertools.pairwise(text) if first == text[-1]} if bigrams else set()
            allowed = [END] if length == limit + 1 else set(range(model.config.vocab)) - seen
            options += [((*ids, w), total + words[w].item()) for w in allowed]
        options = sorted(options, key=lambda o: -o[1])[: 2 * beams]
        results += [(t / ((5 + length) / 6) ** alpha, ids[:-1]) for ids, t in options[:beams] if ids[-1] == END]
        alive = [o for o in options if o[0][-1] != END][:beams]
        if len(results) >= beams or not alive:
            break
    return sorted(results, reverse=True)[:beams]


@pytest.mark.parametrize(("beams", "bigrams"), [(1, False), (3, True), (4, False)])
def test_a_narrow_beam_is_the_plain_beam_search(lm, beams, bigrams):
    how = dict(alpha=0.6, max_tokens=7, batch=3, no_repeat_ngram=2 * bigrams)
    found = best(lm, PROMPTS, [END], beams=beams, **how)
    for prompt, hypotheses in zip(PROMPTS, found, strict=True):
        expected = plain_beam_search(lm, prompt, 7, beams, 0.6, bigrams)
        assert [tuple(h.ids) for h in hypotheses] == [w[1] for w in expected]
        assert [h.score for h in hypotheses] == pytest.approx([w[0] for w in expected], abs=1e-4)


def test_company_changes_nothing_not_even_at_the_edge_of_the_context(lm):
    prompts = [[1, 2] * 20, [4], [3, 1, 4, 1, 5] * 3, [2] * 24]
    together = best(lm, prompts, [END], beams=3, max_tokens=20)
    assert together == [best(lm, [prompt], [END], beams=3, max_tokens=20)[0] for prompt in prompts]
    context = lm.config.context
    assert [h[0].cut for h in together] == ([28, 0, 3, 12] if context else [0] * 4)


def test_bad_settings_are_named(pairs):
    with pytest.raises(ConfigError, match="no end token"):
        best(pairs(), [[1]], [])
    with pytest.raises(ConfigError, match="must be at least 1, got 0"):
        best(pairs(), [[1]], [END], beams=0)
    assert best(pairs(), [], [END]) == []
