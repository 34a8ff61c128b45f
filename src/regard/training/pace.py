"""The clock of a run: its speed, how many steps its minutes allow, and when to evaluate."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import torch

from regard.training.progress import EVALUATIONS, Progress
from regard.training.run import Run
from regard.training.settings import Schedule
from regard.words import count, duration

WARMING_UP = 5  # first steps, slower than the others and not timed: one of them may be recorded
TIMED_STEPS = 20  # steps before the first plan
TIMED_SHARE = 0.03  # of `minutes`, after which slow steps count as warm, and after as much again as timed
REPLAN_SHARE = 0.01  # of `minutes` between two plans
RECENT = 9  # stretches between plans whose median is the pace, so that one interruption does not count
EVALUATION_SHARE = 0.05  # of `minutes`: if eight evaluations would take more, there are fewer, but at least
FEWEST = 4  # evaluations, unless these take more than
EVALUATION_MOST = 0.25  # of `minutes`
FEWER = 0.95  # of the steps first planned: a run with fewer reports it


class Pace:
    """The seconds of this run, resumes included, and with `minutes` the plan that follows from them.

    The clock decides when such a run ends and when it is evaluated. The number of steps is an estimate for the
    learning rate, revised after every hundredth of the time.
    """

    def __init__(self, run: Run, at: Progress, device: torch.device):
        self.run, self.at, self.device = run, at, device
        self.clocked = run.minutes > 0 and not run.steps
        self.budget = 60 * run.minutes
        self.start = time.monotonic() - at.seconds
        self.each: deque[float] = deque(maxlen=RECENT)  # seconds per step, in the last stretches
        self.mark = at.seconds, at.step  # the start of the stretch timed for the plan
        self.planned_at = at.seconds
        self.timing = False  # whether the steps for the first plan are being timed
        self.restart()

    def restart(self) -> None:
        """Start a new stretch of training."""
        self.since = time.monotonic(), self.at.step, self.at.targets

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time of the block, an evaluation or a save, as training."""
        if self.clocked and self.at.steps:
            self.time_stretch()
        yield
        self.restart()
        self.mark = self.seconds(), self.at.step

    def seconds(self) -> float:
        return time.monotonic() - self.start

    def stretch(self) -> tuple[float, float]:
        """(targets per second, seconds per step) since the last restart."""
        then, step, targets = self.since
        passed = max(time.monotonic() - then, 1e-9)
        return (self.at.targets - targets) / passed, passed / max(1, self.at.step - step)

    # -- with minutes -------------------------------------------------------------------------------------------------

    def plan(self, evaluation: Callable[[], float]) -> bool:
        """Plan the steps if due; return whether it was the first plan. `evaluation` returns the seconds of one."""
        at, now, done = self.at, self.seconds() - self.at.started, self.at.step - self.at.start
        if not self.clocked:
            return False
        if at.steps:
            if self.seconds() - self.planned_at >= REPLAN_SHARE * self.budget or at.step >= at.steps:
                self.time_stretch()
                self.revise()
            return False
        steps, share = (TIMED_STEPS, 2 * TIMED_SHARE) if self.timing else (WARMING_UP, TIMED_SHARE)
        if done < steps and now < share * self.budget:
            return False
        self.time_stretch()
        if not self.timing and now < self.budget:
            self.timing = True
            self.each.clear()
            return False
        if now < self.budget:
            at.evaluation_seconds = evaluation()
        at.evaluated_at = self.seconds()
        self.revise()
        at.planned = at.steps
        return True

    def time_stretch(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        then, step = self.mark
        self.mark = self.seconds(), self.at.step
        if self.at.step > step:
            self.each.append(max(self.mark[0] - then, 1e-9) / (self.at.step - step))

    def revise(self) -> None:
        """Set the steps to those done plus as many as fit into the time left."""
        at = self.at
        self.planned_at = self.seconds()
        at.evaluations = affordable(at.evaluation_seconds / self.budget)
        if self.each:  # right after a resume the earlier plan holds
            each = median(self.each)
            least = TIMED_STEPS if TIMED_STEPS * each < self.budget / 2 else 0  # however long an evaluation takes
            at.steps = max(at.start + least, at.step + max(0, int(self.left() / each)))

    def schedule(self) -> Schedule:
        """The run's schedule, with a warm-up that fits the planned steps."""
        steps = self.at.steps - self.at.start
        return self.run.schedule.fitted(steps) if self.clocked and self.at.steps else self.run.schedule

    def to_come(self) -> int:
        """The number of evaluations left; every run ends with one."""
        return max(1, self.at.evaluations - self.at.evaluated)

    def left(self) -> float:
        """Seconds left for training, without those of the evaluations to come (at most half of the minutes)."""
        once, rest = self.at.evaluation_seconds, self.budget - (self.seconds() - self.at.started)
        several = self.run.average and (
            self.run.eval_every > 0 or self.at.evaluations > 1
        )  # their mean is evaluated too
        if self.run.eval_every:
            share = 1 + once / (median(self.each) * self.run.eval_every) if self.each else 1
            return (rest - min((1 + several) * once, self.budget / 2)) / share
        return rest - min((self.to_come() + several) * once, self.budget / 2)

    def evaluation_due(self) -> bool:
        """Whether to evaluate: every `eval_every` steps and at the end; with minutes, evenly."""
        at, every = self.at, self.run.eval_every
        if every or not self.clocked or at.step == at.steps:
            return at.due(every or at.eval_every(self.run))
        return at.steps > 0 and (self.seconds() - at.evaluated_at) * (self.to_come() - 1) >= self.left() > 0

    def evaluated(self, seconds: float) -> None:
        """Count an evaluation that took `seconds`, saving included."""
        if self.clocked:
            self.at.evaluated += 1
            self.at.evaluated_at, self.at.evaluation_seconds = self.seconds(), seconds
            if self.at.step < self.at.steps:
                self.revise()

    def plan_text(self) -> str:
        minutes, number = count(self.run.minutes, "minute"), self.at.evaluations
        plan = f"{minutes}: about {count(self.at.steps - self.at.start, 'step')} on this machine"
        if number == EVALUATIONS:
            return plan
        each = duration(self.at.evaluation_seconds)
        return f"{plan}, with {count(number, 'evaluation')} of about {each}"

    def shortfall(self) -> str:
        """The remark for a run that took fewer steps than first planned; "" for others."""
        at = self.at
        if not self.clocked or at.step - at.start >= FEWER * (at.planned - at.start) or at.step < at.steps:
            return ""
        minutes, planned = count(self.run.minutes, "minute"), at.planned - at.start
        return (
            f"{minutes} allowed {count(at.step - at.start, 'step')}, fewer than the {planned:,} planned at first: the "
            "machine became slower; for as many, use a larger --minutes, or --steps"
        )


def affordable(share: float) -> int:
    """The number of evaluations in a run with minutes, if one takes `share` of them."""
    if EVALUATIONS * share <= EVALUATION_SHARE:
        return EVALUATIONS
    return max(1, int(EVALUATION_SHARE / share), min(FEWEST, int(EVALUATION_MOST / share)))
