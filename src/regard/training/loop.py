"""The training loop. No callbacks and no trainer to subclass: read it top to bottom, copy it, change it."""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from regard import run_folder
from regard.checkpoint import locked
from regard.errors import WorkFailed
from regard.malloc import keep_freed_memory
from regard.training.baseline import compared
from regard.training.log import Log, NoLog, metrics_text, train_text
from regard.training.optim import Optimiser
from regard.training.overfitting import overfitting, what_next
from regard.training.pace import Pace
from regard.training.parallel import World
from regard.training.parts import Parts
from regard.training.peaks import utilisation
from regard.training.placement import Placement, place
from regard.training.precision import PRECISIONS
from regard.training.progress import Progress, SavedState, Tally
from regard.training.run import write_run
from regard.training.schedule import lr_at
from regard.training.select import Judge, Metrics, prune
from regard.training.signals import Interrupts
from regard.training.step import Stepper, Stopwatch
from regard.training.track import check_tracker

BAD_IN_A_ROW = 10  # steps without a finite loss before we stop


@dataclass(frozen=True)
class Result:
    """The result of a run: the metrics of the model that was kept, which one it is, and what it took."""

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
    extend: Metrics | None = None,
    quiet: bool = False,
    on_log: Callable[[dict[str, Any]], None] | None = None,
    world: World | None = None,
) -> Result:
    """Train a model, which is on `device` already, into `folder`: a new or empty one, or with `force` that of another
    run. `resume` continues exactly where the folder stopped. `extend` continues a finished run, whose model has these
    metrics, for as long as `parts.run` says, with a new warm-up and schedule. Only rank 0 of `world` writes there."""
    folder, device, world = Path(folder), torch.device(device), world or World()
    resume = resume or extend is not None
    check_tracker(parts.run.track)
    if device.type == "cpu":
        keep_freed_memory()
    placement = place(parts, world, device)  # a layout that does not fit is refused before anything is written
    with ExitStack() as held:
        with world.together():
            if world.main:
                if not resume:
                    run_folder.new_run(folder, force)
                held.enter_context(locked(folder))
                run_folder.adopt(folder)
        with world.together():
            stop = held.enter_context(Interrupts())
            track: Any = dict(track=parts.run.track, settings=parts.run.to_dict())
            log = (lambda step: Log(folder, step, quiet, on_log, **track)) if world.main else lambda _: NoLog()
            training = Training(parts, folder, device, resume, extend, log, world, placement)
        try:
            with world.watched(lambda: training.at.step):
                if extend is not None:
                    training.extend(extend)
                training.loop(stop)
                stop.at_once = True  # all is saved; the rest is quick to repeat
                return training.finish()
        except SystemExit:
            training.log.say(f"stopped after step {training.at.step}; resume with: regard train --resume {folder}")
            raise
        finally:
            training.log.close()


