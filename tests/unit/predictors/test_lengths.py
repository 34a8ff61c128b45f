"""How length counts between hypotheses: at every door that searches, with a model that follows a script."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from regard.predictors import Transcriber, Translator
from regard.predictors.captioner import ImageCaptioner

PROMPT, SHORT, EOS, PAD, VOCAB = 1, 2, 0, 99, 100
JUNK = range(20, PAD)
LONG = (3, 4, 5, 6, 7)
# A short text is twice as likely as a long one. Whisper's way, by length, prefers the long one; Wu et al. 2016's with
# 0.6, the short one: log 0.14 / (8/6)^0.6 = -1.65 and log 0.07 / 2^0.6 = -1.75, but -1.47 and -1.33 with 1.
LIKELY = {SHORT: 0.14, LONG[0]: 0.07}


class Scripted(nn.Module):
    """Whatever its source, it begins with PROMPT, and goes on with SHORT or with LONG; all else is unlikely."""

    class config:
        shape, max_length, frames, mels, vocab = (3, 8, 8), 64, 10, 4, VOCAB

    class State:
        def __init__(self, rows: int):
            self.ids = torch.zeros(rows, 1, 0, dtype=torch.long)

        def reorder(self, parents: torch.Tensor) -> None:
            self.ids = self.ids.gather(1, parents[:, :, None].expand(-1, -1, self.ids.size(2)))

        def select(self, rows: torch.Tensor) -> None:
            self.ids = self.ids[rows]

    def begin(self, source, lengths, beams, capacity):
        return self.State(len(source))

    def step(self, ids: torch.Tensor, state: "Scripted.State") -> torch.Tensor:
        state.ids = torch.cat((state.ids, ids[:, :, None]), 2)
        return torch.stack([torch.stack([self.likely(h[1:]) for h in row]) for row in state.ids.tolist()])

    def likely(self, said: list[int]) -> torch.Tensor:
        """V log-probabilities after what was said."""
        p = torch.full((VOCAB,), 1e-9)
        if not said:
            p[PROMPT] = 1.0
        elif said == [PROMPT]:
            p[list(JUNK)] = (1 - sum(LIKELY.values())) / len(JUNK)
            for id, share in LIKELY.items():
                p[id] = share
        elif JUNK.start <= said[min(1, len(said) - 1)]:
            p[list(JUNK)] = 1 / len(JUNK)
        else:
            ways = [(PROMPT, SHORT, EOS), (PROMPT, *LONG, EOS)]
            (follows,) = [way[len(said)] for way in ways if list(way[: len(said)]) == said] or [EOS]
            p[follows] = 1.0
        return p.log()

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden


class Words:
    """A tokenizer of words that are numbers, and of the signs of Whisper."""

    eos, pad = EOS, PAD

    class tokenizer:
        @staticmethod
        def token_to_id(sign: str) -> int | None:
            return {"<|startoftranscript|>": PAD, "<|notimestamps|>": PROMPT, "<|endoftext|>": EOS}.get(sign)

    def encode_batch(self, texts):
        return [[int(word) for word in text.split()] for text in texts]

    encode_targets = encode_batch

    def decode(self, ids):
        return " ".join(str(i) for i in ids if i not in (EOS, PAD, PROMPT))


short, long = str(SHORT), " ".join(map(str, LONG))


def test_the_script_is_as_worked_out():
    def score(p: float, length: int, alpha: float) -> float:
        return math.log(p) / ((5 + length) / 6) ** alpha

    assert score(0.14, 3, 0.6) > score(0.07, 7, 0.6) and score(0.14, 3, 1.0) < score(0.07, 7, 1.0)


def test_whisper_goes_by_the_length():
    whisper = Transcriber(Scripted(), Words(), "cpu", {})
    whisper.pictures = lambda parts: torch.zeros(len(parts), 4, 10)
    assert whisper.transcribe([torch.ones(100)])[0][0].text == long
    assert whisper.transcribe([torch.ones(100)], beam=8)[0][0].text == long


def test_whisper_transcribes_what_is_louder_than_silence():
    whisper = Transcriber(Scripted(), Words(), "cpu", {})
    whisper.pictures = lambda parts: torch.zeros(len(parts), 4, 10)
    sounds = [torch.full((100,), level) for level in (0.0, 1e-3, -1e-3, 2e-3, -2e-3)]
    assert [passages[0].text for passages in whisper.transcribe(sounds)] == ["", "", "", long, long]


@pytest.mark.parametrize(
    ("settings", "text"),
    [({}, short), ({"length_penalty": 0.6}, short), ({"length_penalty": 1.0}, long), ({"length_penalty": 0.0}, short)],
)
def test_a_translation_goes_by_the_penalty_asked_for(settings, text):
    translator = Translator(Scripted(), Words())
    assert translator.translate(["5 5 5 5"], **settings) == [text]
    (best,) = translator.hypotheses(["5 5 5 5"], n_best=2, **settings)
    assert {h.text for h in best} == {short, long}
    for h in best:
        p = {short: 0.14, long: 0.07}[h.text]
        assert h.log_probability == pytest.approx(math.log(p), rel=1e-5)
        penalty = ((5 + len(h.ids)) / 6) ** settings.get("length_penalty", 0.6)
        assert h.score == pytest.approx(math.log(p) / penalty, rel=1e-5)


def test_a_caption_goes_by_the_penalty_of_translations():
    captioner = ImageCaptioner(Scripted(), Words())
    pixels = np.zeros((2, 3, 8, 8), np.uint8)
    assert [h.text for h in captioner.caption(pixels, beam=5)] == [short, short]
    assert [h.text for h in captioner.caption(pixels, beam=5, length_penalty=1.0)] == [long, long]
