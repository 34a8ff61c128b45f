"""SIGKILL, at moments chosen to hurt: in the middle of training, inside a save, between two files of one save."""

from pathlib import Path

import pytest
from tests.unit.training.kill import killed_in_a_save, killed_while_training, resumed
from tests.unit.training.toy import outcome, toy_run, toy_train


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("whole") / "run"
    toy_train(folder, toy_run(name="muon"))
    return outcome(folder)


def test_killed_while_training(tmp_path: Path, whole: dict):
    killed_while_training(tmp_path / "run", after=0.15)
    assert outcome(resumed(tmp_path / "run")) == whole


@pytest.mark.parametrize("call", [42, 75], ids=["between two files of a model", "inside the write of a state"])
def test_killed_in_a_save(tmp_path: Path, whole: dict, call: int):
    killed_in_a_save(tmp_path / "run", call)
    assert outcome(resumed(tmp_path / "run")) == whole
