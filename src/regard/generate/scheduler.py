"""Continuous batching: prompts join a running batch and leave it at every step, each with its own settings.

Handles ids only, with the guarantee of `generate/engine.py`: a continuation depends on the prompt, the settings and
which of its completions it is, never on the rest of the batch. The first rows decode, the next read their prompts in
parts, the last are free; the last row replaces one that ends, so the rows in use stay contiguous. A CPU computes only
those. On a GPU a step is one replayed graph over a power of two of rows, some idle, and the host reads the output of
one step while the next runs.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

import torch

from regard.errors import PromptTooLong
from regard.generate.replay import Replay
from regard.generate.request import Event, Sampling, fitting
from regard.generate.rows import HostCopy, Job, New, rounded
from regard.generate.sampling import prompt_uniforms
from regard.generate.slots import BatchRow, Need, Slots
from regard.models.base import LanguageModel
from regard.words import count as number

SHARED = 16  # least length of a common prefix for a prompt to reuse it
UNLIMITED = 4_096  # context of a model without a limit
# Prompts read together (a GPU reads a few in the time of one), their ids per step, the same while fewer rows decode
# than have a prompt to read (decoding few costs nearly as much as decoding all), and ids decoded per step.
ON_GPU, ON_CPU = (64, 16_384, 16_384, 16), (1, 128, 512, 1)


class FairQueue:
    """Waiting rows: owners take turns, each in its own order, so a large request does not hold up a small one."""

    def __init__(self) -> None:
        self.owners: OrderedDict[int, deque[BatchRow]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self.owners.values()))

    def push(self, owner: int, row: BatchRow) -> None:
        self.owners.setdefault(owner, deque()).append(row)

    def pop(self) -> BatchRow:
        owner, line = self.owners.popitem(last=False)
        row = line.popleft()
        if line:
            self.owners[owner] = line
        return row

    def discard(self, key: int) -> None:
        for owner, line in list(self.owners.items()):
            left = deque(c for c in line if c.request.row != key)
            if left:
                self.owners[owner] = left
            else:
                del self.owners[owner]


@dataclass
class Flight:
    """A launched step: its rows, what they write, and the first new column of each."""

    rows: list[BatchRow]
    begins: list[int]
    steps: int
    copy: HostCopy

    def land(self) -> list[Event]:
        """Wait for the device: what each row has written."""
        events = []
        for c, begin, new in zip(self.rows, self.begins, self.copy.news(), strict=True):
            c.ahead -= self.steps + 1 - begin
            if c.cancelled or not c.left:
                continue
            event = c.take(New(new.ids[begin:], new.logprobs[begin:], new.top[begin:]), c.ends, c.enough)
            if event.ids or event.finish:
                events.append(trimmed(event, c.settings.logprobs))
        return events


class Scheduler:
    """Continues prompts as they arrive. `add` them at any time, `step` while any is `active`, `cancel` any.

    `slots` rows share the batch, with room for `capacity` tokens each (0: the model's whole context); more wait in a
    fair queue. `logprobs` is the maximum of `Sampling.logprobs`.
    """

    def __init__(
        self,
        model: LanguageModel,
        ends: Collection[int] = (),
        *,
        slots: int = 16,
        capacity: int = 0,
        logprobs: int = 20,
    ):
        context = model.config.context or UNLIMITED
        self.model, self.ends, self.size = model, tuple(ends), slots
        self.capacity = min(capacity or context, context)
        cuda = model.token.weight.is_cuda
        self.together, self.budget, self.burst, self.steps = ON_GPU if cuda else ON_CPU
        self.static = cuda and bool(model.config.context)  # recurrent nets synchronise for the lengths
        with torch.inference_mode():
            self.slots = Slots(model, slots, self.capacity, self.steps, logprobs)
        self.graphs: dict[tuple[Need, int], Replay] = {}  # by the number of rows
        self.waiting = FairQueue()
        self.rows: list[BatchRow] = []  # by row: those that decode come first
        self.decoding = 0
        self.flight: Flight | None = None  # not read yet
        self.left: list[tuple[BatchRow, int]] = []  # the last owner of each row, and how much it had read
        self.keys = count(1)

    @property
    def active(self) -> bool:
        return bool(self.rows or self.flight or len(self.waiting))

    def fit(self, prompt: int, max_tokens: int | None = None) -> int:
        """How many tokens may follow a prompt of `prompt` tokens: `max_tokens`, or as many as there is room for."""
        if prompt >= self.capacity:
            what = f"the prompt has {number(prompt, 'token')}, this model reads at most {self.capacity - 1:,}"
            raise PromptTooLong(what, "shorten it")
        room = self.capacity - prompt
        if max_tokens is not None and max_tokens > room:
            what = f"the prompt has {number(prompt, 'token')} and max_tokens is {max_tokens:,}, together "
            what += f"{prompt + max_tokens:,}; this model has room for {self.capacity:,}"
            raise PromptTooLong(what, f"lower max_tokens to {room:,}")
        return max_tokens or room

    def add(
        self,
        prompt: Sequence[int],
        settings: Sampling,
        nth: int = 0,
        enough: Callable[[int, int], bool] | None = None,
        owner: int = 0,
    ) -> int:
        """The key of a new continuation, the `nth` of its prompt; it ends when `enough(key, id)` is true."""
        self.fit(max(len(prompt), 1), settings.max_tokens)
        key, (ids, _) = next(self.keys), fitting(self.model, prompt, "the prompt", self.ends, settings.max_tokens)
        steps = 0 if settings.temperature == 0 else settings.max_tokens
        job = Job(key, ids, 0, settings.max_tokens, prompt_uniforms(ids, nth, settings.seed, steps))
        ends = {*self.ends, *settings.stop_ids}
        self.waiting.push(owner, BatchRow(job, settings.max_tokens, 0, settings, ends, enough))
        return key

    def cancel(self, key: int) -> None:
        """Stop this continuation; its row is free at the next step."""
        self.waiting.discard(key)
        for c in (*self.rows, *(self.flight.rows if self.flight else ())):
            c.cancelled |= c.request.row == key

    def reset(self) -> None:
        """Drop everything: after a failed step the state of the rows is undefined."""
        self.waiting, self.rows, self.decoding = FairQueue(), [], 0
        self.left, self.flight = [], None
        self.graphs.clear()

    @torch.inference_mode()
    def step(self) -> list[Event]:
        """Read part of the waiting prompts, and decode one id of every row, on a GPU a few: what each has written.

        A GPU is read one step late, so that it has work while the host reads its output and prepares the next step.
        """
        admits = self.admits()
        if admits or not self.static or self.shrinks():
            self.compact()
        landing, self.flight = self.flight, self.launch(self.read_prompts(admits))
        if not self.static:
            landing, self.flight = self.flight, None
        return landing.land() if landing else []

    def launch(self, fresh: int) -> Flight | None:
        """Launch a few more ids of every decoding row; the last `fresh` rows have just chosen their first."""
        rows = self.rows[: self.decoding]
        if not rows:
            return None
        begins = [1] * (self.decoding - fresh) + [0] * fresh  # column 0 has the first id after a prompt
        need, steps = self.need(rows), min(self.steps, max(c.rest + b - 1 for c, b in zip(rows, begins, strict=True)))
        self.decode(need, steps)
        for c, begin in zip(rows, begins, strict=True):
            c.place += steps
            c.ahead += steps + 1 - begin
        return Flight(rows, begins, steps, self.slots.look(self.decoding, steps + 1, need.logprobs > 0))

    def need(self, rows: Sequence[BatchRow]) -> Need:
        settings = [c.settings for c in rows if not c.gone]
        return Need(
            any(s.temperature > 0 for s in settings),
            any(s.repetition_penalty != 1 for s in settings),
            tuple(sorted({s.no_repeat_ngram for s in settings} - {0})),
            self.slots.top if any(s.logprobs for s in settings) else 0,
        )

    def compact(self) -> None:
        """Remove rows that ended or were cancelled; the last decoding rows take their places."""
        if not any(c.gone for c in self.rows):
            return
        self.left[: len(self.rows)] = [(c, c.place) for c in self.rows]
        order = [i for i in range(self.decoding) if not self.rows[i].gone]
        self.decoding = len(order)
        for hole in [i for i in range(self.decoding) if self.rows[i].gone]:
            order.insert(hole, order.pop())
        order += [i for i in range(len(self.rows)) if i not in order and not self.rows[i].gone]
        moved = [(source, target) for target, source in enumerate(order) if source != target]
        self.rows = [self.rows[i] for i in order]
        if moved:
            sources, targets = zip(*moved, strict=True)
            stop = min(rounded(max(self.rows[t].place for t in targets)), self.capacity)
            self.slots.move(list(sources), list(targets), stop)
        self.activate()

    def activate(self) -> None:
        """Mark the rows that decode on the device."""
        self.slots.active[: self.decoding] = 1
        self.slots.active[self.decoding :] = 0

    def read_prompts(self, admits: bool) -> int:
        """Read a part of the prompts; returns how many rows finished theirs and chose a first id."""
        to_read = min(len(self.waiting), self.free) + len(self.rows) - self.decoding
        left, fresh = self.burst if to_read > self.decoding else self.budget, 0
        while left > 0 and (len(self.rows) > self.decoding or (admits and len(self.waiting) and self.free)):
            if len(self.rows) == self.decoding:
                self.admit()
            reading = self.rows[self.decoding :]  # the shortest first, so those that finish come first
            size = min(len(reading[-1].unread), max(left // len(reading), 1))
            rows = slice(self.decoding, len(self.rows))
            parts = [c.unread[:size] for c in reading]
            furthest = max(c.place for c in reading)
            hidden = self.slots.read(rows, parts, rounded(furthest + size), fresh=furthest == 0)
            for c, part in zip(reading, parts, strict=True):
                c.place += len(part)
            left -= size * len(reading)
            done = sum(not c.unread for c in reading)
            if done:
                ended = slice(self.decoding, self.decoding + done)
                settings = [c.settings for c in reading[:done]]
                self.decoding += done
                fresh += done
                self.activate()
                self.slots.note(self.model.logits(hidden[:done]), ended, self.need(reading[:done]), settings)
        return fresh

    @property
    def free(self) -> int:
        return self.size - len(self.rows)

    def admits(self) -> bool:
        """Whether a prompt is waiting and a row is free."""
        return len(self.waiting) > 0 and sum(not c.gone for c in self.rows) < self.size

    def shrinks(self) -> bool:
        """Whether a smaller graph would do for the rows that still decode."""
        live = sum(not c.gone for c in self.rows[: self.decoding])
        return live == 0 or self.width(live) < self.width(self.decoding)

    def width(self, rows: int) -> int:
        return min(self.size, 1 << (rows - 1).bit_length())  # powers of two: fewer graphs

    def admit(self) -> None:
        """Admit the next prompts, a few at a time, those with the least to read first."""
        begun = len(self.rows)
        rows = [self.waiting.pop() for _ in range(min(self.together, self.free, len(self.waiting)))]
        sources = {id(c): source for c, source in zip(rows, self.shared([c.request.prompt for c in rows]), strict=True)}
        rows.sort(key=lambda c: len(c.request.prompt) - sources[id(c)][1])
        self.slots.place(begun, rows)
        for row, c in enumerate(rows, begun):
            source, length = sources[id(c)]
            if length and (source == row or not begun <= source < row):  # it is still there
                self.slots.state.share(source, row, length)
                c.place = length
        self.rows += rows

    def shared(self, prompts: Sequence[list[int]]) -> list[tuple[int, int]]:
        """For each prompt, the row with the longest common prefix and its length, at most all but the last id."""
        if not self.slots.state.shares:
            return [(0, 0)] * len(prompts)
        texts = [(c, c.place) for c in self.rows] + self.left[len(self.rows) :]
        rows = []
        for prompt in prompts:
            stem = prompt[:-1]
            length, row = max(((c.alike(stem, place), -row) for row, (c, place) in enumerate(texts)), default=(0, 0))
            rows.append((-row, length if length >= SHARED else 0))
        return rows

    def decode(self, need: Need, steps: int) -> None:
        if self.static:
            count = self.width(self.decoding)
            if (need, count) not in self.graphs:
                rows = slice(0, count)
                state = self.slots.state.part(rows)
                work = partial(self.once, rows, need, None, state)
                self.graphs[need, count] = Replay(work, [state, self.slots], True)
            for _ in range(steps):
                self.graphs[need, count]()
            return
        rows, settings = slice(0, self.decoding), [c.settings for c in self.rows[: self.decoding]]
        self.slots.state.reserve(min(max(c.place for c in self.rows[: self.decoding]) + steps, self.capacity))
        for _ in range(steps):
            self.once(rows, need, settings, self.slots.state.part(rows))

    def once(self, rows: slice, need: Need, settings: Sequence[Sampling] | None, state: object) -> None:
        """Decode one more id of each row."""
        slots = self.slots
        slots.time += 1
        lengths = slots.active[rows] if settings is None else None
        slots.note(self.model.logits(self.model.read(slots.last[rows], state, lengths)[:, -1]), rows, need, settings)


def trimmed(event: Event, top: int) -> Event:
    """The event with as many alternatives as its row requested."""
    if not top:
        return Event(event.row, event.ids, [], [], event.finish, event.cut)
    return Event(event.row, event.ids, event.logprobs, [place[:top] for place in event.top], event.finish, event.cut)
