"""What a CUDA graph needs of a step, checked without one: the same memory holds the state after every step."""

import torch

from regard.generate import replay, search
from regard.predictors import Translator


class OnePlace(replay.Replay):
    """As on a GPU, but each step is run in place instead of being replayed."""

    def __call__(self):
        self.calls += 1
        if self.calls <= replay.EAGER_FIRST:
            self.step()
            return
        before = [{k: v for k, v in vars(h).items() if isinstance(v, torch.Tensor)} for h in self.holders]
        self._step_in_place()
        for holder, old in zip(self.holders, before, strict=True):
            assert all(getattr(holder, name) is tensor for name, tensor in old.items())


def test_a_step_in_place_is_a_step(model, numbers, monkeypatch):
    translator = Translator(model, numbers)
    texts = ["1 2 3", "2 1", "3"]
    want = translator.hypotheses(texts, beam=3, n_best=3)
    monkeypatch.setattr(search, "Replay", OnePlace)
    assert translator.hypotheses(texts, beam=3, n_best=3) == want