class Training:
    """A run in progress: its state, and what happens between two steps."""

    def __init__(
        self,
        parts: Parts,
        folder: Path,
        device: torch.device,
        resume: bool,
        extend: Metrics | None,
        open_log: Callable[[int], Log],
        world: World,
        placement: Placement,
    ):
        run, model, objective = parts.run, parts.model, parts.objective
        self.parts, self.run, self.folder, self.device, self.world = parts, run, folder, device, world
        self.placement = placement
        torch.manual_seed(run.seed + world.rank)  # for dropout; all ranks have the same weights
        model.train()
        self.optimiser, self.tally = Optimiser(model, run.optim, world), Tally(device)
        self.state = SavedState(model, self.optimiser, parts.loader, self.tally, world, placement.writer)
        at = self.state.restore(folder, extend is not None) if resume else Progress()
        self.at = at = at if extend is None else at.extended(run.steps)
        at.steps = at.steps or run.steps
        if world.main:
            run_folder.claim(folder, run_folder.OF_A_RUN)
            run_folder.sweep(folder)
            write_run(folder, run)
            prune(folder, at)

        precision = PRECISIONS[run.precision](device)
        self.precision = precision
        self.judge = Judge(objective, parts.valid_batches, parts.metric, parts.save_model, precision, world, placement)
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high")  # there "fp32" means TF32 products: ten times as fast
        self.saving = 0.0  # seconds of the last save
        self.loading = 0.0  # seconds this process spent loading batches since the last report
        self.pace = Pace(run, at, device)
        self.log = open_log(at.step)

    def extend(self, metrics: Metrics) -> None:
        """Start from the model that the finished run kept; from here on the run can be resumed."""
        if not self.at.best:
            self.judge.consider(self.run, self.folder, self.at, self.parts.model, metrics)
        self.save()

    def loop(self, stop: Interrupts) -> None:
        run, at = self.run, self.at
        how = self.precision, at, self.device, self.log.say, self.world, self.placement
        self.stepper = Stepper(self.parts, self.optimiser, *how)
        if self.placement.text:
            self.log.say(f"{self.world.size} processes: {self.placement.text}")
        if self.parts.starts_fitted and not at.step:
            self.evaluate()
        while at.going(run):
            at.step += 1
            steps = max(0, at.steps - at.start)
            lr = lr_at(self.pace.schedule(), at.step - at.start, steps, run.model.width, run.optim.lr)
            agreed = self.step(lr, stop.signal)
            planned, evaluate = self.clock()
            if planned:
                self.log.say(self.pace.plan_text())
            if logged := at.step % run.log_every == 0 or at.step == at.steps:
                self.report(lr)
            if logged or self.device.type == "cpu":
                self.give_up()
            if evaluate:
                self.evaluate()
            signal = stop.signal if self.world.size == 1 else agreed
            if planned or (evaluate and self.affordable()) or signal or (run.save_every and at.due(run.save_every)):
                self.save(wait=bool(signal) or not at.going(run))
            if signal:
                stop.signal = signal
                raise stop.exit()

    def step(self, lr: float, signal: int) -> int:
        """Take one step; return the signal that any rank had received before it, on which all save and stop."""
        objective, world = self.parts.objective, self.world
        planned = self.at.steps - self.at.start
        self.optimiser.set_lr(lr, (self.at.step - self.at.start) / planned if planned > 0 else 0.0)
        began = time.perf_counter()
        micros, counted = world.share(self.parts.loader, self.run.accumulate)
        self.loading += time.perf_counter() - began
        count, tokens = (sum(map(number, micros)) if counted else 0 for number in (objective.count, objective.tokens))
        everyone = world.gather(count, tokens, signal, int(self.state.ready()))
        counts, speeds, signals, written = zip(*everyone, strict=True)
        if all(written):
            self.finish_save()
        count = max(1, sum(counts))  # targets in this step, on all ranks
        loss, norm, bad = self.stepper(micros, count if counted else math.inf)  # inf: it adds nothing
        self.tally.add(loss, norm, bad, count)
        self.at.targets += sum(speeds)
        return max(signals)

    def clock(self) -> tuple[bool, bool]:
        """Whether the steps have just been planned, and whether to evaluate. With minutes, rank 0's clock decides."""
        if self.world.size == 1 or not self.pace.clocked:
            return self.pace.plan(self.evaluation_seconds), self.pace.evaluation_due()
        decided = self.pace.plan(lambda: 0.0), self.pace.evaluation_due()
        decided, progress = self.world.broadcast((decided, asdict(self.at)))
        vars(self.at).update(progress)
        return decided

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
        if isinstance(watch := self.stepper.watch, Stopwatch):
            self.log.warn(self.world.slow(self.loading + watch.read()))
            self.loading = 0.0
        self.pace.restart()

    def give_up(self) -> None:
        """Stop a run that has diverged. The weights are those before the first bad step."""
        if self.tally.worst() < BAD_IN_A_ROW:
            return
        self.tally.reset_bad()  # a resumed run may try as often again
        self.save()
        raise WorkFailed(
            f"the loss was not finite for {BAD_IN_A_ROW} steps in a row, up to step {self.at.step}; the state "
            f"before them is saved in {self.folder}; try again with a lower rate (--set optim.lr=…), more warm-up, "
            "or precision fp32"
        )

    def evaluation_seconds(self) -> float:
        """Estimate the seconds of an evaluation before the first. On a GPU it hardly takes any, but compiling would."""
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
            if self.pace.clocked and self.world.size > 1:
                vars(at).update(self.world.broadcast(asdict(at)))
        event = {"step": at.step, "seconds": self.pace.seconds(), "better": better} | metrics
        self.log(event, f"step {at.step}/{at.steps} · {metrics_text(metrics)}{' · best so far' * better}")
        for warning in (self.judge.warning, overfitting(self.log.curve, self.run)):
            self.log.warn(warning)

    def affordable(self) -> bool:
        """Whether to save after this evaluation: with minutes, saving takes at most a tenth of the time.

        Several processes save after each evaluation, because they save together and their clocks differ.
        """
        short = self.pace.clocked and self.world.size == 1 and self.at.going(self.run)
        return not short or self.pace.seconds() - self.at.seconds >= 10 * self.saving

    def save(self, wait: bool = True) -> None:
        with self.pace.paused():
            self.at.seconds = began = self.pace.seconds()
            self.state.save(self.folder, self.at, self.run, wait)
            if not self.state.writing:
                self.finish_save()
            self.saving = self.pace.seconds() - began

    def finish_save(self) -> None:
        """Make the saved state the current one, and remove the weights of evaluations that it does not name."""
        self.state.finish()
        if self.world.main:
            prune(self.folder, self.at)

    def finish(self) -> Result:
        at, run = self.at, replace(self.run, steps=self.at.steps)
        if self.world.main:
            write_run(self.folder, run)  # with minutes, the number of steps taken
        kept, metrics, warning = self.judge.finish(run, self.folder, at, self.parts.model)
        seconds, stopped = self.pace.seconds(), "steps" if at.step == at.steps else "patience"
        event = {"step": at.step, "seconds": seconds, "final": True, "kept": kept} | metrics
        self.log(event, f"done: {kept} · {metrics_text(metrics)} · {self.folder}")
        curve = self.log.curve
        advice = what_next(curve, run, self.folder, seconds, kept)
        verdict = compared(self.parts.baselines, metrics, advice)
        if warning and not verdict:
            warning = f"{warning}. {advice}"
        for remark in filter(None, (warning, overfitting(curve, run), self.pace.shortfall(), verdict)):
            self.log.say(remark)
        return Result(metrics, kept, at.step, seconds, stopped)
