"""All communication between ranks: PyTorch's process groups behind one small object that the loop calls.

A run is the same on any number of processes. Each step has the same micro-batches; ranks get whole ones if these can be
shared evenly, else some rows of each. Losses are sums divided by one count, so neither choice changes the result.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from regard.errors import ConfigError, RegardError, WorkFailed
from regard.limits import exhausted_memory

T = TypeVar("T")
STEP_LIMIT = timedelta(minutes=10)  # for what all ranks do in each step; a rank that takes longer hangs
PATIENT = timedelta(days=7)  # for what one rank does while the others wait: preparing data, evaluating
SLOW = 2.0  # times the others' work, from which a rank is reported
GRACE = 3.0  # seconds in which the remaining ranks report, after one was lost


@dataclass(frozen=True)
class World:
    """This process among the `size` processes that train one model. A plain `regard train` is a world of one."""

    rank: int = 0
    size: int = 1
    local: int = 0  # rank among the processes of this machine
    patient: Any = None  # a process group on the hosts, without the time limit of a step
    store: Any = None  # for the error of a rank that fails
    hosts: Any = None  # with GPUs, a process group that times out before NCCL, which would print stack traces

    @property
    def main(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    # -- numbers ------------------------------------------------------------------------------------------------------

    def gather(self, *numbers: int) -> list[list[int]]:
        """The integers of every rank, on every rank. They stay on the host, so the device is not waited for."""
        if self.size == 1:
            return [list(numbers)]
        rows = [torch.zeros(len(numbers), dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(rows, torch.tensor(numbers), group=self.hosts)
        return [row.tolist() for row in rows]

    def total(self, x: Tensor) -> Tensor:
        """The sum of `x` over all ranks, on every rank."""
        if self.size > 1:
            dist.all_reduce(x)
        return x

    def broadcast(self, value: T) -> T:
        """Rank 0's value, on every rank; the others wait for it as long as it takes."""
        if self.size == 1:
            return value
        values: list[Any] = [value]
        dist.broadcast_object_list(values, src=0, group=self.patient)
        return values[0]

    def collect(self, tensor: Tensor) -> list[Tensor]:
        """The host tensors of all ranks, which have one shape, on every rank."""
        if self.size == 1:
            return [tensor]
        tensors = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(tensors, tensor, group=self.patient)
        return tensors

    def in_parts(self, work: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """`work(rows)` for rows that every rank has: each rank computes some of them, and all get the whole result,
        which has the shape of `rows`."""
        if self.size == 1:
            return work(rows)
        count = -(-len(rows) // self.size)
        part = rows.new_zeros(count, *rows.shape[1:])
        mine = rows[self.rank * count :][:count]
        if len(mine):
            part[: len(mine)] = work(mine)
        results = rows.new_empty(self.size * count, *rows.shape[1:])
        dist.all_gather(list(results.split(count)), part)
        return results[: len(rows)]

    def slow(self, seconds: float) -> str:
        """The warning about a process whose own work takes far longer than the others'; "" if there is none."""
        times = [time for (time,) in self.gather(round(1e6 * seconds))]
        most = max(times)
        others = sorted(times)[: self.size - 1]
        usual = others[len(others) // 2] if others else most
        if most <= SLOW * usual:
            return ""
        return (
            f"process {times.index(most)} is slow: its own work takes {most / max(1, usual):.1f} times as long as that "
            "of the others, which wait for it; is its machine busy?"
        )

    # -- work ---------------------------------------------------------------------------------------------------------

    def share(self, loader: Any, number: int) -> tuple[list[Any], bool]:
        """This rank's part of the next `number` micro-batches, and whether it counts: if a batch has fewer rows than
        there are ranks, some compute a row that does not count, because all ranks take part in every step."""
        if self.size == 1:
            return [next(loader) for _ in range(number)], True
        if number % self.size == 0:
            mine = []
            for turn in range(number):
                if turn % self.size == self.rank:
                    mine.append(next(loader))
                else:
                    loader.skip()
            return mine, True
        batches = [next(loader) for _ in range(number)]
        parts = [part for batch in batches if len(part := batch.part(self.rows(len(batch))))]
        return parts or [batches[0].part(slice(0, 1))], bool(parts)

    def rows(self, count: int) -> slice:
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    # -- failures -----------------------------------------------------------------------------------------------------

    @contextmanager
    def together(self) -> Iterator[None]:
        """If the block fails on one rank, raise its error on all of them."""
        if self.size == 1:
            yield
            return
        error: Exception | None = None
        try:
            yield
        except Exception as e:
            error = e
        errors: list[Any] = [None] * self.size
        dist.all_gather_object(errors, error and failure(error), group=self.patient)
        if self.main and error:
            raise error
        for rank, words in enumerate(errors):
            if words:
                raise PeerFailed(rank, **words) from error

    def first(self, work: Callable[[], T]) -> T:
        """Call `work` in one process of each machine, then in the others, so that what it prepares is prepared once."""
        results: list[T] = []
        for turn in (True, False) if self.size > 1 else (True,):
            with self.together():
                if (self.local == 0) == turn:
                    results.append(work())
        return results[0]

    def check_same(self, values: dict[str, Any]) -> None:
        """Raise `ConfigError` on every rank unless all have equal values."""
        if self.size == 1:
            return
        hashes = {
            name: hashlib.sha256(json.dumps(v, sort_keys=True).encode()).hexdigest() for name, v in values.items()
        }
        everyone: list[Any] = [None] * self.size
        dist.all_gather_object(everyone, hashes, group=self.patient)
        for rank, others in enumerate(everyone):
            if different := [name for name in everyone[0] if others[name] != everyone[0][name]]:
                raise ConfigError(
                    f"process {rank} has different {' and '.join(different)} from process 0; start all with the same "
                    "command, files and version of regard"
                )

    @contextmanager
    def watched(self, step: Callable[[], int]) -> Iterator[None]:
        """A failure of any rank ends all of them, and rank 0 reports which one it was and in which step."""
        try:
            yield
        except Exception as e:
            if self.size == 1:
                raise
            raise self.explain(e, step()) from e

    def explain(self, error: Exception, step: int) -> Exception:
        if not lost_contact(error):
            if isinstance(error, RuntimeError) and exhausted_memory(error):
                error = WorkFailed(OUT_OF_MEMORY)
            self.store.set(f"failed/{self.rank}", json.dumps(failure(error)))
            return error
        self.store.set(f"alive/{self.rank}", "")
        end, ranks = time.monotonic() + GRACE, range(self.size)
        while time.monotonic() < end:
            for rank in ranks:
                if self.store.check([f"failed/{rank}"]):
                    return PeerFailed(rank, **json.loads(self.store.get(f"failed/{rank}")), step=step)
            time.sleep(0.05)
        missing = [str(rank) for rank in ranks if not self.store.check([f"alive/{rank}"])]
        if not missing:
            return WorkFailed(f"step {step}: the processes lost contact with each other ({error}); resume the run")
        several = "processes" if len(missing) > 1 else "process"
        return WorkFailed(f"step {step}: {several} {', '.join(missing)} died or hung; resume the run")


OUT_OF_MEMORY = (
    "out of memory; several processes do not cut batches automatically, so use smaller ones (--set tokens=… or "
    "--set batch=…) and for a step of the same size more of them (--set accumulate=…)"
)


class PeerFailed(RegardError):
    """Another rank's failure."""

    def __init__(self, rank: int, message: str, code: int, step: int = 0):
        super().__init__(f"process {rank}{f', step {step}' if step else ''}: {message}")
        self.exit_code = code


def failure(error: Exception) -> dict[str, Any]:
    if isinstance(error, RegardError):
        return {"message": str(error), "code": error.exit_code}
    return {"message": f"{type(error).__name__}: {error}".splitlines()[0], "code": 1}


def lost_contact(error: Exception) -> bool:
    """Whether the error is about the connection between ranks, and not this rank's own."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def join(device: str = "cpu") -> World:
    """The world that torchrun started this process in, by its environment variables; else a world of one."""
    size = int(os.environ.get("WORLD_SIZE", 1)) if "RANK" in os.environ else 1
    if size == 1:
        return World()
    if device.startswith("cuda"):
        if device != "cuda":
            raise ConfigError(f"--device {device}: each process uses its own GPU; type --device cuda")
        local = int(os.environ.get("LOCAL_RANK", 0))
        here, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", local + 1)), torch.cuda.device_count()
        if here > gpus:
            raise ConfigError(
                f"{here} processes on {gpus} GPU{'s' * (gpus != 1)}; start one for each: --processes {gpus}"
            )
        torch.cuda.set_device(local)
    return _join(device)


@cache
def _join(device: str) -> World:
    try:
        store, rank, size = next(dist.rendezvous("env://", timeout=STEP_LIMIT))
        store = dist.PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)  # a fresh one
        backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
        limit = (2 if device == "cuda" else 1) * STEP_LIMIT
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
    except (ValueError, RuntimeError) as e:
        where = f"{os.environ.get('MASTER_ADDR', '?')}:{os.environ.get('MASTER_PORT', '?')}"
        why = str(e).splitlines()[0]
        raise WorkFailed(
            f"the processes cannot meet at {where} ({why}); if another program has this port, start them with "
            "torchrun --standalone, or on several machines with another --rdzv-endpoint"
        ) from e
    patient = dist.new_group(backend="gloo", timeout=PATIENT)
    hosts = dist.new_group(backend="gloo", timeout=STEP_LIMIT) if device == "cuda" else None
    return World(rank, size, int(os.environ.get("LOCAL_RANK", 0)), patient, dist.PrefixStore("regard", store), hosts)


def leave() -> None:
    """Close the connections between ranks, at the end of a run that succeeded."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
        _join.cache_clear()
