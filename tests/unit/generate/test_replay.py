"""What a CUDA graph needs of a step, checked without one: the same memory holds the state after every step."""

from regard.generate import search
from regard.generate.replay import Replay
from regard.predictors import Translator


def test_a_step_in_place_is_a_step(model, numbers, monkeypatch, one_place):
    translator = Translator(model, numbers)
    texts = ["1 2 3", "2 1", "3"]
    expected = translator.hypotheses(texts, beam=3, n_best=3)
    monkeypatch.setattr(search, "Replay", one_place)
    assert translator.hypotheses(texts, beam=3, n_best=3) == expected


def test_numbers_on_the_host_are_as_after_a_step(one_place):
    """A step that is replayed runs no Python; what it would have set is set, and nothing else."""

    class Holder:
        def __init__(self):
            self.stop, self.level, self.seen = 0, True, 0

    holder = Holder()

    def step():
        holder.stop, holder.level = 8, False

    replayed = one_place(step, [holder], cuda=False)
    for call in range(5):
        holder.stop, holder.level, holder.seen = 0, True, call
        replayed()
        assert (holder.stop, holder.level, holder.seen) == (8, False, call)
    assert isinstance(replayed, Replay) and replayed.after == [{"stop": 8, "level": False}]
