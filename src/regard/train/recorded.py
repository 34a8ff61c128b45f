"""A pass forward and backward, recorded and replayed: a small model's GPU need not wait to be told every step."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

WARM = 3  # passes of a shape before it is recorded: by then whatever is set up at first use is set up
MOST = 4  # recordings: those of a text's full batches are one, a device that was too small may ask for others
ROOM = 0.4  # of the memory: recordings keep memory of their own, so the model has to leave as much again


@dataclass(frozen=True)
class Recording:
    graph: torch.cuda.CUDAGraph
    batch: Any  # what it reads
    loss: Tensor  # what it writes
    grads: list[Tensor | None]


class RecordedPass:
    """`share` fills the gradients for a batch of tokens and gives its part of the loss. This does the same, but when a
    shape of full batches has come a few times the pass is recorded as a CUDA graph. Others, and what cannot be
    recorded, go as before.
    """

    def __init__(self, share: Callable[[Any, int], Tensor], model: nn.Module):
        self.share, self.parameters = share, [p for p in model.parameters() if p.requires_grad]
        self.seen: Counter[tuple[int, ...]] = Counter()
        self.recordings: dict[tuple[int, ...], Recording] = {}
        self.most = MOST

    def __call__(self, batch: Any, count: int) -> Tensor:
        shape = (*batch.ids.shape, count)
        alone = all(p.grad is None for p in self.parameters)  # a recording writes gradients, and adds to none
        if batch.counts is not None or batch.documents is not None or not alone:
            return self.share(batch, count)
        if shape not in self.recordings:
            self.seen[shape] += 1
            if self.seen[shape] <= WARM or len(self.recordings) >= self.most or not has_room():
                return self.share(batch, count)
            self.record(shape, batch, count)
        if (found := self.recordings.get(shape)) is None:
            return self.share(batch, count)
        ids = batch.ids.pin_memory() if batch.ids.device.type == "cpu" else batch.ids
        found.batch.ids.copy_(ids, non_blocking=True)
        found.graph.replay()
        for p, grad in zip(self.parameters, found.grads, strict=True):
            p.grad = grad
        return found.loss

    def record(self, shape: tuple[int, ...], batch: Any, count: int) -> None:
        batch, graph = batch.to("cuda"), torch.cuda.CUDAGraph()
        pool = next((r.graph.pool() for r in self.recordings.values()), None)  # shared: one is replayed at a time
        try:
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                loss = self.share(batch, count)
            self.recordings[shape] = Recording(graph, batch, loss, [p.grad for p in self.parameters])
        except RuntimeError:  # a pass that asks the device something, or too little memory
            torch.cuda.synchronize()
            self.most = 0
        for p in self.parameters:
            p.grad = None


def has_room() -> bool:
    return torch.cuda.max_memory_reserved() < ROOM * torch.cuda.get_device_properties().total_memory
