"""With minutes, the clock ends a run and spreads its evaluations. The clock is a fake that the work advances."""

import json
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from tests.unit.training.toy import Model, Task, save_model, toy_run, toy_train, valid_batches

from regard import checkpoint
from regard.tasks.plan import read_run
from regard.training.loop import Result
from regard.training.parallel import World
from regard.training.placement import Placement
from regard.training.select import TIMED, Judge
from regard.training.settings import Schedule

BATCHES = len(valid_batches())
LINEAR = Schedule(kind="linear", warmup=20)


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in ("pace", "select"):
        monkeypatch.setattr(f"regard.training.{module}.time", clock)
    return clock


class Stop(Exception):
    pass


class Timed(Task):
    """Step n takes `seconds(n)`, an evaluation `evaluation`; it stops before step `until`."""

    def __init__(self, clock: Clock, seconds, evaluation: float = 0.0, step: int = 0, until: int = 0):
        self.clock, self.seconds, self.evaluation, self.step, self.until = clock, seconds, evaluation, step, until

    def loss_sum(self, model, batch):
        if model.training:
            self.step += 1
            if self.step == self.until:
                raise Stop
            self.clock.now += self.seconds(self.step)
        else:
            self.clock.now += self.evaluation / BATCHES
        return super().loss_sum(model, batch)


def timed_run(**settings):
    defaults = dict(steps=0, minutes=1.0, schedule=LINEAR, eval_every=0, save_every=0, accumulate=1, average=False)
    return toy_run(**(defaults | settings))


def timed(folder: Path, objective: Task, **settings) -> Result:
    return toy_train(folder, timed_run(**settings), objective=objective)


def events(folder: Path, key: str) -> list[dict]:
    read = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [event for event in read if key in event]


PACES = {
    "even": (lambda step: 0.2, 300),
    "slow start": (lambda step: 1.0 if step <= 20 else 0.2, 20 + 200),
    "slow third": (lambda step: 2.0 if step <= 10 else 0.2, 10 + 200),
    "slow middle": (lambda step: 1.0 if 100 < step <= 125 else 0.2, 25 + 175),
    "slower and slower": (lambda step: 0.1 + step / 1000, 260),
    "one long pause": (lambda step: 12.0 if step == 150 else 0.2, 1 + 240),
    "fast at last": (lambda step: 0.4 if step <= 100 else 0.05, 100 + 400),
}


@pytest.mark.parametrize("name", PACES)
def test_minutes_are_used_whatever_the_pace(tmp_path, clock, name):
    seconds, possible = PACES[name]
    result = timed(tmp_path, Timed(clock, seconds, evaluation=0.1))
    assert result.seconds == pytest.approx(60, rel=0.05) and clock.now - 100 == pytest.approx(60, rel=0.05)
    assert result.steps == pytest.approx(possible, rel=0.06)
    assert read_run(tmp_path).steps == result.steps == read_state(tmp_path)["steps"]
    ends = [event["seconds"] for event in events(tmp_path, "better")]
    gaps = [b - a for a, b in pairwise(ends)]
    assert 7 <= len(ends) <= 9
    assert name == "one long pause" or max(gaps) < 2.5 * min(gaps), "evaluations are evenly spread"


@pytest.mark.parametrize("name", ["slow start", "fast at last", "one long pause"])
def test_the_learning_rate_comes_down_with_the_clock(tmp_path, clock, name):
    """Late in the run it is what a schedule over the steps there were in the end would have given."""
    result = timed(tmp_path, Timed(clock, PACES[name][0]), log_every=1)
    rates = [(event["step"], event["lr"] / 0.01) for event in events(tmp_path, "lr") if event["seconds"] > 50]
    expected = [(result.steps - step) / (result.steps - 20) for step, _ in rates]
    assert [rate for _, rate in rates] == pytest.approx(expected, abs=0.05) and rates[-1][1] < 0.03


@pytest.mark.parametrize(
    ("evaluation", "evaluations", "steps"),
    [(0.3, 8, 300 - 12), (0.5, 6, 300 - 15), (1.5, 4, 300 - 30), (6.0, 2, 300 - 60), (20.0, 1, 300 - 100)],
    ids=["cheap", "a twentieth", "the fewest", "a quarter", "one"],
)
def test_costly_evaluations_are_fewer(tmp_path, clock, evaluation, evaluations, steps):
    """A step takes 0.2 s: a minute is 300 of them. What one evaluation takes is found out by a look ahead."""
    result = timed(tmp_path, Timed(clock, lambda step: 0.2, evaluation))
    assert len(events(tmp_path, "better")) == evaluations
    spent = evaluation * (1 + 1 / BATCHES)  # the look ahead runs its first batch twice
    assert result.steps == pytest.approx(steps - spent / 0.2, rel=0.05)
    assert result.seconds == pytest.approx(60, rel=0.05)


