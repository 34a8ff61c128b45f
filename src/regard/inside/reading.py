"""A text as the ids that a model reads, whatever its family, and the states it computes for them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.data.pairs import clean
from regard.errors import DataError
from regard.inside import tokens
from regard.inside.embedding import embedded
from regard.inside.looked import LONGEST, Looked, Question, captured
from regard.inside.tokens import Token
from regard.nn.taps import watch
from regard.predictors.labeller import split_words


@dataclass(frozen=True)
class Reading:
    """Ids, chips and segments, T each; a translator's are of its source. `note` says what was cut."""

    ids: list[int]
    chips: list[Token]
    sentences: list[int]
    note: str = ""

    def select(self, places: Sequence[int]) -> "Reading":
        """The tokens at these places, in this order."""
        ids, chips = [self.ids[i] for i in places], [self.chips[i] for i in places]
        return Reading(ids, chips, [self.sentences[i] for i in places])

    def layers(self, predictor: Any) -> list[Tensor]:
        """The states after every layer, each T D; only the last of a model whose layers have no taps."""
        with watch(predictor.model, "*out") as seen:
            last = self.states(predictor)
        return [calls[0][0] for calls in seen.values() if calls] or [last]

    def states(self, predictor: Any) -> Tensor:
        """The last states, T D."""
        ids = torch.tensor([self.ids], device=predictor.device)
        sentences = torch.tensor([self.sentences], device=predictor.device) if any(self.sentences) else None
        return STATES.get(predictor.family, encoder_states)(predictor.model, ids, sentences)[0]


def encoder_states(model: Any, ids: Tensor, sentences: Tensor | None) -> Tensor:
    return model(ids, None, sentences)


STATES = {  # by a predictor's family, unless it is an encoder: B T ids -> B T D
    "language": lambda model, ids, _: model(ids),
    "translator": lambda model, ids, _: model.encode(ids, None)[0],
}


def read(predictor: Any, question: Question) -> Reading:
    """A question's text, cut to what the model can see."""
    return READERS.get(predictor.family, read_encoder)(predictor, question)


def read_language(writer: Any, question: Question) -> Reading:
    ids, room = writer.encode(question.text), min(writer.model.config.context or LONGEST, LONGEST)
    note = cut_note(room, "end") if len(ids) > room else ""
    chips = tokens.of_writer(writer.tokenizer, ids, question.text)[-room:]
    return Reading(ids[-room:], chips, [0] * len(chips), note)


def read_source(translator: Any, question: Question) -> Reading:
    text, tokenizer = clean(required(question.text)), translator.tokenizer
    room = min(translator.room, LONGEST)
    (ids,) = translator.encode([text])
    note = cut_note(room - 1) if len(ids) >= room else ""
    ids = [*ids[: room - 1], tokenizer.eos]
    return Reading(ids, tokens.of_translator(tokenizer, ids, text), [0] * len(ids), note)


def read_encoder(predictor: Any, question: Question) -> Reading:
    texts = [text.lower() if predictor.lower else text for text in (required(question.text), question.second)]
    longest = min(predictor.max_length, LONGEST)
    return of_encoded(predictor.tokenizer, predictor.tokenizer.encode(texts[0], texts[1] or None, longest))


def read_words(tagger: Any, question: Question) -> Reading:
    words = split_words(required(question.text))
    encoded = tagger.tokenizer.encode_words([word for word, _ in words], min(tagger.max_length, LONGEST))
    starts = [0 if word is None else words[word][1][0] for word in encoded.words]
    spans = [(at + start, at + end) for at, (start, end) in zip(starts, encoded.offsets, strict=True)]
    return of_encoded(tagger.tokenizer, encoded, spans)


READERS = {
    "language": read_language,
    "translator": read_source,
    "tagger": read_words,
}  # by a predictor's family, unless it is an encoder


def required(text: str) -> str:
    if not text.strip():
        raise DataError("the text is empty", "type something")
    return text


def of_encoded(tokenizer: Any, encoded: Any, spans: list[tuple[int, int]] | None = None) -> Reading:
    note = cut_note(len(encoded.ids)) if encoded.cut else ""
    return Reading(encoded.ids, tokens.of_encoder(tokenizer, encoded, spans), list(encoded.types), note)


def observe(looked: Looked, reading: Reading) -> Tensor:
    """The states of a reading, T D; its tokens, embeddings and attention are recorded in `looked`."""
    model, device = looked.predictor.model, looked.predictor.device
    looked.streams["text"] = reading.chips
    looked.notes += [reading.note] if reading.note else []
    start = time.perf_counter()
    with captured(looked.attention, model, {"self": ("text", "text")}):
        hidden = reading.states(looked.predictor)
    looked.seconds = time.perf_counter() - start
    sentences = torch.tensor(reading.sentences, device=device)
    looked.embeddings["text"] = embedded(model, torch.tensor(reading.ids, device=device), sentences=sentences)
    return hidden


def cut_note(kept: int, end: str = "start") -> str:
    return f"the text was cut to its {end}, {kept:,} tokens: the model, or the studio, sees no more"
