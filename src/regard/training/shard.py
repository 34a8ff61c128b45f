"""A model too large for one device: its weights, gradients and optimiser state in shards, by PyTorch's FSDP2.

A shard is a `DTensor`, a tensor of which each process holds some rows. Optimisers work on these rows, the finished
model is whole, and a saved state can be read by any number of processes. A run of one process does not import this.
"""

import copy
import warnings
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from regard.checkpoint import load_state, load_weights, save_state, weights, write_failed
from regard.errors import CheckpointError, WorkFailed
from regard.nn.blocks import Block, EncoderLayer
from regard.run_folder import claim, owned, release
from regard.ticks import say
from regard.training.muon import Piece, Stack, local
from regard.training.parallel import PATIENT, World
from regard.training.placement import LossModule, Placement
from regard.training.progress import SHARDS, STATE

Tensors = dict[str, Tensor]


class Sharded(Placement):
    """FSDP and HSDP: every process holds some rows of each tensor, and rank 0 a whole model on its host, to publish."""

    sharded = True

    def __init__(self, loss: LossModule, world: World, device: torch.device, shape: tuple[int, ...], bf16: bool):
        """`shape` is (shards,) or (copies, shards). With bf16, blocks compute in it, while weights, gradients and their
        sums over processes stay in fp32."""
        self.world, self.device = world, device
        copies = f"{shape[0]} copies of the model in {shape[-1]} shards each (HSDP)"
        self.text = copies if len(shape) > 1 else "a shard of the model in each process (FSDP)"
        self.one = copy.deepcopy(loss.model).cpu() if world.main else None
        names = ("copies", "shards")[-len(shape) :]
        halves: Any = dict(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if bf16 else {}
        mesh: Any = init_device_mesh(device.type, shape, mesh_dim_names=names)
        how: Any = dict(mesh=mesh, mp_policy=MixedPrecisionPolicy(**halves))
        for block in loss.modules():
            if isinstance(block, Block | EncoderLayer):  # their `forward` uses all their parameters
                fully_shard(block, **how)
        exact = MixedPrecisionPolicy(**halves, output_dtype=torch.float32) if bf16 else how["mp_policy"]
        self.module: Any = fully_shard(loss, mesh=mesh, mp_policy=exact)
        self.writer = ShardWriter(world)
        register_fsdp_forward_method(loss, "held_out")

    def __call__(self, batch: Any) -> Tensor:
        return self.module(batch)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self.module.set_requires_gradient_sync(False)
        yield
        self.module.set_requires_gradient_sync(True)

    def held_out(self, batches: Any) -> dict[str, float]:
        metrics = self.module.held_out(batches)
        self.module.reshard()
        return metrics

    def weights(self, model: nn.Module) -> Tensors:
        """All weights, on rank 0's host; the other ranks take part and get nothing."""
        whole = ((name, full(tensor)) for name, tensor in weights(model).items())
        return {name: tensor.cpu() for name, tensor in whole if self.world.main}

    @contextmanager
    def whole(self, model: nn.Module) -> Iterator[Any]:
        tensors = self.weights(model)
        if self.one is None:
            yield None
            return
        load_weights(self.one, tensors, "the sharded model")
        yield self.one.to(self.device)
        self.one.cpu()


def full(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


# -- Muon ---------------------------------------------------------------------------------------------------------


class ShardedStack(Stack):
    """Maps of sharded matrices. Each process orthogonalises some whole maps, with their momentum, and sends the other
    processes the rows that they hold."""

    def __init__(self, shape: tuple[int, int], pieces: list[Piece]):
        self.shape, self.pieces, self.counts = shape, pieces, [piece.count for piece in pieces]
        self.like: Any = pieces[0].p
        self.momentum = torch.zeros(sum(self.counts), *shape, device=self.like.device)
        self.scale = self.mine(self.scales()).to_local()
        self.momentum = self.mine(self.momentum)

    def mine(self, whole: Tensor) -> Any:
        return distribute_tensor(whole, self.like.device_mesh, self.like.placements, src_data_rank=None)

    def grad(self) -> Tensor:
        return self.mine(torch.cat([piece.lay(full(piece.grad())) for piece in self.pieces])).to_local()

    def add(self, update: Tensor) -> None:
        shape: Any = self.momentum.shape
        where = self.like.device_mesh, self.like.placements
        whole = DTensor.from_local(update, *where, shape=shape, stride=self.momentum.stride()).full_tensor()
        for piece, part in zip(self.pieces, whole.split(self.counts), strict=True):
            rows = whole.new_zeros(piece.p.shape)
            piece.lay(rows).add_(part)
            local(piece.p.detach()).add_(local(self.mine(rows)))


# -- saved states -------------------------------------------------------------------------------------------------


class ShardWriter:
    """Saves during training: the state is copied at once, and each process writes its part in the background. Until a
    save is finished, the one before it counts."""

    def __init__(self, world: World):
        self.world = world
        self.group: Any = dist.new_group(backend="gloo", timeout=PATIENT)  # for the writing thread
        self.thread = ThreadPoolExecutor(1)
        self.last = ""  # the folder of the save that counts
        self.pending: tuple[Future[dict[str, int]], Path, str, Tensors, dict[str, Any]] | None = None

    def begin(self, folder: Path, step: int, state: Tensors, rest: Tensors, meta: dict[str, Any]) -> None:
        """Start to write `state` to a folder for this step; `finish` adds `rest` and `meta`."""
        self.finish()
        name, world = f"{SHARDS}/step-{step:07d}", self.world
        files = [f"{name}/{f}" for f in (".metadata", STATE, *(f"__{rank}_0.distcp" for rank in range(world.size)))]
        with world.together():
            if world.main:
                listed = [file for file in owned(folder) or [] if file.startswith(f"{SHARDS}/")]
                release(folder, [file for file in listed if str(Path(file).parent) != self.last])
                claim(folder, files)
        if not next(iter(state.values())).is_cuda:  # torch copies only those of a GPU
            state = {key: tensor.detach().clone() for key, tensor in state.items()}
        written: Any = dcp.async_save(dict(state), checkpoint_id=folder / name, process_group=self.group)
        mine = [folder / file for file in files if f"__{world.rank}_" in file]
        rest = {key: tensor.clone() for key, tensor in rest.items()}
        self.pending = self.thread.submit(checksums, written, mine, folder), folder, name, rest, meta

    def ready(self) -> bool:
        """Whether this process has written its part of an unfinished save."""
        return self.pending is not None and self.pending[0].done()

    def finish(self) -> None:
        """Wait until every process has written its part, then make this the save that counts."""
        if self.pending is None:
            return
        (written, folder, name, rest, meta), self.pending = self.pending, None
        everyone: list[Any] = [None] * self.world.size
        with self.world.together():
            sums = written.result()
        dist.all_gather_object(everyone, sums, group=self.world.patient)
        meta |= {"shards": name, "checksums": {file: total for some in everyone for file, total in some.items()}}
        if self.world.main:
            save_state(folder / name / STATE, rest, meta)
            save_state(folder / STATE, rest, meta)
        self.last = name


def checksums(written: Any, files: list[Path], folder: Path) -> dict[str, int]:
    """The checksums of this process's files, once they are written."""
    try:
        written.result()
    except dcp.CheckpointException as e:  # torch's own, which is not an `Exception`
        cause: Any = next(iter(e.failures.values()))[0]
        raise write_failed(folder, cause) if isinstance(cause, OSError) else WorkFailed(f"{folder}: {cause}") from None
    return {str(file.relative_to(folder)): checksum(file) for file in files if file.exists()}


def read_shards(
    folder: Path, state: Tensors, rest: Tensors, meta: dict[str, Any], world: World
) -> tuple[Tensors, dict[str, Any]]:
    """Fill `state` from the shards that `meta` names, however many processes wrote them; if they are damaged, from an
    earlier save. Returns the `rest` and `meta` saved with them."""
    older = sorted((folder / SHARDS).glob(f"step-*/{STATE}"), reverse=True)
    saves = [(rest, meta), *(load_state(path) for path in older if path.parent.name not in meta["shards"])]
    damage = ""
    for rest, meta in saves:
        damage = damage or broken(folder, meta)
        if not broken(folder, meta):
            if damage and world.main:
                say(f"{damage} is damaged; resuming from step {meta['progress']['step']}, the save before it")
            check_shapes(folder / meta["shards"], state)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # about one process that reads what several wrote
                dcp.load(dict(state), checkpoint_id=folder / meta["shards"], no_dist=world.size == 1)
            return rest, meta
    raise CheckpointError(f"{damage}: missing or damaged, and so is every earlier save; train again, or restore a copy")


def check_shapes(path: Path, state: Tensors) -> None:
    """Raise `CheckpointError` unless the shards at `path` have the names and shapes of `state`."""
    stored: Any = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
    saved = {name: tuple(tensor.size) for name, tensor in stored.items()}
    own = {name: tuple(tensor.shape) for name, tensor in state.items()}
    if differing := sorted(saved.items() ^ own.items()):
        raise CheckpointError(
            f"{path}: a different model or optimiser; it differs in {differing[0][0]!r}; resume with the settings "
            "that the run was started with, or train a new one"
        )


def broken(folder: Path, meta: dict[str, Any]) -> str:
    """The first missing or damaged file of a save; "" if there is none."""
    sums = {folder / file: total for file, total in meta["checksums"].items()}
    sums[folder / meta["shards"] / ".metadata"] = None
    for file, total in sums.items():
        if not file.is_file() or (total is not None and checksum(file) != total):
            return str(file)
    return ""


def checksum(path: Path) -> int:
    total = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 24):
            total = zlib.crc32(chunk, total)
    return total
