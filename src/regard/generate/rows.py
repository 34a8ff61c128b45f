"""The rows of a batch that are decoded together: their state on the device, and the jobs they belong to.

On a GPU a step (read an id, score all tokens, choose, record) is one replayed graph; on a CPU finished rows leave.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from regard.generate.replay import Replay
from regard.generate.request import Event, Sampling
from regard.generate.sampling import choose, likeliest, no_repeat_ngrams, repetition_penalty
from regard.models.base import LanguageModel

READ_AT_ONCE, READ_LEAST = 16_384, 64  # prompt ids read at once, of all rows and at least of one; more come in parts
REPLAY_UP_TO = 4_096  # up to this many prompt ids, launching takes longer than computing, so a graph pays


class New(NamedTuple):
    """What a row has written since the last `look`."""

    ids: list[int]
    logprobs: list[float]
    top: list[list[tuple[int, float]]]


class HostCopy:
    """A copy to the host of what R rows have written, C ids each; `news` waits for it.

    If requested, also their log-probabilities, R C, and the likeliest ids and log-probabilities, R C top.
    """

    def __init__(self, *written: Tensor):
        self.written = [torch.empty(x.shape, dtype=x.dtype, pin_memory=x.is_cuda) for x in written]
        for host, x in zip(self.written, written, strict=True):
            host.copy_(x, non_blocking=True)
        self.copied = torch.cuda.Event() if written[0].is_cuda else None
        if self.copied is not None:
            self.copied.record()

    def news(self) -> list[New]:
        """What each row has written."""
        if self.copied is not None:
            self.copied.synchronize()
        ids, *rest = (x.tolist() for x in self.written)
        if not rest:
            return [New(row, [], []) for row in ids]
        logprobs, top_ids, top_logprobs = rest
        pairs = zip(top_ids, top_logprobs, strict=True)
        tops = [[list(zip(*place, strict=True)) for place in zip(*row, strict=True)] for row in pairs]
        return [New(*row) for row in zip(ids, logprobs, tops, strict=True)]


class Rows:
    """The device state of R rows that are decoded together: the model's state, and what they wrote."""

    def __init__(self, model: LanguageModel, settings: Sampling, rows: int, texts: int, capacity: int):
        kind = settings.kind
        device, words, top = model.token.weight.device, model.config.vocab, min(kind.logprobs, model.config.vocab)
        self.model, self.kind, self.capacity, self.top = model, kind, capacity, top
        self.numbers: dict[str, Any] = numbers(settings)
        self.state = model.begin(texts, capacity)
        self.looked = self.written = 0  # ids of every row, as the host counts them

        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.time = zeros(1)  # ids of every row, as the device counts them
        self.last = zeros(rows, 1)
        self.ids = zeros(rows, capacity)
        self.uniforms = zeros(0 if kind.greedy else rows, capacity, dtype=torch.double)
        self.seen = zeros(rows if kind.penalty else 0, words, dtype=torch.bool)
        self.text = zeros(rows if kind.ngram else 0, capacity + 1)  # prompt and ids, of which `sizes` are written
        self.sizes = zeros(len(self.text))
        reported = rows if top else 0
        self.logprobs = zeros(reported, capacity, dtype=torch.float)
        self.top_logprobs, self.top_ids = (
            zeros(reported, capacity, top, dtype=torch.float),
            zeros(reported, capacity, top),
        )

    def start(self, texts: list[list[int]], which: list[int], uniforms: list[Tensor]) -> None:
        """Read the texts and choose the first id of every row; row r continues text `which[r]`."""
        ids, lengths = self.padded(texts, max(map(len, texts)))
        rows = torch.tensor(which)
        self.prepare(ids[rows], lengths[rows], uniforms)
        hidden = self.read(ids, None if min(map(len, texts)) == ids.size(1) else lengths)
        if len(texts) < len(which):
            self.state.select(rows)
            hidden = hidden[rows]
        self.note(self.model.logits(hidden))

    def padded(self, texts: list[list[int]], size: int) -> tuple[Tensor, Tensor]:
        """R T ids and their lengths. Padding repeats an id of the text, so that it adds nothing to `seen`."""
        ids = torch.tensor([text + text[-1:] * (size - len(text)) for text in texts])
        lengths = torch.tensor([len(text) for text in texts])
        return ids.to(self.last.device, non_blocking=True), lengths.to(self.last.device, non_blocking=True)

    def prepare(self, ids: Tensor, lengths: Tensor, uniforms: list[Tensor]) -> None:
        self.looked, self.written = 0, 1
        self.time.zero_()
        if not self.kind.greedy:
            padded = pad_sequence(uniforms, batch_first=True)
            self.uniforms[:, : padded.size(1)] = padded.to(self.uniforms.device, non_blocking=True)
        if self.kind.penalty:
            self.seen.zero_().scatter_(1, ids, True)
        if self.kind.ngram:
            self.text[:, : ids.size(1)] = ids
            self.sizes.copy_(lengths)

    def read(self, ids: Tensor, lengths: Tensor | None) -> Tensor:
        """The hidden state at the end of every text, R D."""
        rows, start, ends = torch.arange(len(ids), device=ids.device), 0, torch.empty(0)
        for part in ids.split(max(READ_AT_ONCE // len(ids), READ_LEAST), 1):
            if lengths is None:
                ends = self.model.read(part, self.state)[:, -1]
                continue
            real = (lengths - start).clamp(0, part.size(1))
            new = self.model.read(part, self.state, real)[rows, (real - 1).clamp(min=0)]
            ends = torch.where(real[:, None] > 0, new, ends) if start else new
            start += part.size(1)
        return ends

    def steps(self, count: int) -> int:
        """Decode about `count` more ids of every row; returns how many."""
        for _ in range(count):
            self.step()
        self.written += count
        return count

    def step(self) -> None:
        self.note(self.model.logits(self.model.read(self.last, self.state)[:, -1]))

    def note(self, logits: Tensor) -> None:
        """Choose an id for each row from R V logits, and record it."""
        own, kind = logits, self.kind
        if kind.penalty:
            logits = repetition_penalty(logits, self.seen, self.numbers["repetition_penalty"])
        if kind.ngram:
            logits = no_repeat_ngrams(logits, self.text, self.sizes, kind.ngram)
        new = self.choice(logits, self.uniforms if kind.greedy else self.uniforms.index_select(1, self.time).squeeze(1))
        new = new[:, None]  # R 1
        self.last.copy_(new)
        if kind.penalty:
            self.seen.scatter_(1, new, True)
        if kind.ngram:
            self.text.scatter_(1, self.sizes[:, None].clamp(max=self.capacity), new)
            self.sizes += 1
        self.record(new, own[:, None], self.time)
        self.time += 1

    def choice(self, logits: Tensor, uniform: Tensor) -> Tensor:
        """An id for each of … V logits, by its uniform number: …"""
        kind = self.kind
        if kind.greedy:
            return likeliest(logits)
        p, least = self.numbers["top_p"] if kind.top_p else 1.0, self.numbers["min_p"] if kind.min_p else 0.0
        return choose(logits, uniform, self.numbers["temperature"], kind.top_k, p, least)

    def record(self, ids: Tensor, logits: Tensor, where: Tensor) -> None:
        """Write down T ids of every row, R T, chosen from R T V logits, as those at `where`, T."""
        self.ids.index_copy_(1, where, ids)
        if self.top:
            words = logits.float().log_softmax(-1)
            best, top = words.topk(self.top, -1)  # R T top
            self.logprobs.index_copy_(1, where, words.gather(2, ids[:, :, None]).squeeze(2))
            self.top_logprobs.index_copy_(1, where, best)
            self.top_ids.index_copy_(1, where, top)

    def look(self) -> list[New]:
        """What every row has written since the last look: the only synchronisation."""
        new = slice(self.looked, self.written)
        self.looked = self.written
        rest = (self.logprobs, self.top_ids, self.top_logprobs) if self.top else ()
        return HostCopy(*(x[:, new] for x in (self.ids, *rest))).news()

    def make_room(self, seats: list["Seat"]) -> list["Seat"]:
        """Drop finished rows once there are many, or no room is left; returns the remaining seats."""
        stay = [row for row, seat in enumerate(seats) if seat.left]
        if 4 * len(stay) > 3 * len(seats) and all(seat.place < self.capacity for seat in seats):
            return seats
        self.select(torch.tensor(stay, device=self.last.device))
        return [seats[row] for row in stay]

    def select(self, rows: Tensor) -> None:
        self.state.select(rows)
        self.last, self.ids, self.uniforms, self.seen, self.text, self.sizes = (
            x[rows] if len(x) else x for x in (self.last, self.ids, self.uniforms, self.seen, self.text, self.sizes)
        )
        self.logprobs, self.top_logprobs, self.top_ids = (
            x[rows] if len(x) else x for x in (self.logprobs, self.top_logprobs, self.top_ids)
        )


class StaticRows(Rows):
    """Rows whose memory never moves, so that a GPU can replay their step as one graph, also in later calls."""

    def __init__(self, model: LanguageModel, settings: Sampling, rows: int, capacity: int, compile: bool):
        super().__init__(model, settings, rows, rows, capacity)
        self.numbers = {
            name: torch.tensor(float(value), device=self.last.device) for name, value in self.numbers.items()
        }
        self.cuda = self.last.is_cuda
        step = compiled(self.step) if compile else self.step
        self.replay = Replay(step, [self.state, self], self.cuda)
        self.readings: dict[int, tuple[Tensor, Tensor, Replay]] = {}  # by text length

    def adjust(self, settings: Sampling) -> None:
        for name, value in numbers(settings).items():
            self.numbers[name].fill_(value)

    def start(self, texts: list[list[int]], which: list[int], uniforms: list[Tensor]) -> None:
        """As `Rows.start`, with a text for every row, padded to a few lengths; short ones are read by a graph."""
        longest = max(map(len, texts))
        ids, lengths = self.padded([texts[w] for w in which], min(rounded(longest), self.capacity))
        self.prepare(ids, lengths, uniforms)
        self.state.restart()
        if ids.numel() > REPLAY_UP_TO or not self.model.config.context:  # recurrent nets synchronise for the lengths
            self.begin(ids, lengths)
            return
        if ids.size(1) not in self.readings:
            begin = partial(self.begin, ids, lengths)
            self.readings[ids.size(1)] = ids, lengths, Replay(begin, [self.state, self], self.cuda)
        held, sizes, replay = self.readings[ids.size(1)]
        held.copy_(ids)
        sizes.copy_(lengths)
        replay()

    def begin(self, ids: Tensor, lengths: Tensor) -> None:
        self.note(self.model.logits(self.read(ids, lengths)))

    def steps(self, count: int) -> int:
        for _ in range(count):
            self.replay()
        self.written += count
        return count

    def make_room(self, seats: list["Seat"]) -> list["Seat"]:
        """All rows stay; finished ones without room restart at 0, and their output is ignored."""
        full = [row for row, seat in enumerate(seats) if seat.place == self.capacity]
        if full:
            self.state.places[torch.tensor(full, device=self.last.device)] = 0
        for row in full:
            seats[row].place = 0
        return seats


def compiled(step: Callable[[], None]) -> Callable[[], None]:
    """`step` compiled into few kernels. Every set of rows is compiled, which exceeds torch's default limit."""
    fast = torch.compile(step, fullgraph=True, dynamic=False)

    def run() -> None:
        with torch._dynamo.config.patch(recompile_limit=256):
            fast()

    return run


def numbers(settings: Sampling) -> dict[str, float]:
    return {name: getattr(settings, name) for name in ("temperature", "top_p", "min_p", "repetition_penalty")}


@dataclass
class Job:
    """One continuation in progress, of at most `limit` ids."""

    row: int
    prompt: list[int]
    cut: int
    limit: int
    uniforms: Tensor
    made: list[int] = field(default_factory=list)
    finish: str = ""

    def text(self, context: int) -> list[int]:
        """The text to read before continuing: all so far, or its last half once the model's context is full."""
        ids = self.prompt + self.made
        return ids if not context or len(ids) <= context else ids[-max(context // 2, 1) :]


@dataclass
class Seat:
    """A job's row in a batch: how many ids it may still write there, and how many it has read."""

    job: Job | None  # None: the row is free
    left: int
    place: int

    def take(self, new: New, ends: Set[int], enough: Callable[[int, int], bool] | None) -> Event:
        """The part of the new ids that counts: up to an end, the id where `enough` is true, or the last one with room.

        A job whose context is full has no `finish` yet, and continues in another batch.
        """
        job = self.job
        assert job is not None
        count, ids = 0, new.ids[: self.left]
        if enough is None and ends.isdisjoint(ids):
            count, ids = len(ids), []
        for id in ids:
            if id in ends:
                job.finish = "stop"
                break
            count += 1
            if enough is not None and enough(job.row, id):
                job.finish = "stop"
                break
        job.made += new.ids[:count]
        self.left -= count
        if not job.finish and len(job.made) == job.limit:
            job.finish = "length"
        self.left = 0 if job.finish else self.left
        return Event(job.row, new.ids[:count], new.logprobs[:count], new.top[:count], job.finish, job.cut)


def rounded(tokens: int) -> int:
    return -(-tokens // 64) * 64
