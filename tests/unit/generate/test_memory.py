"""Settings that ask for more than memory holds are refused with the number, before anything is allocated."""

import pytest
import torch

from regard.errors import LimitError
from regard.generate.engine import Engine, Sampling
from regard.generate.prompted import best
from regard.generate.search import Search, beam_search
from regard.generate.text import write
from regard.models.gpt import GPT, GPTConfig
from regard.models.registry import build
from regard.models.rnn_lm import RecurrentLMConfig
from regard.models.transformer import TransformerConfig

SMALL = dict(width=8, heads=2, layers=1, ffn=8)
MANY = 10**9


@pytest.fixture(autouse=True)
def budget(monkeypatch):
    monkeypatch.setenv("REGARD_MEMORY", "200M")


@pytest.mark.parametrize("settings", [{"max_tokens": MANY}, {"n": MANY}, {"max_tokens": 10**5, "n": 10**5}])
@pytest.mark.parametrize("config", [GPTConfig(vocab=9, context=8, **SMALL), RecurrentLMConfig(vocab=9, width=8)])
def test_more_tokens_than_memory_holds_are_refused(config, settings):
    engine, sampling = Engine(build(config).eval(), (0,)), Sampling(**settings)
    for work in (
        lambda: engine.generate([[1]], sampling),
        lambda: next(engine.stream([[1]], sampling)),
        lambda: write(engine, lambda id: b"x", [[1]], sampling),
    ):
        with pytest.raises(LimitError, match=r"tokens would need .*the limit is 200 MB; lower --max-tokens or --n"):
            work()


def test_keys_and_values_that_memory_does_not_hold_are_refused():
    model = GPT(GPTConfig(vocab=9, context=MANY, positions="rotary", **SMALL))
    with pytest.raises(LimitError, match=r"keys and values of 1 × .* tokens would need"):
        model.begin(1, MANY - 1)


@pytest.mark.parametrize("beams", [10**5, 10**9])
def test_a_beam_that_memory_does_not_hold_is_refused(beams):
    translator = build(TransformerConfig(vocab=9, width=8, heads=2, ffn=8, encoder_layers=1, decoder_layers=1)).eval()
    with pytest.raises(LimitError, match=f"searching with {beams:,} beams would need .*: --beam 5"):
        beam_search(translator, torch.tensor([[1, 2]]), None, torch.tensor([20]), Search(beams=beams, pad=8))
    with pytest.raises(LimitError, match="--beam 5"):
        best(GPT(GPTConfig(vocab=9, context=64, **SMALL)).eval(), [[1]], (0,), beams=beams)


def test_what_memory_holds_is_written():
    engine = Engine(GPT(GPTConfig(vocab=9, context=8, **SMALL)).eval())
    assert [len(c.ids) for c in engine.generate([[1]], Sampling(max_tokens=20, n=3))[0]] == [20] * 3
