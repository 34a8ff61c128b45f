"""A text as the ids that a model's reader takes, whatever the family, and the states it gives them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.data.pairs import clean
from regard.errors import DataError
from regard.inside import tokens
from regard.inside.looked import LONGEST, Question
from regard.inside.tokens import Token
from regard.models.base import EncoderDecoder, LanguageModel
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Transformer
from regard.nn.taps import watch


@dataclass(frozen=True)
class Sequence:
    """Ids, sentence numbers and chips, T each. Of a translator, those of its source."""

    ids: list[int]
    sentences: list[int]
    chips: list[Token]

    def states(self, predictor: Any) -> Tensor:
        """The last states, T D."""
        return self._read(predictor)

    def layers(self, predictor: Any) -> list[Tensor]:
        """The states after every layer, each T D; of a model without layers to watch, the last alone."""
        with watch(predictor.model, "*out") as seen:
            last = self._read(predictor)
        return [calls[0][0] for name, calls in seen.items() if calls] or [last]

    def _read(self, predictor: Any) -> Tensor:
        model = predictor.model
        ids = torch.tensor([self.ids], device=predictor.device)
        if isinstance(model, LanguageModel):
            return model(ids)[0]
        if isinstance(model, Transformer | Seq2Seq):
            return model.encode(ids, None)[0][0]
        sentences = torch.tensor([self.sentences], device=predictor.device) if any(self.sentences) else None
        return model(ids, None, sentences)[0]


def read(predictor: Any, question: Question) -> Sequence:
    """A question's text, as far as the model can see."""
    model, tokenizer = predictor.model, predictor.tokenizer
    if not question.text.strip():
        raise DataError("the text is empty", "type something")
    if isinstance(model, LanguageModel):
        ids = predictor.encode(question.text)
        room = min(model.config.context or LONGEST, LONGEST)
        return _plain(ids, tokens.of_writer(tokenizer, ids, question.text), room)
    if isinstance(model, EncoderDecoder):
        text = clean(question.text)
        room = min(getattr(model.config, "max_length", LONGEST), LONGEST)
        ids = [*predictor.encode([text])[0][: room - 1], tokenizer.eos]
        return _plain(ids, tokens.of_translator(tokenizer, ids, text), room)
    longest = min(getattr(predictor, "max_length", 0) or model.config.max_length, LONGEST)
    lower = hasattr(predictor, "settings") and predictor.settings.lower
    texts = [text.lower() if lower else text for text in (question.text, question.second)]
    found = tokenizer.encode(texts[0], texts[1] or None, longest)
    return Sequence(found.ids, found.sentences, tokens.of_encoder(tokenizer, found))


def _plain(ids: list[int], chips: list[Token], room: int) -> Sequence:
    return Sequence(ids[-room:], [0] * len(ids[-room:]), chips[-room:])
