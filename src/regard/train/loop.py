"""The training loop. No callbacks and no trainer to subclass: read it top to bottom, copy it, change it."""

import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regard import run_folder
from regard.checkpoint import alone
from regard.errors import WorkFailed
from regard.objectives.base import Objective
from regard.train import progress
from regard.train.log import Log, metrics_text, train_text
from regard.train.memory import fitted
from regard.train.optim import build
from regard.train.parallel import World
from regard.train.peaks import utilisation
from regard.train.progress import Pace, Progress, Tally
from regard.train.recorded import RecordedStep, Step
from regard.train.run import Run, with_steps, write_run
from regard.train.schedule import lr_at
from regard.train.select import Judge, Metrics, prune
from regard.train.signals import Interrupts

BAD_IN_A_ROW = 10  # steps without a finite loss before we stop


class Batches(Protocol):
    """An endless supply that knows where it is."""

    def __next__(self) -> Any: ...
    def state(self) -> dict[str, int]: ...
    def restore(self, state: dict[str, int], /) -> None: ...


@dataclass(frozen=True)
class Result:
    """What came out: the metrics of the model that was kept, which one it is, and what it took."""

    best: Metrics
    kept: str
    steps: int
    seconds: float
    stopped: str  # "steps" or "patience"


def train(
    run: Run,
    folder: str | Path,
    *,
    model: nn.Module,
    objective: Objective,
    loader: Batches,
    valid_batches: Callable[[], Iterable[Any]],
    metric: Callable[[Any], Metrics] | None = None,
    save_model: Callable[[Path, Any], None],
    flops_per_target: float = 0.0,
    device: torch.device | str = "cpu",
    resume: bool = False,
    force: bool = False,
    quiet: bool = False,
    on_log: Callable[[dict[str, Any]], None] | None = None,
) -> Result:
    """Train `model`, which is on `device` already, into `folder`: a new or empty one, or with `force` that of another
    run. `resume` goes on exactly where the folder stopped."""
    folder, device, world = Path(folder), torch.device(device), World()
    if not resume:
        run_folder.new_run(folder, force)
    with alone(folder), Interrupts() as stop:
        run_folder.adopt(folder)
        torch.manual_seed(run.seed)
        model.train()
        optimiser, tally = build(model, run.optim), Tally(device)
        at = progress.restore(folder, model, optimiser, loader, tally) if resume else Progress()
        at.steps = run.steps or at.steps
        run_folder.claim(folder, run_folder.OF_A_RUN)
        run_folder.sweep(folder)
        write_run(folder, run := with_steps(run, at.steps))
        prune(folder, at)

        precision = torch.autocast(device.type, torch.bfloat16) if run.precision == "bf16" else nullcontext()
        judge = Judge(objective, valid_batches, metric, save_model, precision)
        if run.compile:
            warnings.filterwarnings("ignore", r"\s*Online softmax is disabled")  # nothing anybody here can change
            objective.compile()
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high")  # "fp32" multiplies as TF32 there: ten times the rate
        pace = Pace(at, device)
        read = getattr(objective, "tokens", None)  # what speed is told in, where only some of the tokens are targets
        log = Log(folder, at.step, quiet, on_log)

        def share(batch: Any, count: Any, loss_sum: Callable[..., Tensor]) -> Tensor:
            """A micro-batch's part in the mean loss; its gradients are added to the others'."""
            with precision:
                loss = loss_sum(model, batch.to(device)) / count
            (loss * world.size).backward()  # ranks will be averaged over: undo that
            return loss.detach()

        def launched(micros: list[Any], count: Any, loss_sum: Callable[..., Tensor] = objective.loss_sum) -> Step:
            part = partial(share, count=count, loss_sum=loss_sum)
            loss = fitted(part, micros, at, optimiser.zero_grad, log.say)
            return (loss, *optimiser.update(loss))

        work: Callable[..., Step] = launched
        marked = getattr(objective, "marked_loss_sum", None)  # of one whose steps are all alike
        if device.type == "cuda" and marked is not None:
            work = RecordedStep(launched, partial(launched, loss_sum=marked), device)

        def evaluation() -> float:
            """Its seconds; on a GPU they hardly count, and compiling for a look ahead would."""
            return judge.seconds(model) if device.type == "cpu" and not run.compile else 0.0

        def save() -> None:
            at.seconds = pace.seconds()
            progress.save(folder, at, run, model, optimiser, loader, tally)
            prune(folder, at)

        try:
            while at.going(run):
                at.step += 1
                lr = lr_at(run.schedule, at.step, at.steps, run.model.width, run.optim.lr)
                optimiser.set_lr(lr)
                micros = [next(loader) for _ in range(run.accumulate)]
                count = max(
                    1, world.sum(sum(objective.count(batch) for batch in micros))
                )  # targets in this step, on all ranks
                loss, norm, bad = (launched if at.limit else work)(micros, count)
                tally.add(loss, norm, bad, count)
                at.targets += count if read is None else world.sum(sum(read(batch) for batch in micros))

                if fixed := at.steps == 0 and (steps := pace.fit(run, evaluation)) > 0:
                    at.steps, run = steps, with_steps(run, steps)
                    log.say(f"{run.minutes:g} minutes are {steps} steps on this machine{pace.dear()}")
                if logged := at.step % run.log_every == 0 or at.step == at.steps:
                    speed, each = pace.stretch()
                    now = {"step": at.step, "seconds": pace.seconds(), "lr": lr, "targets_per_second": speed}
                    event: dict[str, Any] = now | tally.read()
                    if unit := getattr(objective, "unit", ""):
                        event["unit"] = unit
                    if flops_per_target and device.type == "cuda":
                        event["mfu"] = utilisation(torch.cuda.get_device_name(device), speed, flops_per_target)
                    log(event, train_text(event, at.steps, each), passing=True)
                    pace.restart()
                if logged or device.type == "cpu":
                    give_up(tally, at, save, folder)
                if evaluated := at.due(at.eval_every(run)):
                    log.say(f"step {at.step}/{at.steps} · looking at what was held out …", passing=True)
                    metrics = judge.evaluate(model)
                    better = judge.consider(run, folder, at, model, metrics)
                    event = {"step": at.step, "seconds": pace.seconds(), "better": better} | metrics
                    log(event, f"step {at.step}/{at.steps} · {metrics_text(metrics)}{' · best so far' * better}")
                if fixed or evaluated or stop.signal or (run.save_every and at.due(run.save_every)):
                    save()
                    pace.restart()
                if fixed:
                    write_run(folder, run)  # after the state, which decides: a resume mends run.json from it
                if stop.signal:
                    raise stop.exit()

            stop.at_once = True  # all is saved; what follows is quick to do again
            kept, metrics = judge.finish(run, folder, at, model)
            result = Result(metrics, kept, at.step, pace.seconds(), "steps" if at.step == at.steps else "patience")
            event = {"step": at.step, "seconds": result.seconds, "final": True, "kept": kept} | metrics
            log(event, f"done: {kept} · {metrics_text(metrics)} · {folder}")
            return result
        except SystemExit:
            log.say(f"stopped after step {at.step}; go on with: regard train --resume {folder}")
            raise
        finally:
            log.close()


def give_up(tally: Tally, at: Progress, save: Callable[[], None], folder: Path) -> None:
    """Stop a run that has diverged. The weights are still those before the first bad step."""
    if tally.worst() < BAD_IN_A_ROW:
        return
    tally.forgive()  # so that whoever resumes gets as many tries again
    save()
    raise WorkFailed(
        f"the loss was not finite for {BAD_IN_A_ROW} steps in a row, up to step {at.step}; the run is saved as it was "
        f"before them in {folder}; try again with a lower rate (--set optim.lr=…), more warm-up, or precision fp32"
    )
