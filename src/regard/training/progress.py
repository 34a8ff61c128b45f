"""The progress of a run: numbers on the host, sums on the device, and the file from which it resumes exactly."""

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.checkpoint import load_state, load_weights, save_state, tensor_names, weights
from regard.errors import CheckpointError
from regard.run_folder import CHECKPOINTS, owned, release
from regard.training.optim import Optimiser
from regard.training.parallel import World
from regard.training.run import Run

STATE = "state.safetensors"
SHARDS = "shards"  # in the run folder: one folder for each of the last two saves
LARGE = ("model.", "optim.")  # tensors of the state that are as large as the model
EVALUATIONS = 8  # in a run without eval_every


@dataclass
class Progress:
    """Everything about a run that changes and is not a tensor."""

    step: int = 0
    start: int = 0  # the step and the second at which a finished run was extended: the schedule restarts there
    started: float = 0.0
    steps: int = 0  # 0: not known yet; with `minutes` an estimate until the end
    seconds: float = 0.0
    targets: int = 0
    limit: int = 0  # the largest micro-batch that fits into memory; 0: none was too large so far
    best: list[dict[str, Any]] = field(default_factory=list)  # step, score and metrics of those kept, best first
    stale: int = 0  # evaluations since the last better one
    evaluations: int = EVALUATIONS  # in the whole run, without eval_every
    planned: int = 0  # with `minutes`: the steps of the first plan
    evaluated: int = 0  # evaluations so far, the second at which the last one ended, and how long one takes
    evaluated_at: float = 0.0
    evaluation_seconds: float = 0.0

    def eval_every(self, run: Run) -> int:
        return run.eval_every or max(1, math.ceil((self.steps - self.start) / self.evaluations))

    def extended(self, steps: int) -> "Progress":
        """The progress of a run extended by `steps`; 0: by as many as its minutes allow."""
        kept = dict(step=self.step, seconds=self.seconds, targets=self.targets, limit=self.limit, best=self.best)
        end = self.step + steps if steps else 0
        return Progress(start=self.step, started=self.seconds, steps=end, evaluated_at=self.seconds, **kept)

    def due(self, every: int) -> bool:
        """Whether something done every `every` steps, and at the end, is due; never before the end is planned."""
        return self.steps > 0 and ((self.step - self.start) % every == 0 or self.step == self.steps)

    def going(self, run: Run) -> bool:
        return (not self.steps or self.step < self.steps) and not self.out_of_patience(run)

    def out_of_patience(self, run: Run) -> bool:
        return 0 < run.patience <= self.stale


class Tally:
    """Sums since the last report, on the device: reading them is the loop's only wait for it."""

    NAMES = ("loss", "targets", "norm", "steps", "skipped", "row", "worst")

    def __init__(self, device: torch.device):
        self.sums = torch.zeros(len(self.NAMES), device=device)

    def add(self, loss: Tensor, norm: Tensor, bad: Tensor, count: int) -> None:
        """Add a step; `loss` is per target. A bad step only counts as skipped."""
        loss_sum, targets, norms, steps, skipped, row, worst = self.sums.unbind()
        good = 1 - bad
        row = (row + bad) * bad  # bad steps in a row up to now, and the longest such row
        fine = torch.stack([loss * count, norm]).nan_to_num(0, 0, 0) * good
        self.sums = torch.stack(
            [loss_sum + fine[0], targets + count * good, norms + fine[1], steps + good, skipped + bad, row,
             torch.maximum(worst, row)]
        )  # fmt: skip

    def worst(self) -> int:
        return int(self.sums[-1])

    def read(self) -> dict[str, float]:
        """The means and counts since the last call; the count of bad steps in a row continues."""
        sums = dict(zip(self.NAMES, self.sums.tolist(), strict=True))
        self.sums[:5] = 0
        targets, steps = sums["targets"] or math.nan, sums["steps"] or math.nan
        return {"loss": sums["loss"] / targets, "norm": sums["norm"] / steps, "skipped": int(sums["skipped"])}

    def reset_bad(self) -> None:
        self.sums[5:] = 0


