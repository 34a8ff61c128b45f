"""What the public door promises, for every model: order, company and padding change nothing."""

import pytest
import torch

from regard.predictors import Translator

from .case import EOS, PAD

TEXTS = ["3 1 4 1 5 9 2 6", "5", "3 5 8 9 7 9", "2 7", "1 8 2 8"]
GIVEN = ["9 9", "12 3 4 5 6 7", "1", "20 20 20", "8 8 8 8"]


class Ids:
    """A tokenizer whose texts are numbers."""

    eos, pad = EOS, PAD

    def encode(self, text):
        return [int(word) for word in text.split()]

    def encode_batch(self, texts):
        return [self.encode(text) for text in texts]

    encode_targets = encode_batch

    def decode(self, ids):
        return " ".join(str(i) for i in ids if i not in (EOS, PAD))


def first(model) -> int:
    """What a decoder reads before its first word: padding, but for BART."""
    return getattr(model.config, "start", PAD)


@pytest.fixture
def translator(model) -> Translator:
    return Translator(model, Ids())


def test_a_given_translation_is_scored_by_hand(translator):
    """Sentences of many lengths together, against one pass over each alone."""
    model, want = translator.model, []
    for text, given in zip(TEXTS, GIVEN, strict=True):
        source = torch.tensor([[*Ids().encode(text), EOS]])
        target = [*Ids().encode(given), EOS]
        words = model.logits(model(source, None, torch.tensor([[first(model), *target[:-1]]])))[0].log_softmax(-1)
        want.append(sum(words[t, id].item() for t, id in enumerate(target)))
    assert translator.score(TEXTS, GIVEN) == pytest.approx(want, rel=1e-5)


def test_company_and_order_change_nothing(translator):
    together = translator.hypotheses(TEXTS, beam=3, n_best=3, max_length=8)
    for text, found in zip(TEXTS, together, strict=True):
        (alone,) = translator.hypotheses([text], beam=3, n_best=3, max_length=8)
        assert [h.ids for h in found] == [h.ids for h in alone]
    backwards = translator.hypotheses(TEXTS[::-1], beam=3, n_best=3, max_length=8, batch=2)
    assert [[h.ids for h in found] for found in backwards[::-1]] == [[h.ids for h in found] for found in together]
    assert len({str([h.ids for h in found]) for found in together}) > 1, "all alike: nothing is compared"


def test_what_the_search_reports_is_what_the_model_says(translator):
    """The log-probability of a found translation equals that of the same one when it is given."""
    found = [best for best, *_ in translator.hypotheses(TEXTS, beam=3, max_length=8)]
    scores = translator.score(TEXTS, [h.text for h in found])
    assert [h.log_probability for h in found] == pytest.approx(scores, rel=1e-4)


@torch.no_grad()
def test_words_are_drawn_as_often_as_a_colder_model_says(translator):
    """The first word of 2,000 samples; 0.05 is more than four standard deviations of any word's frequency."""
    model = translator.model
    source = torch.tensor([[*Ids().encode(TEXTS[0]), EOS]])
    logits = model.logits(model(source, None, torch.tensor([[first(model)]])))[0, 0]
    temperature = logits.std().item() / 3
    logits[PAD] = -torch.inf  # never said
    want = (logits / temperature).softmax(-1)
    drawn = translator.sample([TEXTS[0]] * 2000, temperature=temperature, max_length=2, batch=2000)
    found = torch.bincount(torch.tensor([h.ids[0] for h in drawn]), minlength=PAD + 1) / 2000
    assert (found - want).abs().max() < 0.05
    assert (logits.softmax(-1) - want).abs().max() > 0.1, "too even to tell temperatures apart"
