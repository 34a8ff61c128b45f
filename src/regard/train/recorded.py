"""A pass forward and backward, recorded once and replayed: a small model's GPU need not wait to be told every step."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

WARM = 3  # passes of a shape before it is recorded: by then whatever is set up at first use is set up
ROOM = 0.4  # of the memory: a recording keeps memory of its own, so the model has to leave as much again


class RecordedPass:
    """`share` fills the gradients for a batch of tokens and gives its part of the loss. This does the same, but when a
    shape of batches has come a few times the pass is recorded as a CUDA graph. What cannot be recorded goes as before.
    """

    def __init__(self, share: Callable[[Any, int], Tensor], model: nn.Module):
        self.share, self.parameters = share, [p for p in model.parameters() if p.requires_grad]
        self.seen: dict[tuple[int, ...], int] = {}
        self.recorded: tuple[int, ...] = ()
        self.graph: Any = None

    def __call__(self, batch: Any, count: int) -> Tensor:
        shape = (*batch.ids.shape, count)
        alone = all(p.grad is None for p in self.parameters)  # a recording writes gradients, and adds to none
        if batch.counts is not None or batch.documents is not None or not alone:
            return self.share(batch, count)
        if shape != self.recorded:
            self.seen[shape] = self.seen.get(shape, 0) + 1
            if self.recorded or self.seen[shape] <= WARM or not has_room():
                return self.share(batch, count)
            self.recorded = shape
            self.record(batch, count)
        if self.graph is None:
            return self.share(batch, count)
        self.batch.ids.copy_(batch.ids.pin_memory() if batch.ids.device.type == "cpu" else batch.ids, non_blocking=True)
        self.graph.replay()
        for p, grad in zip(self.parameters, self.grads, strict=True):
            p.grad = grad
        return self.loss

    def record(self, batch: Any, count: int) -> None:
        self.batch, graph = batch.to("cuda"), torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self.loss = self.share(self.batch, count)
            self.graph = graph
        except RuntimeError:  # a pass that asks the device something, or too little memory
            torch.cuda.synchronize()
        self.grads = [p.grad for p in self.parameters]
        for p in self.parameters:
            p.grad = None


def has_room() -> bool:
    return torch.cuda.max_memory_reserved() < ROOM * torch.cuda.get_device_properties().total_memory
