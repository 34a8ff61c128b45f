"""A step of decoding as one CUDA graph: hundreds of small launches become one."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

EAGER_FIRST = 2  # steps before one is captured, in which libraries initialise


class Replay:
    """Runs `step`, which changes tensors held by `holders`; on a GPU it is captured once and then replayed.

    `step` must not synchronise, nor decide on the host. Tensors that it replaces are copied back into the old ones, so
    that every replay finds its inputs where the capture saw them. Integers that it sets, always to the same value, are
    set again after every replay.
    """

    def __init__(self, step: Callable[[], None], holders: list[Any], cuda: bool):
        self.step, self.holders, self.cuda = step, holders, cuda
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.after: list[dict[str, int]] = [{} for _ in holders]  # integers that a step sets

    def __call__(self) -> None:
        self.calls += 1
        if not self.cuda or self.calls <= EAGER_FIRST:
            self.step()
            return
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with (
                uncollected(),
                torch.cuda.graph(self.graph, capture_error_mode="thread_local"),
            ):  # other threads may use the GPU
                self._step_in_place()
        self.graph.replay()
        self._set_numbers()

    def _step_in_place(self) -> None:
        before = [dict(vars(holder)) for holder in self.holders]
        self.step()
        for holder, old, after in zip(self.holders, before, self.after, strict=True):
            for name, value in old.items():
                new = _copied(value, getattr(holder, name))
                setattr(holder, name, new)
                if isinstance(new, int) and new != value:
                    after[name] = new

    def _set_numbers(self) -> None:
        for holder, numbers in zip(self.holders, self.after, strict=True):
            vars(holder).update(numbers)


@contextmanager
def uncollected() -> Iterator[None]:
    """Suspend garbage collection: destroying another engine's graph would break a capture."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _copied(old: Any, new: Any) -> Any:
    if isinstance(old, Tensor) and new is not old:
        return old.copy_(new)
    if isinstance(old, tuple) and new is not old:
        return tuple(_copied(a, b) for a, b in zip(old, new, strict=True))
    return new


def overwrite(old: Any, new: Any) -> None:
    """Copy the tensors of `new`, also in its lists and attributes, over those of `old`, which has the same shapes."""
    if old is new:
        return
    if isinstance(old, Tensor):
        old.copy_(new)
    elif isinstance(old, list | tuple):
        for a, b in zip(old, new, strict=True):
            overwrite(a, b)
    elif hasattr(old, "__dict__"):
        for name, value in vars(new).items():
            part = getattr(old, name)
            if isinstance(value, Tensor | list | tuple) or hasattr(value, "__dict__"):
                overwrite(part, value)
            else:
                setattr(old, name, value)
