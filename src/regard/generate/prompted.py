"""Beam search for language models: the search of `generate/search.py`, with the prompt as its source."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import ConfigError
from regard.generate.request import fitting
from regard.generate.search import NEVER, BeamResult, Search, beam_search
from regard.models.base import EncoderDecoder, LanguageModel, State


class PromptedState:
    """Hypotheses as rows of the language model's own state."""

    def __init__(self, state: State, last: Tensor):
        self.state, self.count = state, len(last)
        self.last: Tensor | None = last  # B 1: the prompts' last ids, which the first step reads

    def reorder(self, parents: Tensor) -> None:
        B, beams = parents.size(0), len(self.state.places) // parents.size(0)
        first = torch.arange(0, B * beams, beams, device=parents.device)  # B: the first hypothesis of each
        self.state.select((first[:, None] + parents).flatten())

    def select(self, rows: Tensor) -> None:
        beams = len(self.state.places) // self.count
        self.count = len(rows)
        self.state.select((rows[:, None] * beams + torch.arange(beams, device=rows.device)).flatten())


class Prompted(EncoderDecoder):
    """A language model with the interface of an encoder-decoder. Padding is one more token, never generated."""

    def __init__(self, model: LanguageModel):
        super().__init__()
        self.model, self.config, self.token = model, model.config, model.token

    @property
    def bias(self) -> Tensor | None:  # pyrefly: ignore[bad-override]
        return self.model.bias

    def begin(self, source: Tensor, lengths: Tensor | None, beams: int, capacity: int) -> PromptedState:
        B, S = source.shape
        state = self.model.begin(B, S + capacity - 1)  # the last token is not read
        if lengths is None:
            lengths = torch.full((B,), S, device=source.device)
        if S > 1:
            self.model.read(source[:, :-1], state, lengths - 1)
        return PromptedState(state, source.gather(1, lengths[:, None] - 1))

    def step(self, ids: Tensor, state: PromptedState) -> Tensor:
        if state.last is not None:
            ids, state.last = state.last, None
        words = ids.clamp(max=self.config.vocab - 1)  # an impossible hypothesis may end in padding
        return self.model.read(words.reshape(-1, 1), state.state).view(*ids.shape, -1)  # B N D

    def logits(self, hidden: Tensor) -> Tensor:
        return F.pad(self.model.logits(hidden), (0, 1), value=NEVER)  # … V+1


@dataclass(frozen=True)
class Continuation:
    """One of the best continuations of a prompt, without its end token."""

    ids: list[int]
    score: float  # log-probability over the length penalty, including the end token
    log_probability: float
    cut: int  # ids dropped from the front of a prompt that was too long


def best(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    ends: Sequence[int],
    *,
    beams: int = 5,
    alpha: float = 0.6,
    max_tokens: int = 256,
    batch: int = 16,
    no_repeat_ngram: int = 0,
) -> list[list[Continuation]]:
    """The best continuations of each prompt, at most `beams`, by beam search, best first; all of them end.

    A continuation has at most half of the model's context.
    """
    if beams < 1 or max_tokens < 1 or batch < 1:
        raise ConfigError(f"beams, max_tokens and batch must be at least 1, got {beams}, {max_tokens} and {batch}")
    if not ends:
        raise ConfigError("beam search compares texts that end, but this model has no end token; sample instead")
    read = [fitting(model, prompt, f"prompt {n + 1}", ends, max_tokens) for n, prompt in enumerate(prompts)]
    half = model.config.context - model.config.context // 2 if model.config.context else max_tokens
    search = Search(beams=beams, alpha=alpha, eos=ends[0], pad=model.config.vocab, no_repeat_ngram=no_repeat_ngram)
    results: list[list[Continuation]] = [[] for _ in read]
    device = model.token.weight.device
    order = sorted(range(len(read)), key=lambda row: len(read[row][0]))
    for rows in (order[i : i + batch] for i in range(0, len(order), batch)):
        texts = [read[row][0] for row in rows]
        lengths = torch.tensor([len(text) for text in texts], device=device)
        source = torch.tensor([text + [0] * (len(texts[-1]) - len(text)) for text in texts], device=device)
        limits = torch.full_like(lengths, min(max_tokens, half) + 1)  # one more for the end
        ragged = len(texts[0]) < len(texts[-1])
        before = torch.tensor([[-1] * (len(texts[-1]) - len(text)) + text for text in texts], device=device)
        best = beam_search(
            Prompted(model), source, lengths if ragged else None, limits, search, look_every=4 if source.is_cuda else 1,
            before=before,
        )  # fmt: skip
        for row, hypotheses in zip(rows, by_sentence(best), strict=True):
            results[row] = [Continuation(*hypothesis, read[row][1]) for hypothesis in hypotheses]
    return results


def by_sentence(hypotheses: BeamResult) -> Iterator[list[tuple[list[int], float, float]]]:
    """Ids, score and log-probability of every hypothesis, by sentence."""
    h = hypotheses
    parts = (h.ids, h.lengths, h.scores, h.log_probabilities)
    for sentence in zip(*(part.tolist() for part in parts), strict=True):
        rows = [row for row in zip(*sentence, strict=True) if row[2] > NEVER]
        yield [(ids[: length - 1], score, total) for ids, length, score, total in rows]
