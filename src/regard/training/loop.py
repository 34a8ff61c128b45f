"""The training loop. No callbacks and no trainer to subclass: read it top to bottom, copy it, change it."""

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from regard import run_folder
from regard.checkpoint import alone
from regard.errors import WorkFailed
from regard.training import progress
from regard.training.baseline import compared
from regard.training.log import Log, metrics_text, train_text
from regard.training.optim import Optimiser
from regard.training.overfitting import overfitting, what_next
from regard.training.pace import Pace
from regard.training.parallel import World
from regard.training.parts import Parts
from regard.training.peaks import utilisation
from regard.training.progress import Progress, Tally
from regard.training.run import write_run
from regard.training.schedule import lr_at
from regard.training.select import Judge, Metrics, prune
from regard.training.signals import Interrupts
from regard.training.step import Stepper

BAD_IN_A_ROW = 10  # steps without a finite loss before we stop


@dataclass(frozen=True)
class Result:
    """What came out: the metrics of the model that was kept, which one it is, and what it took."""

    best: Metrics
    kept: str
    steps: int
    seconds: float
    stopped: str  # "steps" or "patience"


def train(
    parts: Parts,
    folder: str | Path,
    *,
    device: torch.device | str = "cpu",
    resume: bool = False,
    force: bool = False,
    quiet: bool = False,
    on_log: Callable[[dict[str, Any]], None] | None = None,
) -> Result:
    """Train a model, which is on `device` already, into `folder`: a new or empty one, or with `force` that of another
    run. `resume` goes on exactly where the folder stopped."""
    folder, device = Path(folder), torch.device(device)
    if not resume:
        run_folder.new_run(folder, force)
    with alone(folder), Interrupts() as stop:
        run_folder.adopt(folder)
        training = Training(parts, folder, device, resume, lambda step: Log(folder, step, quiet, on_log))
        try:
            training.loop(stop)
            stop.at_once = True  # all is saved; the rest is quick to repeat
            return training.finish()
        except SystemExit:
            training.log.say(f"stopped after step {training.at.step}; go on with: regard train --resume {folder}")
            raise
        finally:
            training.log.close()


