"""How several processes hold one model: all of it in each (DDP), or shards of it (FSDP, HSDP)."""

import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from regard.checkpoint import weights
from regard.errors import ConfigError
from regard.nn.blocks import Block, DecoderLayer, EncoderLayer
from regard.objectives.base import Objective
from regard.training.parallel import World
from regard.training.parts import Parts
from regard.training.run import Run


def place(parts: Parts, world: World, device: torch.device) -> "Placement":
    """Distribute the model over the processes as `run.parallel` says, or as its size suggests."""
    run, model = parts.run, parts.model
    shape = mesh_shape(run, world, model, device) if world.size > 1 else ()
    if run.precision == "fp8" and (shape or run.parallel.checkpoint):
        raise ConfigError(
            "precision fp8 is for whole models whose activations are kept: not for fsdp, hsdp or "
            "parallel.checkpoint; type: --set precision=bf16"
        )
    placement = layout(LossModule(model, parts.objective), world, device, shape, bf16=run.precision == "bf16")
    if run.compile:
        compile_loss(model, parts.objective, by_block=run.parallel.checkpoint or bool(shape))
    if run.parallel.checkpoint:
        checkpoint_blocks(model)
    return placement


def layout(loss: "LossModule", world: World, device: torch.device, shape: tuple[int, ...], bf16: bool) -> "Placement":
    """One process, a copy in each process, or the copies and shards of `shape`."""
    if not shape:
        return Replicated(loss) if world.size > 1 else Placement()
    from regard.training.shard import Sharded

    return Sharded(loss, world, device, shape, bf16)


class LossModule(nn.Module):
    """Batch to summed loss, by model and head together: the module that DDP and FSDP wrap."""

    def __init__(self, model: nn.Module, objective: Objective):
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, batch: Any) -> Tensor:
        return self.objective.loss_sum(self.model, batch)

    def held_out(self, batches: Any) -> dict[str, float]:
        return self.objective.held_out(self.model, batches)


class Placement:
    """How the processes hold the model. This class: one process has all of it."""

    sharded = False
    writer: Any = None  # the `ShardWriter` of a sharded model
    text = ""  # printed before the first step

    def __call__(self, batch: Any) -> Tensor:
        """The summed loss of this process's batch; outside `no_sync` its backward pass exchanges gradients."""
        raise NotImplementedError

    def no_sync(self) -> AbstractContextManager:
        return nullcontext()

    def held_out(self, batches: Any) -> dict[str, float]:
        """The validation metrics of a sharded model, by all processes together."""
        raise NotImplementedError

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        """All weights, on rank 0."""
        return weights(model)

    @contextmanager
    def whole(self, model: nn.Module) -> Iterator[Any]:
        """The whole model, on rank 0."""
        yield model


class Replicated(Placement):
    """DDP: each process has the whole model. A batch may leave parameters unused, and buckets are not rebuilt, so that
    a resumed run sums in the same order."""

    text = "the whole model in each process (DDP)"

    def __init__(self, loss: LossModule):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # the newer name is not in the oldest torch we support
            self.module = DistributedDataParallel(loss, find_unused_parameters=True, broadcast_buffers=False)

    def __call__(self, batch: Any) -> Tensor:
        return self.module(batch)

    def no_sync(self) -> AbstractContextManager:
        return self.module.no_sync()


DEEP = 16  # blocks: compiling more of them as one graph takes minutes


def compile_loss(model: nn.Module, objective: Objective, by_block: bool) -> None:
    """Compile model, head and loss as one graph. The blocks of a deep decoder, and with `by_block` of any, are compiled
    separately: they are all alike, so one compilation serves all."""
    warnings.filterwarnings("ignore", r"\s*Online softmax is disabled")  # a user cannot do anything about it
    blocks: list[Any] = [block for block in model.modules() if isinstance(block, Block)]
    if not blocks or not (by_block or len(blocks) > DEEP):
        objective.compile()
        return
    for block in blocks:
        block.forward = torch.compile(block.forward)


def checkpoint_blocks(model: nn.Module) -> None:
    """Make blocks keep only their inputs, and recompute the rest in the backward pass."""
    for block in model.modules():
        if isinstance(block, Block | EncoderLayer | DecoderLayer):
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)


# Bytes of a parameter in training: fp32 weight, gradient, its copy in DDP's buckets, and the optimiser's momenta.
PARAMETER_BYTES = 4 + 4 + 4 + 8
ROOM = 0.7  # of a device's memory for them; the rest is for activations


def mesh_shape(run: Run, world: World, model: nn.Module, device: torch.device) -> tuple[int, ...]:
    """() for DDP, (shards,) for FSDP, (copies, shards) for HSDP."""
    chosen, machine = run.parallel.kind, int(os.environ.get("LOCAL_WORLD_SIZE", world.size))
    if not chosen and device.type == "cuda":
        size = PARAMETER_BYTES * sum(p.numel() for p in model.parameters())
        room = ROOM * torch.cuda.get_device_properties(device).total_memory
        chosen = "ddp" if size <= room else "hsdp" if size <= machine * room and machine < world.size else "fsdp"
    if chosen == "hsdp":
        shards = run.parallel.shard or machine
        if world.size % shards or shards in (1, world.size):
            raise ConfigError(
                f"hsdp: {world.size} processes cannot hold copies of {shards} shards each; "
                f"type --set parallel.shard=N, where N divides {world.size}, or --set parallel.kind=fsdp"
            )
        return world.size // shards, shards
    return (world.size,) if chosen == "fsdp" else ()
