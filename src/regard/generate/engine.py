"""Prompts to completions, for every language model. Handles ids only; `generate/text.py` turns them into text.

Rows of different lengths share a batch without affecting each other. The host reads a GPU's output every few steps.
"""

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from regard.generate.guessing import GuessingRows
from regard.generate.request import Completion, Event, Kind, Sampling, fitting
from regard.generate.rows import Job, Rows, Seat, StaticRows, rounded
from regard.generate.sampling import prompt_uniforms
from regard.models.base import LanguageModel
from regard.ticks import tick

LOOK_EVERY = 32  # steps between reads from a GPU: a read synchronises; rows that end in between run on in vain
STREAM_EVERY = 8  # the same when streaming
SHELF = 4  # sets of rows, with caches and graphs, that a GPU keeps for later calls


class Engine:
    """Continues prompts. `ends` are the ids that end a text; at most `batch` rows are decoded together.

    A continuation depends on the prompt, the settings and which of its `n` completions it is; not on other prompts,
    their order or the batch. `compile` makes steps faster on a GPU, after a minute of compilation.
    """

    def __init__(self, model: LanguageModel, ends: Collection[int] = (), *, batch: int = 64, compile: bool = False):
        self.model, self.ends, self.batch = model, tuple(ends), batch
        self.static = model.token.weight.is_cuda
        self.compile = compile and self.static
        self.shelf: dict[tuple[int, int, Kind], StaticRows] = {}  # most recently used last

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        settings: Sampling,
        enough: Callable[[int, int], bool] | None = None,
    ) -> list[list[Completion]]:
        """The `n` completions of each prompt. Row r belongs to prompt r // n, and ends when `enough(r, id)` is true."""
        settings.check_memory(len(prompts))
        completions = [Completion() for _ in range(len(prompts) * settings.n)]
        blind = enough is None and not self.ends and not settings.stop_ids  # only its length can end a row
        for event in self.stream(prompts, settings, enough, settings.max_tokens if blind else LOOK_EVERY):
            completions[event.row].add(event)
        return [completions[i : i + settings.n] for i in range(0, len(completions), settings.n)]

    @torch.inference_mode()
    def stream(
        self,
        prompts: Sequence[Sequence[int]],
        settings: Sampling,
        enough: Callable[[int, int], bool] | None = None,
        look_every: int = STREAM_EVERY,
    ) -> Generator[Event, None, None]:
        """`generate` as a stream of events. Closing the generator stops the work.

        A text that outgrows the model's context continues from its last half. `look_every` is for GPUs.
        """
        settings.check_memory(len(prompts))
        jobs = deque(sorted(self.jobs(prompts, settings), key=lambda job: len(job.prompt)))
        while jobs:
            batch = [jobs.popleft() for _ in range(min(self.batch, len(jobs)))]
            yield from self.together(batch, settings, enough, look_every if self.static else 1)
            jobs.extend(job for job in batch if not job.finish)

    def jobs(self, prompts: Sequence[Sequence[int]], settings: Sampling) -> Iterator[Job]:
        """A job per row. Prompts are checked, and cut from the front to fit the context with `max_tokens`."""
        for number, prompt in enumerate(prompts):
            ids, cut = fitting(self.model, prompt, f"prompt {number + 1}", self.ends, settings.max_tokens)
            for nth in range(settings.n):
                steps = 0 if settings.temperature == 0 else settings.max_tokens
                uniforms = prompt_uniforms(ids, nth, settings.seed, steps)
                yield Job(number * settings.n + nth, ids, cut, settings.max_tokens, uniforms)

    def together(
        self, jobs: list[Job], settings: Sampling, enough: Callable[[int, int], bool] | None, look_every: int
    ) -> Iterator[Event]:
        """Decode one batch, until every job is finished or its context is full."""
        context, ends = self.model.config.context, {*self.ends, *settings.stop_ids}
        texts = [job.text(context) for job in jobs]
        seats = [Seat(job, job.limit - len(job.made), len(text)) for job, text in zip(jobs, texts, strict=True)]
        for seat in seats:
            seat.left = min(seat.left, context - seat.place + 1) if context else seat.left  # the last is not read
        need = max(seat.place + seat.left - 1 for seat in seats)
        capacity = min(rounded(need), context) if context else rounded(need)
        uniforms = [seat.job.uniforms[len(seat.job.made) :][: seat.left] for seat in seats if seat.job]
        with self.reading(texts, uniforms, capacity, settings) as rows:
            seats += [Seat(None, 0, 1) for _ in range(len(rows.last) - len(seats))]
            while True:
                for seat, new in zip(seats, rows.look(), strict=True):
                    if seat.left:
                        event = seat.take(new, ends, enough)
                        if event.ids or event.finish:
                            tick(bool(event.finish))
                            yield event
                if not any(seat.left for seat in seats):
                    return
                seats = rows.make_room(seats)
                count = min(look_every, max(s.left for s in seats), rows.capacity - max(s.place for s in seats))
                count = rows.steps(count)
                for seat in seats:
                    seat.place += count

    @contextmanager
    def reading(
        self, texts: list[list[int]], uniforms: list[Tensor], capacity: int, settings: Sampling
    ) -> Iterator[Rows]:
        """Rows that have read these texts. On a GPU they are taken from the shelf if possible, and put back."""
        if not self.static:
            distinct = {text: i for i, text in enumerate(dict.fromkeys(map(tuple, texts)))}
            kind = GuessingRows if GuessingRows.takes(self.model, settings, len(texts)) else Rows
            rows = kind(self.model, settings, len(texts), len(distinct), capacity)
            rows.start([list(text) for text in distinct], [distinct[tuple(text)] for text in texts], uniforms)
            yield rows
            return
        count = 1 << (len(texts) - 1).bit_length()  # powers of two: fewer graphs
        idle = count - len(texts)
        fits = [c for r, c, kind in self.shelf if (r, kind) == (count, settings.kind) and capacity <= c <= 2 * capacity]
        key = count, min(fits, default=capacity), settings.kind
        held = self.shelf.pop(key, None) or StaticRows(self.model, settings, count, key[1], self.compile)
        try:
            held.adjust(settings)
            held.start([*texts, *[[0]] * idle], list(range(count)), [*uniforms, *[torch.zeros(1)] * idle])
            yield held
        except Exception:
            held = None  # its state is undefined
            raise
        finally:
            if held is not None:
                self.shelf[key] = held
            for old in list(self.shelf)[:-SHELF]:
                del self.shelf[old]
