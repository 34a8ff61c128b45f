"""Guesses change how many passes a text takes, and nothing else."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.generate.engine import Engine, Sampling
from regard.generate.guessing import MOST, RUN, GuessingRows, Repeats
from regard.models import build
from regard.models.gpt import GPTConfig
from regard.models.llama import LlamaConfig
from regard.nn.stored import store_

SETTINGS = {
    "greedy": Sampling(temperature=0, max_tokens=40),
    "sampled": Sampling(temperature=0.6, top_k=4, top_p=0.9, seed=3, max_tokens=40),
    "reported": Sampling(temperature=0.4, seed=1, max_tokens=30, logprobs=2),
}
PROMPTS = [[1, 2, 3, 4] * 4, [2], [5, 5, 5, 5], [3, 1, 4, 1, 5, 2, 6]]


@pytest.fixture(params=["gpt", "alibi", "llama"])
def model(request, shake):
    torch.manual_seed(0)
    sizes = dict(vocab=8, context=64, width=16, heads=2, layers=2)
    config = {
        "gpt": GPTConfig(**sizes),
        "alibi": GPTConfig(**sizes, positions="alibi"),
        "llama": LlamaConfig(**sizes, kv_heads=1, ffn=24),
    }[request.param]
    return shake(build(config), 3.0).double().eval()


def passes(model, monkeypatch, prompt, settings, ends=(), guess=True):
    """A completion, and how many passes it took."""
    count, read = [0], type(model).read

    def counted(self, *inputs):
        count[0] += 1
        return read(self, *inputs)

    with monkeypatch.context() as patched:
        patched.setattr(type(model), "read", counted)
        if not guess:
            patched.setattr(GuessingRows, "takes", lambda *_: False)
        ((completion,),) = Engine(model, ends=ends).generate([prompt], settings)
    return completion, count[0]


@pytest.mark.parametrize("name", SETTINGS)
def test_the_text_is_the_same_and_takes_fewer_passes(model, monkeypatch, name):
    settings, saved = SETTINGS[name], 0
    for ends in ((), (0,)):
        for prompt in PROMPTS:
            made, fewer = passes(model, monkeypatch, prompt, settings, ends)
            plain, many = passes(model, monkeypatch, prompt, settings, ends, guess=False)
            assert (made.ids, made.finish, made.cut) == (plain.ids, plain.finish, plain.cut)
            assert made.logprobs == pytest.approx(plain.logprobs)
            assert [[id for id, _ in place] for place in made.top] == [[id for id, _ in p] for p in plain.top]
            assert many == max(1, len(plain.ids) + (plain.finish == "stop")) and fewer <= many
            saved += many - fewer
    assert saved > 0


@pytest.mark.parametrize("tokens", [1, 2, 5, 59, 60, 61, 150])
def test_a_text_has_its_length_also_where_the_context_is_full(model, monkeypatch, tokens):
    """An untrained model soon repeats itself, so guesses run into the limit and the end of the context."""
    settings = Sampling(temperature=0, max_tokens=tokens)
    made, _ = passes(model, monkeypatch, [1, 2, 1], settings)
    plain, _ = passes(model, monkeypatch, [1, 2, 1], settings, guess=False)
    assert made.ids == plain.ids and len(made.ids) == tokens and made.finish == "length"


def test_a_text_ends_within_right_guesses(model, monkeypatch):
    """At a token that ends a text, or where the caller has enough."""
    settings = Sampling(temperature=0, max_tokens=40)
    whole = passes(model, monkeypatch, [1, 2, 1], settings)[0].ids
    for stop in range(1, 12):
        left = iter(range(stop - 1, -1, -1))
        ((completion,),) = Engine(model).generate([[1, 2, 1]], settings, lambda row, id, left=left: not next(left))
        assert completion.ids == whole[:stop] and completion.finish == "stop"


def test_only_a_lone_row_that_can_forget_guesses(model):
    takes = GuessingRows.takes
    assert takes(model, Sampling(), 1) and not takes(model, Sampling(), 2)
    assert not takes(model, Sampling(repetition_penalty=1.1), 1) and not takes(model, Sampling(no_repeat_ngram=3), 1)
    store_(model.float(), "int8")
    assert not takes(model, Sampling(), 1)


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, MOST))
def test_a_guess_is_what_followed_the_last_time(ids, most):
    repeats = Repeats(ids[: len(ids) // 2])
    repeats.add(ids[len(ids) // 2 :])
    guesses = repeats.guess(most)
    before = [end for end in range(RUN, len(ids)) if ids[end - RUN : end] == ids[-RUN:]]
    assert repeats.ids == ids and len(guesses) == (most if before else 0)
    since = ids[before[-1] :] if before else []
    assert guesses == [since[i % len(since)] for i in range(len(guesses))]
