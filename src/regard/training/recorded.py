"""A training step, recorded and replayed: the GPU does not wait for the host to launch every kernel."""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.errors import WorkFailed

WARM = 3  # steps of a shape before it is recorded: by then whatever is set up at first use is set up
MOST = 8  # recordings: the batches of an epoch have one shape, the last of them another

Step = tuple[Tensor, Tensor, Tensor]  # the loss, the norm of its gradients, 1 where either is not finite


@dataclass(frozen=True)
class Recording:
    """Of the steps over batches of one shape, which are copied to where it reads them."""

    batch: Any
    count: Tensor
    replay: Callable[[], Step]


class RecordedStep:
    """`launched` and `marked` take micro-batches and a count of targets and do a whole step; in `marked` what does not
    count is marked and not left out, so that the shape says all that the host has to know. When batches of a shape have
    come a few times, `marked` is recorded as a CUDA graph. Micro-batches that are accumulated, and batches that have no
    such shape, go to `launched`.

    For a small model, whose kernels end before the next is launched, steps take a third of the time.
    """

    def __init__(self, launched: Callable[..., Step], marked: Callable[..., Step], device: torch.device):
        self.launched, self.marked, self.device = launched, marked, device
        self.seen: Counter[Hashable] = Counter()
        self.recordings: dict[Hashable, Recording] = {}
        self.pool: Any = None  # of memory, shared: one recording is replayed at a time

    def __call__(self, batches: list[Any], count: int) -> Step:
        batch = batches[0].marked()
        if len(batches) > 1 or (shape := batch.shape) is None:
            return self.launched(batches, count)
        if shape not in self.recordings:
            self.seen[shape] += 1
            if self.seen[shape] <= WARM:
                return self.marked([batch], count)
            if len(self.recordings) >= MOST or not self.has_room():
                return self.launched(batches, count)
            self.recordings[shape] = self.record(batch)
        here = self.recordings[shape]
        here.batch.take(batch)
        here.count.fill_(count)
        return here.replay()

    def record(self, batch: Any) -> Recording:
        batch, count = batch.still(self.device), torch.ones((), device=self.device)
        try:
            return Recording(batch, count, self.captured(batch, count))
        except RuntimeError as e:  # torch is left in a state that nothing should go on from
            raise WorkFailed(
                f"a step of this model cannot be recorded: {str(e).splitlines()[0]}; does it ask the GPU for a number? "
                "Train it with --set accumulate=2, which launches every step"
            ) from e

    def captured(self, batch: Any, count: Tensor) -> Callable[[], Step]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            step = self.marked([batch], count)  # every replay writes them anew
        self.pool = graph.pool()

        def replay() -> Step:
            graph.replay()
            return step

        return replay

    def has_room(self) -> bool:
        """Recordings keep memory of their own: as much again as a step has ever needed."""
        free, held = torch.cuda.mem_get_info(self.device)[0], torch.cuda.memory_reserved(self.device)
        used, most = torch.cuda.memory_allocated(self.device), torch.cuda.max_memory_allocated(self.device)
        return self.pool is not None or free + held - used > most
