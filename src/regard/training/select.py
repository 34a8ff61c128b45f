"""Which weights become the model: the best evaluation, or the mean of the best few if that is better still.

The order of writing makes a crash harmless: first the weights, then the model folder, then the state that names them;
only then are weights removed that the state no longer names. What a killed process did after its last saved state is
done again, with the same result.
"""

import math
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from regard.checkpoint import average, load_state, load_weights, save_state
from regard.objectives.base import Objective, evaluating
from regard.run_folder import CHECKPOINTS, claim, owned, publish, release
from regard.training.parallel import World
from regard.training.placement import Placement
from regard.training.progress import Progress
from regard.training.run import Run

Metrics = dict[str, float]
SCORES = ("bleu", "rougeL", "entity_f1", "accuracy")
TIMED = 4  # batches timed to estimate how long an evaluation takes
GAIN = 0.005  # that training must bring to a model that was fitted before: less may be noise of the validation set


@dataclass(frozen=True)
class Judge:
    """Scores models, and saves the best."""

    objective: Objective
    valid_batches: Callable[[], Iterable[Any]]
    metric: Callable[[Any], Metrics] | None
    save_model: Callable[[Path, Any], None]
    precision: AbstractContextManager
    world: World
    placement: Placement

    def evaluate(self, model: nn.Module) -> Metrics:
        """The validation loss and the recipe's own metrics, computed by rank 0 and returned on all ranks."""
        metrics = self.measure(model) if self.world.main or self.placement.sharded else {}
        metrics, self.objective.warning = self.world.broadcast((metrics, self.objective.warning))
        return metrics

    def measure(self, model: nn.Module) -> Metrics:
        with evaluating(model):
            with self.precision:
                batches = self.valid_batches()
                sharded = self.placement.sharded
                held_out = self.placement.held_out(batches) if sharded else self.objective.held_out(model, batches)
            metrics = {"held_out_loss" if name == "loss" else name: value for name, value in held_out.items()}
            if self.metric:
                with self.placement.whole(model) as one:
                    metrics |= self.metric(one) if one is not None else {}
        return metrics

    @property
    def warning(self) -> str:
        """The warning about the model evaluated last; "" for none."""
        return self.objective.warning

    def seconds(self, model: nn.Module) -> float:
        """How long the validation loss takes on a CPU, estimated from the first batches."""
        total = timed = 0
        passed = 0.0
        with evaluating(model), self.precision:
            for number, batch in enumerate(self.valid_batches()):
                total += self.objective.count(batch)
                if number < TIMED:
                    for _ in range(2 if number == 0 else 1):  # the very first pass is slower than the others
                        start = time.monotonic()
                        self.objective.loss_sum(model, batch)
                    passed += time.monotonic() - start
                    timed += self.objective.count(batch)
        return passed * total / max(1, timed)

    def consider(self, run: Run, folder: Path, at: Progress, model: nn.Module, metrics: Metrics) -> bool:
        """Keep the weights if they are among the best few, and publish them if they are the best; return whether they
        are. Those of step 0, of a fitted model, count as better by `GAIN`. The caller saves the state next."""
        ahead = 0.0 if at.step else GAIN * abs(score(metrics))
        mine: dict[str, Any] = {"step": at.step, "score": score(metrics) + ahead, "metrics": metrics}
        if self.warning:
            mine["warning"] = self.warning
        better = not at.best or rank(mine) < rank(at.best[0])
        at.best = sorted([*at.best, mine], key=rank)[: run.keep]  # of equals, the earlier first
        at.stale = 0 if better else at.stale + 1
        if mine in at.best:
            tensors = self.placement.weights(model)
            if self.world.main:
                claim(folder, [weights_name(at.step)])
                save_state(weights_path(folder, at.step), tensors, {"step": at.step, "metrics": metrics})
        if better:
            self.publish(folder, model)
        return better

    def publish(self, folder: Path, model: nn.Module) -> None:
        with self.placement.whole(model) as one:
            if self.world.main:
                publish(folder, lambda draft: self.save_model(draft, one))

    def finish(self, run: Run, folder: Path, at: Progress, model: nn.Module) -> tuple[str, Metrics, str]:
        """Leave the best model in `model` and in the folder; return which one it is, its metrics and its warning."""
        takes_part = self.world.main or self.placement.sharded
        return self.world.broadcast(self.publish_best(run, folder, at, model) if takes_part else ("", {}, ""))

    def publish_best(self, run: Run, folder: Path, at: Progress, model: nn.Module) -> tuple[str, Metrics, str]:
        paths = [weights_path(folder, kept["step"]) for kept in at.best]
        best = at.best[0]
        if run.average and len(paths) > 1:
            load_weights(model, average(paths), paths[0])
            metrics = self.measure(model)
            if score(metrics) > best["score"]:
                self.publish(folder, model)
                return f"mean of steps {', '.join(str(kept['step']) for kept in at.best)}", metrics, self.warning
        load_weights(model, load_state(paths[0])[0], paths[0])
        self.publish(folder, model)
        return f"step {best['step']}", best["metrics"], best.get("warning", "")


def score(metrics: Metrics) -> float:
    """Higher is better: the first metric of `SCORES` that was measured, or else minus the validation loss."""
    name = next((name for name in SCORES if name in metrics), "held_out_loss")
    value: float | None = metrics[name]
    if value is None or math.isnan(value):  # None: NaN read back from a log
        return -math.inf
    return -value if name == "held_out_loss" else value


def rank(kept: dict[str, Any]) -> tuple[float, float]:
    """Lower is better. The loss breaks ties: early on BLEU is often 0."""
    loss = kept["metrics"]["held_out_loss"]
    return -kept["score"], math.inf if math.isnan(loss) else loss


def weights_name(step: int) -> str:
    return f"{CHECKPOINTS}/step-{step:07d}.safetensors"


def weights_path(folder: Path, step: int) -> Path:
    return folder / weights_name(step)


def prune(folder: Path, at: Progress) -> None:
    """Remove weights that the saved state does not name."""
    named = {weights_name(kept["step"]) for kept in at.best}
    release(folder, [n for n in owned(folder) or [] if n.startswith(f"{CHECKPOINTS}/") and n not in named])
