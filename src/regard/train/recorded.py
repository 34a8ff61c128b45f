"""A pass forward and backward, recorded and replayed: a small model's GPU need not wait to be told every step."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.batch import Tokens
from regard.errors import WorkFailed

WARM = 3  # passes before one is recorded: by then whatever is set up at first use is set up


class RecordedPass:
    """`share` fills the gradients for a batch of tokens and gives its part of the loss, and so does `marked`, in which
    what does not count is marked and not left out. Batches of plain text, which have one shape, are copied to where
    `marked` always finds them; after a few passes it is recorded as a CUDA graph. Others go to `share`.
    """

    def __init__(
        self,
        share: Callable[[Any, Any], Tensor],
        marked: Callable[[Any, Any], Tensor],
        model: nn.Module,
        device: torch.device,
    ):
        self.share, self.marked, self.device = share, marked, device
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.passes = 0
        self.replay: Callable[[], None] | None = None

    def __call__(self, batch: Tokens, count: int) -> Tensor:
        alone = all(p.grad is None for p in self.parameters)  # a recording writes gradients, and adds to none
        if batch.documents is not None or not alone:
            return self.share(batch, count)
        if self.passes == 0:
            self.batch, self.count = still(batch, self.device), torch.zeros((), device=self.device)
        if batch.ids.shape != self.batch.ids.shape:
            return self.share(batch, count)
        self.read(batch, count)
        self.passes += 1
        if self.replay is None:
            if self.passes <= WARM or not self.has_room():
                return self.marked(self.batch, self.count)
            self.loss, self.replay = self.captured()
            self.grads = [p.grad for p in self.parameters]
        self.replay()
        for p, grad in zip(self.parameters, self.grads, strict=True):
            p.grad = grad
        return self.loss

    def read(self, batch: Tokens, count: int) -> None:
        assert self.batch.counts is not None
        counts = torch.ones_like(batch.targets, dtype=torch.bool) if batch.counts is None else batch.counts
        for here, new in ((self.batch.ids, batch.ids), (self.batch.counts, counts)):
            here.copy_(new.pin_memory() if here.is_cuda and not new.is_cuda else new, non_blocking=True)
        self.count.fill_(count)

    def captured(self) -> tuple[Tensor, Callable[[], None]]:
        """The loss, which every replay writes anew, as it does the gradients."""
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                return self.marked(self.batch, self.count), graph.replay
        except RuntimeError as e:  # torch is left in a state that nothing should go on from
            raise WorkFailed(
                f"a pass of this model cannot be recorded: {str(e).splitlines()[0]}; does it ask the GPU for a number? "
                "Train it with --set compile=true"
            ) from e

    def has_room(self) -> bool:
        """A recording keeps memory of its own: as much again as was ever needed."""
        return torch.cuda.mem_get_info(self.device)[0] > torch.cuda.max_memory_reserved(self.device)


def still(batch: Tokens, device: torch.device) -> Tokens:
    """A batch on the device, for others of its shape to be copied to."""
    ids = batch.ids.to(device, copy=True)
    counts = torch.ones_like(ids[:, 1:], dtype=torch.bool)
    return replace(batch, ids=ids, counts=counts, host_counts=np.ones(counts.shape, bool))
