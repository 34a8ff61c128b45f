"""SIGKILL at twenty random moments, half of them inside a save; some runs are killed again while they resume."""

import random
from pathlib import Path

import pytest
from tests.unit.train.kill import killed_in_a_save, killed_while_training, resumed
from tests.unit.train.toy import outcome, toy_run, toy_train

CALLS = 130  # writes, fsyncs and renames of a whole toy run, a few less than there are


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("whole") / "run"
    toy_train(folder, toy_run(name="muon"))
    return outcome(folder)


@pytest.mark.parametrize("seed", range(20))
def test_killed_at_a_random_moment(tmp_path: Path, whole: dict, seed: int):
    moment = random.Random(seed)
    folder = tmp_path / "run"
    if seed % 2:
        killed_in_a_save(folder, moment.randint(1, CALLS))
        if seed % 4 == 3 and (folder / "run.json").exists():
            killed_in_a_save(folder, moment.randint(1, 6), "resume=1")
    else:
        killed_while_training(folder, moment.uniform(0, 0.45))
    assert outcome(resumed(folder)) == whole
