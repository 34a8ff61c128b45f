"""Trackers, in their offline modes: the numbers of a run arrive, once each, also after it was resumed."""

import pytest
from tests.unit.training.toy import toy_run

from regard.errors import ConfigError, MissingExtra
from regard.training import track
from regard.training.log import Log

SETTINGS = {"task": "classify", "model": {"width": 128}}


def log_twice(folder, name):
    folder.mkdir()
    for first in (1, 3):  # a run, and the same one resumed
        log = Log(folder, first - 1, quiet=True, track=name, settings=SETTINGS)
        for step in (first, first + 1):
            log({"step": step, "loss": 1 / step, "unit": "texts"})
        log.close()


def test_mlflow_gets_settings_and_numbers_of_one_run(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    log_twice(tmp_path / "mine", "mlflow")
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("regard").experiment_id])
    assert run.info.run_name == "mine" and run.info.status == "FINISHED"
    assert run.data.params == {"task": "classify", "model.width": "128"}
    points = {point.step: point.value for point in client.get_metric_history(run.info.run_id, "loss")}
    assert points == {1: 1.0, 2: 0.5, 3: 1 / 3, 4: 0.25}


def test_wandb_writes_offline_runs_of_one_id(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    for name, value in {"MODE": "offline", "DIR": str(tmp_path), "SILENT": "true"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    log_twice(tmp_path / "mine", "wandb")
    files = list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert files and {file.stem for file in files} == {f"run-{track.identity(tmp_path / 'mine')}"}
    content = b"".join(file.read_bytes() for file in files)
    assert b"loss" in content and b"model.width" in content


def test_a_tracker_that_is_not_installed_names_the_extra(monkeypatch):
    monkeypatch.setattr(track, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="--track wandb needs the extra 'track'"):
        track.check_tracker("wandb")
    track.check_tracker("")


def test_an_unknown_tracker_names_those_there_are():
    with pytest.raises(ConfigError, match=r"no tracker 'wanbd'; did you mean 'wandb'\?"):
        toy_run(track="wanbd")


def test_a_failing_tracker_is_reported_and_the_run_goes_on(tmp_path, capsys):
    class Down:
        calls = 0

        def add(self, numbers, step):
            Down.calls += 1
            raise ConnectionError("no route to host")

    log = Log(tmp_path, 0)
    log.trackers = [Down()]
    log({"step": 1, "loss": 1.0})
    log({"step": 2, "loss": 0.5})
    log.close()
    assert (
        Down.calls == 1
        and capsys.readouterr().err.count("Down failed; logging to it has stopped: ConnectionError") == 1
    )
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 2
