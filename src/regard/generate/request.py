"""Requests to the engine, and its results."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from regard import limits
from regard.config import at_least
from regard.errors import ConfigError
from regard.models.base import LanguageModel

BYTES_TOKEN, BYTES_ROW = 64, 4_096  # approximate memory: ids, random numbers, text


class Kind(NamedTuple):
    """What a captured step is specific to; settings that may change between calls are not part of it."""

    greedy: bool
    top_k: int
    top_p: bool
    min_p: bool
    penalty: bool
    ngram: int
    logprobs: int


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How to continue a prompt. Temperature 0 is greedy."""

    max_tokens: int = 256
    temperature: float = 1.0
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    no_repeat_ngram: int = 0  # no n-gram of this many ids occurs twice in prompt and text; 0: no rule
    stop: tuple[str, ...] = ()  # strings, handled by `generate/text.py`
    stop_ids: tuple[int, ...] = ()
    seed: int = 0
    n: int = 1  # completions of each prompt
    logprobs: int = 0  # how many alternatives to report with the chosen id's log-probability; 0: neither

    def __post_init__(self):
        at_least(self, max_tokens=1, temperature=0, top_k=0, min_p=0, no_repeat_ngram=0, n=1, logprobs=0)
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p is {self.top_p}; must be in (0, 1], where 1 keeps all tokens")
        if self.min_p > 1:
            raise ConfigError(f"min_p is {self.min_p}; must be at most 1, which keeps only the likeliest token")
        if not 0 < self.repetition_penalty < math.inf:
            raise ConfigError(
                f"repetition_penalty is {self.repetition_penalty}; must be greater than 0, and is 1 for none"
            )
        if self.temperature == math.inf:
            raise ConfigError("temperature is infinite; must be finite, 1 for the model's own probabilities")
        if isinstance(self.stop, str) or not all(self.stop):
            raise ConfigError(f"stop is {self.stop!r}; expected a list of texts, none of them empty")

    def check_memory(self, prompts: int) -> None:
        """Raise `LimitError` if memory has no room for the output of this many prompts."""
        rows = prompts * self.n
        size = rows * (BYTES_ROW + self.max_tokens * BYTES_TOKEN * (1 + self.logprobs))
        limits.require(size, f"{rows:,} × {self.max_tokens:,} tokens", "lower --max-tokens or --n")

    @property
    def kind(self) -> Kind:
        penalty = self.repetition_penalty != 1
        if self.temperature == 0:
            return Kind(True, 0, False, False, penalty, self.no_repeat_ngram, self.logprobs)
        top_p, min_p = self.top_p < 1, self.min_p > 0
        return Kind(False, self.top_k, top_p, min_p, penalty, self.no_repeat_ngram, self.logprobs)


@dataclass(frozen=True)
class Event:
    """What a row has written since its last event; `finish` is empty while the row continues."""

    row: int
    ids: list[int]
    logprobs: list[float]
    top: list[list[tuple[int, float]]]
    finish: str
    cut: int


@dataclass
class Completion:
    """One continuation of one prompt, without the id that ended it.

    `finish` is "stop" (an end, a stop id, a stop string) or "length". Log-probabilities are the model's own, whatever
    the temperature. `cut` ids were dropped from the front of a prompt that was too long for the model.
    """

    ids: list[int] = field(default_factory=list)
    finish: str = ""
    logprobs: list[float] = field(default_factory=list)
    top: list[list[tuple[int, float]]] = field(default_factory=list)  # at each position, likeliest first
    cut: int = 0

    def add(self, event: Event) -> None:
        self.ids += event.ids
        self.logprobs += event.logprobs
        self.top += event.top
        self.finish, self.cut = event.finish, event.cut

    def shorten(self, count: int) -> None:
        del self.ids[count:], self.logprobs[count:], self.top[count:]


def fitting(
    model: LanguageModel, prompt: Sequence[int], name: str, ends: Sequence[int], max_tokens: int
) -> tuple[list[int], int]:
    """The part of a prompt that is read to leave room for `max_tokens`, and how many ids are cut.

    An empty prompt becomes an end id, after which texts begin. A long one keeps its last part: what `max_tokens` leaves
    of the model's context, but at least half of it.
    """
    context, words, ids = model.config.context, model.config.vocab, list(prompt)
    if not ids and not ends:
        raise ConfigError(f"{name} is empty, and this model has no start token; give it a first word")
    if ids and not 0 <= min(ids) <= max(ids) < words:
        raise ConfigError(
            f"{name} has ids from {min(ids)} to {max(ids)}, but this model has 0 to {words - 1}; "
            "encode it with the model's own tokenizer"
        )
    ids = ids or [ends[0]]
    room = max(context - max_tokens, context // 2, 1) if context else len(ids)
    return ids[-room:], max(len(ids) - room, 0)