class Training:
    """A run that is going: what changes, and what is done with it between two steps."""

    def __init__(self, parts: Parts, folder: Path, device: torch.device, resume: bool, open_log: Callable[[int], Log]):
        run, model, objective = parts.run, parts.model, parts.objective
        self.parts, self.run, self.folder, self.device, self.world = parts, run, folder, device, World()
        torch.manual_seed(run.seed)
        model.train()
        self.optimiser, self.tally = Optimiser(model, run.optim), Tally(device)
        restored = progress.restore(folder, model, self.optimiser, parts.loader, self.tally) if resume else Progress()
        self.at = at = restored
        at.steps = run.steps or at.steps
        run_folder.claim(folder, run_folder.OF_A_RUN)
        run_folder.sweep(folder)
        write_run(folder, run)
        prune(folder, at)

        precision = torch.autocast(device.type, torch.bfloat16) if run.precision == "bf16" else nullcontext()
        self.judge = Judge(objective, parts.valid_batches, parts.metric, parts.save_model, precision)
        if run.compile:
            warnings.filterwarnings("ignore", r"\s*Online softmax is disabled")  # nothing anybody here can change
            objective.compile()
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high")  # "fp32" multiplies as TF32 there: ten times the rate
        self.saving = 0.0  # seconds that the last save took
        self.pace = Pace(run, at, device)
        self.log = open_log(at.step)
        self.stepper = Stepper(parts, self.optimiser, precision, at, device, self.log.say)

    def loop(self, stop: Interrupts) -> None:
        run, at = self.run, self.at
        while at.going(run):
            at.step += 1
            lr = lr_at(self.pace.schedule(), at.step, at.steps, run.model.width, run.optim.lr)
            self.step(lr)
            if planned := self.pace.plan(self.evaluation_seconds):
                self.log.say(self.pace.plan_text())
            if logged := at.step % run.log_every == 0 or at.step == at.steps:
                self.report(lr)
            if logged or self.device.type == "cpu":
                self.give_up()
            if evaluated := self.pace.evaluation_due():
                self.evaluate()
            if planned or evaluated or stop.signal or (run.save_every and at.due(run.save_every)):
                self.save()
            if stop.signal:
                raise stop.exit()

    def step(self, lr: float) -> None:
        objective = self.parts.objective
        self.optimiser.set_lr(lr)
        micros = [next(self.parts.loader) for _ in range(self.run.accumulate)]
        count = max(1, self.world.sum(sum(map(objective.count, micros))))  # targets in this step, on all ranks
        loss, norm, bad = self.stepper(micros, count)
        self.tally.add(loss, norm, bad, count)
        self.at.targets += self.world.sum(sum(map(objective.tokens, micros)))

    def report(self, lr: float) -> None:
        speed, each = self.pace.stretch()
        now = {"step": self.at.step, "seconds": self.pace.seconds(), "lr": lr, "targets_per_second": speed}
        event: dict[str, Any] = now | self.tally.read()
        if unit := self.parts.objective.unit:
            event["unit"] = unit
        if self.parts.flops_per_target and self.device.type == "cuda":
            name = torch.cuda.get_device_name(self.device)
            event["mfu"] = utilisation(name, speed, self.parts.flops_per_target)
        self.log(event, train_text(event, self.at.steps, each), passing=True)
        self.pace.restart()

    def give_up(self) -> None:
        """Stop a run that has diverged. The weights are still those before the first bad step."""
        if self.tally.worst() < BAD_IN_A_ROW:
            return
        self.tally.forgive()  # so that whoever resumes gets as many tries again
        self.save()
        raise WorkFailed(
            f"the loss was not finite for {BAD_IN_A_ROW} steps in a row, up to step {self.at.step}; the run is saved "
            f"as it was before them in {self.folder}; try again with a lower rate (--set optim.lr=…), more warm-up, "
            "or precision fp32"
        )

    def evaluation_seconds(self) -> float:
        """Of one, before there was any; on a GPU they hardly count, and compiling for a look ahead would."""
        measurable = self.device.type == "cpu" and not self.run.compile
        return self.judge.seconds(self.parts.model) if measurable else 0.0

    def evaluate(self) -> None:
        at, model = self.at, self.parts.model
        self.log.say(f"step {at.step}/{at.steps} · evaluating on the validation set …", passing=True)
        with self.pace.paused():
            began = self.pace.seconds()
            metrics = self.judge.evaluate(model)
            better = self.judge.consider(self.run, self.folder, at, model, metrics)
            self.pace.evaluated(self.pace.seconds() - began + self.saving)
        event = {"step": at.step, "seconds": self.pace.seconds(), "better": better} | metrics
        self.log(event, f"step {at.step}/{at.steps} · {metrics_text(metrics)}{' · best so far' * better}")
        for warning in (self.judge.warning, overfitting(self.log.curve, self.run)):
            self.log.warn(warning)

    def save(self) -> None:
        with self.pace.paused():
            self.at.seconds = began = self.pace.seconds()
            parts = self.parts
            progress.save(self.folder, self.at, self.run, parts.model, self.optimiser, parts.loader, self.tally)
            prune(self.folder, self.at)
            self.saving = self.pace.seconds() - began

    def finish(self) -> Result:
        at, run = self.at, replace(self.run, steps=self.at.steps)
        write_run(self.folder, run)  # with minutes, how many steps there were
        kept, metrics, warning = self.judge.finish(run, self.folder, at, self.parts.model)
        seconds, stopped = self.pace.seconds(), "steps" if at.step == at.steps else "patience"
        event = {"step": at.step, "seconds": seconds, "final": True, "kept": kept} | metrics
        self.log(event, f"done: {kept} · {metrics_text(metrics)} · {self.folder}")
        curve = self.log.curve
        advice = what_next(curve, run, self.folder, seconds)
        verdict = compared(self.parts.baselines, metrics, advice)
        if warning and not verdict:
            warning = f"{warning}. {advice}"
        for remark in filter(None, (warning, overfitting(curve, run), self.pace.shortfall(), verdict)):
            self.log.say(remark)
        return Result(metrics, kept, at.step, seconds, stopped)