def test_an_evaluation_longer_than_the_minutes_comes_once(tmp_path, clock):
    result = timed(tmp_path, Timed(clock, lambda step: 0.2, 15.0), minutes=0.25)
    assert len(events(tmp_path, "better")) == 1 and result.steps == 20


def test_evaluations_that_become_slow_are_paid_for(tmp_path, clock):
    def metric(model):
        clock.now += 4.0
        return {"bleu": 1.0}

    result = toy_train(tmp_path, timed_run(), objective=Timed(clock, lambda step: 0.2), metric=metric)
    assert result.seconds == pytest.approx(60, rel=0.05)
    assert len(events(tmp_path, "better")) == 3, "a quarter of the minute is three of them"


def test_slow_steps_leave_warm_up_within_the_minutes(tmp_path, clock):
    """Steps of 2.5 s and a warm-up of 200: the rate peaks in the first tenth of the run and comes down to 0."""
    result = timed(
        tmp_path, Timed(clock, lambda step: 2.5, 0.5), schedule=Schedule(kind="linear", warmup=200), log_every=1
    )
    rates = [event["lr"] / 0.01 for event in events(tmp_path, "lr")]
    assert 20 <= result.steps <= 24 and max(rates) > 0.9 and rates.index(max(rates)) < 4
    assert rates[-1] < 0.05 and result.seconds == pytest.approx(60, rel=0.05)


def test_requested_evaluations_are_made_and_paid_for(tmp_path, clock):
    result = timed(tmp_path, Timed(clock, lambda step: 0.2, 1.0), eval_every=10)
    assert [event["step"] for event in events(tmp_path, "better")][:3] == [10 * n for n in (2, 3, 4)]
    assert result.seconds == pytest.approx(60, rel=0.05)


@pytest.mark.parametrize("every", [0, 50])
def test_a_mean_of_checkpoints_is_within_the_minutes(tmp_path, clock, every):
    result = timed(tmp_path, Timed(clock, lambda step: 0.2, 1.5), average=True, eval_every=every)
    assert result.seconds == pytest.approx(60, rel=0.05)


def test_a_resumed_run_continues_its_clock(tmp_path, clock):
    seconds = PACES["slow start"][0]
    with pytest.raises(Stop):
        timed(tmp_path, Timed(clock, seconds, 0.1, until=150))
    assert read_run(tmp_path).steps == 0, "the end is not known yet"
    saved = read_state(tmp_path)
    clock.now += 1000.0  # nobody trains
    objective = Timed(clock, lambda step: 0.4, 0.1, step=saved["step"])
    result = toy_train(tmp_path, read_run(tmp_path), objective=objective, resume=True)
    assert result.seconds == pytest.approx(60, rel=0.05)
    assert result.steps == pytest.approx(saved["step"] + (60 - saved["seconds"]) / 0.4, rel=0.06)
    assert 7 <= len(events(tmp_path, "better")) <= 9


def test_a_finished_run_stays_finished(tmp_path, clock):
    steps = timed(tmp_path, Timed(clock, lambda step: 0.2)).steps
    (tmp_path / "run.json").write_text((tmp_path / "run.json").read_text().replace(f'"steps": {steps}', '"steps": 0'))
    assert toy_train(tmp_path, read_run(tmp_path), objective=Task(), resume=True).steps == steps
    assert read_run(tmp_path).steps == steps


def test_minutes_over_before_the_first_plan_end_the_run(tmp_path, clock):
    assert timed(tmp_path, Timed(clock, lambda step: 10.0)).steps == 6


def test_fewer_steps_than_planned_are_reported(tmp_path, clock, capsys):
    pace = lambda step: 0.2 if step < 100 else 0.6  # noqa: E731
    toy_train(tmp_path / "slower", timed_run(), objective=Timed(clock, pace), quiet=False)
    told = capsys.readouterr().err
    assert "1 minute: about 299 steps on this machine\n" in told
    assert "1 minute allowed 166 steps, fewer than the 299 planned at first" in told
    toy_train(tmp_path / "even", timed_run(), objective=Timed(clock, lambda step: 0.2), quiet=False)
    assert "planned at first" not in capsys.readouterr().err


def test_how_long_an_evaluation_takes_is_found_out_without_a_trace(clock):
    calls = []

    class Slow(Task):
        def loss_sum(self, model, batch):
            assert not model.training and not torch.is_grad_enabled()
            calls.append(batch)
            clock.now += 0.02 * self.count(batch) + (5.0 if len(calls) == 1 else 0.0)  # the first is slow
            return super().loss_sum(model, batch)

    batches = valid_batches() * 50
    model, state = Model(), torch.get_rng_state()
    judge = Judge(Slow(), lambda: iter(batches), None, save_model, nullcontext(), World(), Placement())
    assert judge.seconds(model) == pytest.approx(0.02 * sum(map(Slow().count, batches)))
    assert len(calls) == TIMED + 1 and model.training and torch.equal(torch.get_rng_state(), state)


def read_state(folder: Path) -> dict:
    return checkpoint.load_state(folder / "state.safetensors")[1]["progress"]