@dataclass(frozen=True)
class SavedState:
    """All that changes in a run, and how it is saved and restored. Rank 0 writes; if the model is sharded, each rank's
    `writer` writes its shards in the background, and then the file names them."""

    model: nn.Module
    optimiser: Optimiser
    loader: Any
    tally: Tally
    world: World
    writer: Any = None

    def tensors(self) -> dict[str, Tensor]:
        """The live weights and momenta."""
        named = {f"model.{name}": t for name, t in weights(self.model).items()}
        return named | {f"optim.{name}": t for name, t in self.optimiser.state_dict().items()}

    def save(self, folder: Path, at: Progress, run: Run, wait: bool = True) -> None:
        """Save the run. With `wait` all is on disk on return; without, shards may be written until `finish`."""
        tensors = {"tally": self.tally.sums} | self.random_numbers()
        meta = {"progress": dataclasses.asdict(at), "loader": self.loader.state(), "run": run.to_dict()}
        if self.writer:
            self.writer.begin(folder, at.step, self.tensors(), tensors, meta)
            if wait:
                self.finish()
        elif self.world.main:
            save_state(folder / STATE, self.tensors() | tensors, meta)

    def ready(self) -> bool:
        """Whether this rank has written its part of an unfinished save."""
        return self.writer is not None and self.writer.ready()

    @property
    def writing(self) -> bool:
        """Whether a save is unfinished, so that the one before it counts."""
        return self.writer is not None and self.writer.pending is not None

    def finish(self) -> None:
        """Finish a save; all ranks call it together."""
        if self.writer:
            self.writer.finish()

    def random_numbers(self) -> dict[str, Tensor]:
        """The RNG states of every rank."""
        device = self.tally.sums.device
        states = {"cpu": torch.get_rng_state()}
        if device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(device)
        collected = {name: self.world.collect(state) for name, state in states.items()}
        return {f"rng.{name}{of_rank(k)}": x for name, all_ in collected.items() for k, x in enumerate(all_)}

    def restore(self, folder: Path, extend: bool = False) -> Progress:
        """Restore everything as it was saved; a run without a save starts from the beginning.

        A finished run whose state was reduced can only be extended, with the weights that the model has.
        """
        path = folder / STATE
        if not path.exists():
            return Progress()
        tensors, meta = load_state(path)
        if "shards" in meta:
            from regard.training.shard import read_shards

            tensors, meta = read_shards(folder, self.tensors(), tensors, meta, self.world)
            if self.writer:
                self.writer.last = meta["shards"]
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "optim": {}, "rng": {}}
        for name, tensor in tensors.items():
            part, _, rest = name.partition(".")
            if part in parts:
                parts[part][rest] = tensor
        if not parts["model"] and "shards" not in meta and not extend:
            way = f"regard train --resume {folder} --minutes 5"
            raise CheckpointError(f"{folder} is finished; to train it longer: {way}")
        if parts["model"] and "shards" not in meta:
            load_weights(self.model, parts["model"], path)
        try:
            if parts["model"] and "shards" not in meta:
                self.optimiser.load_state_dict(parts["optim"])
            self.loader.restore(meta["loader"])
            self.tally.sums.copy_(tensors["tally"])
            cpu, cuda = (parts["rng"].get(f"{where}{of_rank(self.world.rank)}") for where in ("cpu", "cuda"))
            if cpu is not None:  # there may be more ranks than before
                torch.set_rng_state(cpu)
            if self.tally.sums.is_cuda and cuda is not None:  # a run may move to a GPU, but then not bit for bit
                torch.cuda.set_rng_state(cuda, self.tally.sums.device)
            return Progress(**meta["progress"])
        except (KeyError, TypeError, ValueError, RuntimeError) as e:
            raise CheckpointError(
                f"{path}: not a state of this run ({type(e).__name__}: {e}); restore an older copy"
            ) from None


def of_rank(rank: int) -> str:
    return f".{rank}" if rank else ""


def reduce_state(folder: Path) -> None:
    """Remove the optimiser's state, and all weights but the model's, from the folder of a finished run."""
    tensors, meta = load_state(folder / STATE)
    small = {name: t for name, t in tensors.items() if not name.startswith(LARGE)}
    meta = {name: value for name, value in meta.items() if name not in ("shards", "checksums")}
    save_state(folder / STATE, small, meta | {"progress": meta["progress"] | {"best": []}})
    release(folder, large_files(folder))


def large_files(folder: Path) -> list[str]:
    """The weights of evaluations, and the shards of the state."""
    return [name for name in owned(folder) or [] if name.startswith((f"{CHECKPOINTS}/", f"{SHARDS}/"))]


def has_state(folder: Path) -> bool:
    """Whether the last step's weights and optimiser are there; those of a finished run may have been removed."""
    path = folder / STATE
    whole = path.is_file() and any(name.startswith(LARGE) for name in tensor_names(path))
    return whole or any(name.startswith(f"{SHARDS}/") for name in large_files(folder))


def reducible(folder: Path) -> int:
    """The bytes that `reduce_state` would free."""
    files = [folder / name for name in large_files(folder)] + [folder / STATE] * has_state(folder)
    return sum(path.stat().st_size for path in files if path.is_file())
