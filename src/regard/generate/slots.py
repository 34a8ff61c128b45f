"""The rows of a continuous batch on the device: their settings, the model's state, and their latest output."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from regard.data.batch import moved
from regard.generate.request import Sampling
from regard.generate.rows import HostCopy, Job, Seat
from regard.generate.sampling import choose, choose_each, likeliest, no_repeat_ngrams, repetition_penalty
from regard.models.base import LanguageModel


@dataclass
class BatchRow(Seat):
    """A prompt in progress; its index in `Scheduler.rows` is its row in the batch."""

    settings: Sampling = field(default_factory=Sampling)
    ends: Set[int] = frozenset()
    enough: Callable[[int, int], bool] | None = None
    cancelled: bool = False
    ahead: int = 0  # ids launched on the device that the host has not read yet

    @property
    def request(self) -> Job:
        assert self.job is not None
        return self.job

    @property
    def unread(self) -> list[int]:
        return self.request.prompt[self.place :]

    @property
    def rest(self) -> int:
        """How many ids remain to be launched."""
        return 0 if self.cancelled else max(self.left - self.ahead, 0)

    @property
    def gone(self) -> bool:
        """Whether its row is free."""
        return not self.rest

    def alike(self, stem: list[int], place: int) -> int:
        """The length of the common prefix of `stem` and the first `place` ids of this text."""
        prompt = self.request.prompt
        if not stem or stem[0] != prompt[0]:  # nearly always
            return 0
        text = [*prompt, *self.request.made][:place]
        return next((n for n, (x, y) in enumerate(zip(stem, text, strict=False)) if x != y), min(len(stem), len(text)))


class Need(NamedTuple):
    """What a step must compute for its rows; a graph is captured for each combination."""

    draws: bool = False
    penalty: bool = False
    ngrams: tuple[int, ...] = ()
    logprobs: int = 0


class Slots:
    """The device state of R rows: the model's state, their settings, and their output since the last look."""

    def __init__(self, model: LanguageModel, rows: int, capacity: int, steps: int, logprobs: int):
        device, words = model.token.weight.device, model.config.vocab
        self.model, self.top = model, min(logprobs, words)
        self.state = model.begin(rows, capacity)

        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.time = zeros(1)  # the column to write: 0 for the first id after a prompt
        self.last, self.active, self.steps = zeros(rows, 1), zeros(rows), zeros(rows)
        self.settings = zeros(rows, 6, dtype=torch.double)  # of `place`
        self.uniforms = zeros(rows, capacity, dtype=torch.double)
        self.seen = zeros(0, words, dtype=torch.bool)  # R V once a row needs it
        self.text, self.sizes = zeros(0, capacity + 1), zeros(rows)  # R T once a row needs it: prompt and ids
        self.ids, self.logprobs = zeros(rows, steps + 1), zeros(rows, steps + 1, dtype=torch.float)
        self.top_ids = zeros(rows, steps + 1, self.top)
        self.top_logprobs = zeros(rows, steps + 1, self.top, dtype=torch.float)

    def place(self, first: int, rows: Sequence[BatchRow]) -> None:
        """Set up continuations that begin to read, in the rows from `first` on."""
        where, device = slice(first, first + len(rows)), self.last.device
        every = [c.settings for c in rows]
        names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "no_repeat_ngram")
        numbers = [[getattr(s, name) for name in names] for s in every]
        self.settings[where] = moved(torch.tensor(numbers, dtype=torch.double), device)
        longest = max(len(c.request.uniforms) for c in rows)
        if longest:
            uniforms = pad_sequence([c.request.uniforms for c in rows], batch_first=True)
            self.uniforms[where, :longest] = moved(uniforms, device)
        self.steps[where] = 0
        self.state.rewind(where)
        if any(s.repetition_penalty != 1 for s in every) and not len(self.seen):
            self.seen = self.seen.new_zeros(len(self.last), self.seen.size(1))
        if len(self.seen):
            self.seen[where] = False
            for row, c in enumerate(rows, first):
                self.seen[row, moved(torch.tensor(c.request.prompt), device)] = True
        if any(s.no_repeat_ngram for s in every) and not len(self.text):
            self.text = self.text.new_zeros(len(self.last), self.text.size(1))
        if len(self.text):
            prompts = [torch.tensor(c.request.prompt) for c in rows]
            self.sizes[where] = moved(torch.tensor(list(map(len, prompts))), device)
            padded = pad_sequence(prompts, batch_first=True)
            self.text[where, : padded.size(1)] = moved(padded, device)

    def move(self, sources: list[int], targets: list[int], stop: int) -> None:
        source, target = (moved(torch.tensor(rows), self.last.device) for rows in (sources, targets))
        self.state.copy(source, target, stop)
        for x in (self.last, self.steps, self.settings, self.uniforms, self.seen, self.text, self.sizes):
            if len(x):
                x[target] = x[source]

    def read(self, rows: slice, texts: list[list[int]], reach: int, fresh: bool) -> Tensor:
        """Read texts: the hidden state at the end of each row, R D. `reach` and `fresh` as in `Past.part`."""
        self.state.reserve(reach)
        state = self.state.part(rows, reach, fresh)
        sizes = [len(text) for text in texts]
        ids = moved(torch.tensor([text + [0] * (max(sizes) - len(text)) for text in texts]), self.last.device)
        if min(sizes) == max(sizes):
            return self.model.read(ids, state)[:, -1]
        lengths = moved(torch.tensor(sizes), self.last.device)
        return self.model.read(ids, state, lengths)[torch.arange(len(sizes), device=ids.device), lengths - 1]

    def note(self, logits: Tensor, rows: slice, need: Need, settings: Sequence[Sampling] | None) -> None:
        """Choose an id for each row from R V logits, and record it; with `settings`, by the host's copy of them."""
        own = logits
        if need.penalty:
            logits = repetition_penalty(logits, self.seen[rows], self.settings[rows, 4:5].to(logits.dtype))
        for n in need.ngrams:
            without = no_repeat_ngrams(logits, self.text[rows], self.sizes[rows], n)
            logits = torch.where(self.settings[rows, 5:] == n, without, logits)
        if not need.draws:
            new = likeliest(logits)
        else:
            step = self.steps[rows, None].clamp(max=self.uniforms.size(1) - 1)
            uniform = self.uniforms[rows].gather(1, step).squeeze(1)
            if settings is None:
                new = choose_each(logits, uniform, self.settings[rows, :4])
            else:
                new = choose_in_groups(logits, uniform, settings)
        new = new[:, None]  # R 1
        self.last[rows] = new
        if need.draws:
            self.steps[rows] += self.active[rows]
        self.ids[rows].index_copy_(1, self.time, new)
        if need.penalty:
            self.seen[rows] |= F.one_hot(new.squeeze(1), self.seen.size(1)).bool() & (self.active[rows, None] > 0)
        if need.ngrams:
            self.text[rows].scatter_(1, self.sizes[rows, None].clamp(max=self.text.size(1) - 1), new)
            self.sizes[rows] += self.active[rows]
        if need.logprobs:
            words = own.float().log_softmax(-1)
            best, ids = words.topk(self.top, -1)
            self.logprobs[rows].index_copy_(1, self.time, words.gather(1, new))
            self.top_logprobs[rows].index_copy_(1, self.time, best[:, None])
            self.top_ids[rows].index_copy_(1, self.time, ids[:, None])

    def look(self, rows: int, columns: int, logprobs: bool) -> HostCopy:
        """What the first `rows` rows wrote since the last look."""
        self.time.zero_()
        rest = (self.logprobs, self.top_ids, self.top_logprobs) if logprobs else ()
        return HostCopy(*(x[:rows, :columns] for x in (self.ids, *rest)))


def choose_in_groups(logits: Tensor, uniform: Tensor, settings: Sequence[Sampling]) -> Tensor:
    """`choose` for groups of rows with equal settings: faster than `choose_each` on a CPU."""
    groups: dict[tuple[float, int, float, float], list[int]] = {}
    for row, s in enumerate(settings):
        groups.setdefault((s.temperature, s.top_k, s.top_p, s.min_p), []).append(row)
    new = torch.empty(len(logits), dtype=torch.long, device=logits.device)
    for numbers, rows in groups.items():
        some = logits if len(rows) == len(logits) else logits[rows]
        new[rows] = choose(some, uniform[rows], *numbers) if numbers[0] > 0 else likeliest(some)
    return new
