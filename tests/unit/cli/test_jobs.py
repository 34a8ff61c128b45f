"""What is reported when runs have ended."""

from regard.api import Trained
from regard.cli.jobs import report
from regard.ticks import Console


def test_a_damaged_data_setting_does_not_stop_the_report(tmp_path, capsys):
    (tmp_path / "run.json").write_text('{"task": "lm", "data": null}')
    metrics = {"held_out_loss": 1.0}
    trained = Trained(tmp_path, [{"label": "gpt", "folder": str(tmp_path), "metrics": metrics}])
    report(trained, json=False, flags=Console(quiet=False))
    assert f"regard info {tmp_path}" in capsys.readouterr().err
