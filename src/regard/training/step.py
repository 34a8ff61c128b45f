"""One optimiser step: the gradients of a few micro-batches, cut if memory is short, recorded if that is faster."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.data.batch import LENGTHS
from regard.training.memory import fitted, pieces
from regard.training.optim import Optimiser
from regard.training.parallel import World
from regard.training.parts import Parts
from regard.training.placement import Placement
from regard.training.progress import Progress
from regard.training.recorded import RecordedStep, Step


class Stepper:
    """Micro-batches and the count of their targets -> loss per target, gradient norm, 1 if either is not finite."""

    def __init__(
        self,
        parts: Parts,
        optimiser: Optimiser,
        precision: AbstractContextManager,
        at: Progress,
        device: torch.device,
        say: Callable[[str], None],
        world: World,
        placement: Placement,
    ):
        self.model, self.loss_sum, self.optimiser = parts.model, parts.objective.loss_sum, optimiser
        self.precision, self.at, self.device, self.say, self.world = precision, at, device, say, world
        self.work: Callable[..., Step] = self.launched
        self.placement = placement
        self.watch: AbstractContextManager = nullcontext()
        if world.size > 1:
            self.work, self.watch = self.exchanged, Stopwatch(device)
            return
        if device.type == "cuda" and recordable(parts):
            self.work = RecordedStep(self.launched, device, fills=waits_for_host(parts))

    def __call__(self, micros: list[Any], count: float) -> Step:
        return (self.launched if self.at.limit and self.world.size == 1 else self.work)(micros, count)

    def launched(self, micros: list[Any], count: Any) -> Step:
        part = partial(self.share, count=count, loss_sum=self.loss_sum)
        loss = fitted(part, micros, self.at, self.optimiser.zero_grad, self.say)
        return (loss, *self.optimiser.update(loss))

    def exchanged(self, micros: list[Any], count: Any) -> Step:
        """A step with other ranks: each computes its part, and gradients are exchanged once, with the last piece."""
        *before, last = pieces(micros, self.at.limit)
        part = partial(self.share, count=count, loss_sum=lambda _, batch: self.placement(batch))
        with self.placement.no_sync():
            loss = sum(map(part, before))
        loss = self.world.total(loss + part(last))
        return (loss, *self.optimiser.update(loss))

    def share(self, batch: Any, count: Any, loss_sum: Callable[..., Tensor]) -> Tensor:
        """A micro-batch's part of the mean loss; its gradients are accumulated."""
        with self.precision, self.watch:
            loss = loss_sum(self.model, batch.to(self.device)) / count
        (loss * self.world.size).backward()  # undoes the averaging over ranks
        return loss.detach()


SMALL = 2e12  # operations of a step that a GPU computes faster than the host launches it


def recordable(parts: Parts) -> bool:
    """Whether steps can be CUDA graphs: nothing in them waits for the device, and no shape depends on values."""
    return parts.objective.fixed_shapes and not parts.run.parallel.checkpoint  # recomputing reads the RNG's state


def waits_for_host(parts: Parts) -> bool:
    """Whether a GPU waits for the host in steps of ragged batches: then recording gains more than padding costs."""
    run, model = parts.run, parts.model
    if run.compile:
        return False  # two or three graphs serve all shapes of ragged batches, but not the filled ones too
    if getattr(model.config, "max_length", 0) % LENGTHS:
        return False  # padding might exceed the model's positions
    passes = 2 if run.consistency else 1
    return 6 * sum(p.numel() for p in model.parameters()) * run.tokens * passes < SMALL


class Stopwatch:
    """Seconds of a process's own work, without waiting: `with watch: …`. A GPU is timed by its own clock."""

    def __init__(self, device: torch.device):
        self.cuda = device.type == "cuda"
        self.seconds = 0.0
        self.events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def __enter__(self) -> None:
        self.began = time.perf_counter()
        if self.cuda:
            self.events.append((torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)))
            self.events[-1][0].record()

    def __exit__(self, *_: object) -> None:
        if self.cuda:
            self.events[-1][1].record()
        else:
            self.seconds += time.perf_counter() - self.began

    def read(self) -> float:
        """The seconds since the last call."""
        if self.cuda:
            torch.cuda.synchronize()
            self.seconds += sum(start.elapsed_time(end) for start, end in self.events) / 1000
        seconds, self.seconds, self.events = self.seconds, 0.0, []
        return seconds
