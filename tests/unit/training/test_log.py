"""metrics.jsonl is what happened, once each, however often a run was resumed."""

import json
from pathlib import Path

from regard.training.log import Log, keep_until, metrics_text, train_text
from regard.words import duration


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_events_are_lines_and_reach_the_listener(tmp_path):
    heard = []
    log = Log(tmp_path, 0, quiet=True, on_log=heard.append)
    log({"step": 1, "loss": 0.5})
    assert lines(tmp_path) == [{"step": 1, "loss": 0.5}], "a line is on the disk at once"
    log({"step": 2, "loss": float("nan")})
    log.close()
    assert lines(tmp_path)[1] == {"step": 2, "loss": None}, "JSON has no NaN"
    assert [event["step"] for event in heard] == [1, 2]


def test_resuming_drops_what_comes_again(tmp_path):
    path = tmp_path / "metrics.jsonl"
    events = [{"step": 5}, {"step": 10, "bleu": 1.0}, {"step": 10, "final": True}, {"step": 15}]
    path.write_text("".join(json.dumps(e) + "\n" for e in events) + '{"step": 10, "lo')
    log = Log(tmp_path, 10, quiet=True)
    log({"step": 11})
    log.close()
    assert lines(tmp_path) == [{"step": 5}, {"step": 10, "bleu": 1.0}, {"step": 11}]
    keep_until(path, 0)
    assert path.read_text() == ""


def test_tensorboard_sees_the_same(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = Log(tmp_path, 0, quiet=True)
    for step in (1, 2):
        log({"step": step, "loss": 0.5 * step, "kept": "text"})
    log.close()
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert [(e.step, e.value) for e in board.Scalars("loss")] == [(1, 0.5), (2, 1.0)]


def test_the_person_is_told_on_stderr(tmp_path, capsys):
    log = Log(tmp_path, 0)
    event = {"step": 20, "loss": 3.21, "targets_per_second": 4600.0, "lr": 1e-3, "skipped": 0}
    log(event, train_text(event, 100, 1.5), passing=True)
    log(event, "left out: too soon to say it again", passing=True)
    log(event, "an evaluation")
    log.close()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["step 20/100 · loss 3.210 · 4,600 tokens/s · lr 1.00e-03 · 2:00 left", "an evaluation"]


def test_quiet_is_quiet(tmp_path, capsys):
    log = Log(tmp_path, 0, quiet=True)
    log({"step": 1}, "text")
    log.say("more")
    log.close()
    assert capsys.readouterr() == ("", "")


def test_durations():
    assert [duration(s) for s in (0, 59.6, 61, 3600, 3 * 3600 + 125, -1)] == [
        "0:00", "1:00", "1:01", "1:00:00", "3:02:05", "0:00"
    ]  # fmt: skip


def test_an_evaluation_reads_validation_loss():
    event = {"step": 20, "seconds": 1.0, "held_out_loss": 2.5, "masked_accuracy": 0.25, "better": True}
    assert metrics_text(event) == "validation loss 2.500 · masked accuracy 0.250"
