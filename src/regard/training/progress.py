"""Where a run stands: the numbers on the host, the sums on the device, and the file from which it goes on exactly."""

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.checkpoint import load_state, load_weights, save_state, weights
from regard.errors import CheckpointError
from regard.training.optim import Optimiser
from regard.training.parallel import World
from regard.training.run import Run

STATE = "state.safetensors"
EVALUATIONS = 8  # in a run, when eval_every does not say


@dataclass
class Progress:
    """Everything about a run that changes and is not a tensor."""

    step: int = 0
    steps: int = 0  # 0: not known yet; with `minutes` an estimate until the end
    seconds: float = 0.0
    targets: int = 0
    limit: int = 0  # the largest micro-batch that fits into memory; 0: none was too large so far
    best: list[dict[str, Any]] = field(default_factory=list)  # step, score and metrics of the kept, best first
    stale: int = 0  # evaluations since the last better one
    evaluations: int = EVALUATIONS  # in the whole run, when eval_every does not say
    planned: int = 0  # with `minutes`: the steps that were planned at first, and of the evaluations how many there
    evaluated: int = 0  # were, the second at which the last one ended, and how long one takes
    evaluated_at: float = 0.0
    evaluation_seconds: float = 0.0

    def eval_every(self, run: Run) -> int:
        return run.eval_every or max(1, math.ceil(self.steps / self.evaluations))

    def due(self, every: int) -> bool:
        """Whether something done every so often, and at the end, is done now. Nothing is before the end is planned."""
        return self.steps > 0 and (self.step % every == 0 or self.step == self.steps)

    def going(self, run: Run) -> bool:
        return (not self.steps or self.step < self.steps) and not self.out_of_patience(run)

    def out_of_patience(self, run: Run) -> bool:
        return 0 < run.patience <= self.stale


class Tally:
    """Sums since the last report, kept on the device: reading them is the loop's only wait for it."""

    NAMES = ("loss", "targets", "norm", "steps", "skipped", "row", "worst")

    def __init__(self, device: torch.device):
        self.sums = torch.zeros(len(self.NAMES), device=device)

    def add(self, loss: Tensor, norm: Tensor, bad: Tensor, count: int) -> None:
        """`loss` is per target; a bad step counts as skipped and as nothing else."""
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
        """The means and counts since the last time; the row of bad steps goes on."""
        sums = dict(zip(self.NAMES, self.sums.tolist(), strict=True))
        self.sums[:5] = 0
        targets, steps = sums["targets"] or math.nan, sums["steps"] or math.nan
        return {"loss": sums["loss"] / targets, "norm": sums["norm"] / steps, "skipped": int(sums["skipped"])}

    def forgive(self) -> None:
        self.sums[5:] = 0


def save(
    folder: Path,
    at: Progress,
    run: Run,
    model: nn.Module,
    optimiser: Optimiser,
    loader: Any,
    tally: Tally,
    world: World,
) -> None:
    """Rank 0 writes; every rank has random numbers of its own."""
    rng = {f"rng.cpu{of_rank(k)}": state for k, state in enumerate(world.collect(torch.get_rng_state()))}
    if tally.sums.is_cuda:
        states = world.collect(torch.cuda.get_rng_state(tally.sums.device))
        rng |= {f"rng.cuda{of_rank(k)}": state for k, state in enumerate(states)}
    if not world.main:
        return
    tensors = {f"model.{name}": t for name, t in weights(model).items()}
    tensors |= {f"optim.{name}": t for name, t in optimiser.state_dict().items()}
    tensors |= {"tally": tally.sums} | rng
    meta = {"progress": dataclasses.asdict(at), "loader": loader.state(), "run": run.to_dict()}
    save_state(folder / STATE, tensors, meta)


def of_rank(rank: int) -> str:
    return f".{rank}" if rank else ""


def restore(folder: Path, model: nn.Module, optimiser: Optimiser, loader: Any, tally: Tally, world: World) -> Progress:
    """Put everything back as it was saved; a run that never came to its first save begins at the beginning."""
    path = folder / STATE
    if not path.exists():
        return Progress()
    tensors, meta = load_state(path)
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "optim": {}, "rng": {}}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        if part in parts:
            parts[part][rest] = tensor
    load_weights(model, parts["model"], path)
    try:
        optimiser.load_state_dict(parts["optim"])
        loader.restore(meta["loader"])
        tally.sums.copy_(tensors["tally"])
        cpu, cuda = (parts["rng"].get(f"{where}{of_rank(world.rank)}") for where in ("cpu", "cuda"))
        if cpu is not None:  # there may be more ranks than before
            torch.set_rng_state(cpu)
        if tally.sums.is_cuda and cuda is not None:  # a run may move from a CPU to a GPU, then not bit for bit
            torch.cuda.set_rng_state(cuda, tally.sums.device)
        return Progress(**meta["progress"])
    except (KeyError, TypeError, ValueError, RuntimeError) as e:
        raise CheckpointError(
            f"{path}: not a state of this run ({type(e).__name__}: {e}); take an older copy"
        ) from None
