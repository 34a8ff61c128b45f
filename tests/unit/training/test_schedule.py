"""Learning rates against the papers' formulas and torch's schedulers."""

import math

import pytest
import torch

from regard.errors import ConfigError
from regard.training.schedule import lr_at
from regard.training.settings import KINDS, Schedule


def rates(kind: str, steps: int = 100, warmup: int = 10, peak: float = 2.0, width: int = 512) -> list[float]:
    schedule = Schedule(kind=kind, warmup=warmup)
    return [lr_at(schedule, step, steps, width, peak) for step in range(1, steps + 1)]


def test_noam_is_equation_3():
    schedule = Schedule(kind="noam", warmup=4000)
    for step in (1, 2, 1999, 3999, 4000, 4001, 100_000):
        paper = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert math.isclose(lr_at(schedule, step, 0, 512, 1.0), paper)
        assert math.isclose(lr_at(schedule, step, 0, 512, 2.0), 2 * paper)
    assert math.isclose(lr_at(schedule, 4000, 0, 512, 1.0), 7e-4, rel_tol=0.01), "the base model's known peak"


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_the_decay_is_torchs(kind: str):
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    after = {
        "linear": torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, total_iters=90),
        "cosine": torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=90),
    }[kind]
    for ours in rates(kind)[9:]:
        assert math.isclose(ours, optimiser.param_groups[0]["lr"], abs_tol=1e-6)
        optimiser.step()
        after.step()


@pytest.mark.parametrize("kind", ["inverse_sqrt", "cosine", "linear", "constant"])
def test_warm_up_is_a_line_to_the_peak_and_does_not_know_the_end(kind: str):
    assert rates(kind)[:10] == pytest.approx([0.2 * step for step in range(1, 11)])
    assert [lr_at(Schedule(kind=kind, warmup=10), step, 0, 512, 2.0) for step in range(1, 11)] == rates(kind)[:10]


@pytest.mark.parametrize(("kind", "warmup", "steps", "fits"), [
    ("linear", 200, 22, 2), ("cosine", 200, 1000, 100), ("linear", 50, 1000, 50), ("constant", 50, 3, 1),
    ("linear", 0, 100, 0), ("noam", 4000, 100, 4000),
])  # fmt: skip
def test_warm_up_is_a_tenth_of_the_steps_at_most(kind: str, warmup: int, steps: int, fits: int):
    assert Schedule(kind=kind, warmup=warmup).fitted(steps) == Schedule(kind=kind, warmup=fits)


def test_where_each_one_ends():
    ends = {kind: rates(kind)[-1] for kind in KINDS}
    assert ends["linear"] == pytest.approx(0) and ends["cosine"] == pytest.approx(0) and ends["constant"] == 2.0
    assert ends["inverse_sqrt"] == pytest.approx(2 * math.sqrt(10 / 100))


@pytest.mark.parametrize("kind", ["cosine", "linear", "constant"])
def test_no_warm_up_and_a_warm_up_longer_than_the_run(kind: str):
    assert rates(kind, warmup=0)[0] == pytest.approx(2.0, rel=0.02)
    assert rates(kind, steps=5, warmup=10)[-1] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(kind="cosin"), "did you mean 'cosine'"),
        (dict(kind="noam", warmup=0), "at least 1"),
        (dict(warmup=-1), "0"),
    ],
)
def test_bad_settings_are_refused(settings: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        Schedule(**settings)
