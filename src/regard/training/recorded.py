"""Training steps as CUDA graphs, so that the GPU does not wait for the host to launch every kernel."""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regard.errors import WorkFailed

WARM = 3  # steps of a shape before it is recorded, for what is set up at first use
MOST = 48  # recordings: ragged batches have two dozen shapes, others one or two

Step = tuple[Tensor, Tensor, Tensor]  # the loss, the norm of its gradients, 1 if either is not finite


@dataclass(frozen=True)
class Recording:
    """A recorded step for batches of one shape, which are copied into `batch` before a replay."""

    batch: Any
    count: Tensor
    replay: Callable[[], Step]


class RecordedStep:
    """`launched` takes micro-batches and a count of targets and does a whole step. After a few batches of a shape, it
    is recorded as a CUDA graph for `marked` ones, in which what does not count is masked instead of left out, so that
    all shapes are fixed. Accumulated micro-batches, and batches without a fixed shape, are launched as they are, and
    so are ragged ones unless `fills`.

    For a small model, whose kernels end before the next is launched, steps take a third of the time.
    """

    def __init__(self, launched: Callable[..., Step], device: torch.device, fills: bool):
        self.launched, self.device, self.fills = launched, device, fills
        self.seen: Counter[Hashable] = Counter()
        self.recordings: dict[Hashable, Recording] = {}
        self.pool: Any = None  # of memory, shared because one recording is replayed at a time

    def __call__(self, batches: list[Any], count: int) -> Step:
        if len(batches) > 1 or (batches[0].ragged and not self.fills):
            return self.launched(batches, count)
        batch = batches[0].marked()
        if (shape := batch.shape) is None:
            return self.launched(batches, count)
        if shape not in self.recordings:
            self.seen[shape] += 1
            if self.seen[shape] <= WARM:
                return self.apart([batch], count)
            if len(self.recordings) >= MOST or not self.has_room():
                return self.launched(batches, count)
            self.recordings[shape] = self.record(batch)
        here = self.recordings[shape]
        here.batch.take(batch)
        here.count.fill_(count)
        return here.replay()

    @cached_property
    def stream(self) -> torch.cuda.Stream:
        """Of recordings, and of the steps before them."""
        return torch.cuda.Stream(self.device)

    def apart(self, batches: list[Any], count: int) -> Step:
        """A step on the stream of recordings: autograd may keep nodes that belong to the stream of an earlier step, and
        a recording must not wait for another stream."""
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            step = self.launched(batches, count)
        torch.cuda.current_stream(self.device).wait_stream(self.stream)
        return step

    def record(self, batch: Any) -> Recording:
        batch, count = batch.still(self.device), torch.ones((), device=self.device)
        try:
            return Recording(batch, count, self.captured(batch, count))
        except RuntimeError as e:  # torch is left in an unusable state
            raise WorkFailed(
                f"a step of this model cannot be recorded: {str(e).splitlines()[0]}; does it synchronise with the GPU? "
                "Train it with --set accumulate=2, which records nothing"
            ) from e

    def captured(self, batch: Any, count: Tensor) -> Callable[[], Step]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, self.pool, self.stream, capture_error_mode="thread_local"):
            step = self.launched([batch], count)  # every replay overwrites them
        self.pool = graph.pool()

        def replay() -> Step:
            graph.replay()
            return step

        return replay

    def has_room(self) -> bool:
        """Whether there is memory for another recording, which may need as much as the largest step so far: the next
        shape may be larger than those recorded, and running out of memory while recording cannot be undone."""
        free, held = torch.cuda.mem_get_info(self.device)[0], torch.cuda.memory_reserved(self.device)
        used, most = torch.cuda.memory_allocated(self.device), torch.cuda.max_memory_allocated(self.device)
        return free + held - used > most
