"""Several runs in one table and one picture."""

import json
import math

import pytest

from regard.errors import CheckpointError
from regard.explain import curves


def run(folder, values, *, name="bleu", every=10):
    folder.mkdir()
    lines = [json.dumps({"step": every * i, name: v}) for i, v in enumerate(values, 1)]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_mean_and_spread_are_the_textbook_ones():
    got = curves.summarise([30.0, 32.0, 34.0])
    assert (got.mean, got.spread) == (32.0, 2.0)
    assert str(got) == "32.00 ± 2.00"
    assert str(curves.summarise([0.5])) == "0.500"


def test_table_has_a_row_per_group_and_dashes_for_missing():
    text = curves.results_table(
        {"lstm": [{"bleu": 20.0}, {"bleu": 22.0}], "transformer": [{"bleu": 30.0, "chrf": 50.0}]}
    )
    rows = [line.split() for line in text.splitlines()]
    assert rows[0] == ["runs", "bleu", "chrf"]
    assert rows[1] == ["lstm", "2", "21.00", "±", "1.41", "–"]
    assert rows[2] == ["transformer", "1", "30.00", "50.00"]
    assert curves.results_table({"gru": [{"bleu": None}]}).split() == ["runs", "bleu", "gru", "1", "–"]


def test_a_line_cut_short_and_values_that_are_no_number_are_left_out(tmp_path):
    folder = run(tmp_path / "a", [1.0, math.nan, 3.0])
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 40, "bl')
    assert curves.series(curves.read_metrics(folder), "bleu") == ([10.0, 30.0], [1.0, 3.0])


def test_the_closing_event_is_the_outcome_and_no_point_of_the_curve(tmp_path):
    folder = run(tmp_path / "a", [1.0, 4.0, 2.0])
    assert curves.outcome(curves.read_metrics(folder)) is None
    last = {"step": 30, "seconds": 9.0, "final": True, "kept": "step 20", "bleu": 4.0}
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(json.dumps(last) + "\n")
    events = curves.read_metrics(folder)
    assert curves.series(events, "bleu") == ([10.0, 20.0, 30.0], [1.0, 4.0, 2.0])
    assert curves.outcome(events) == {"metrics": {"bleu": 4.0}, "steps": 30, "seconds": 9.0, "kept": "step 20"}


def test_the_mean_curve_ends_where_the_shortest_ends():
    steps, values = curves.average([([10, 20, 30], [1.0, 2.0, 3.0]), ([10, 20], [3.0, 4.0])])
    assert steps == [10, 20] and values == [2.0, 3.0]


def test_the_picture_names_every_group(tmp_path):
    pytest.importorskip("matplotlib")
    groups = {
        "gru": [run(tmp_path / "a", [1.0, 2.0]), run(tmp_path / "b", [2.0, 3.0])],
        "transformer": [run(tmp_path / "c", [4.0, 5.0])],
    }
    text = curves.draw(groups, tmp_path / "curves.svg").read_text()
    assert "<!-- gru -->" in text and "<!-- transformer -->" in text and "<!-- BLEU -->" in text


def test_nothing_to_draw_and_no_run_are_said(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(CheckpointError, match="nothing to draw"):
        curves.draw({"a": [run(tmp_path / "a", [1.0], name="other")]}, tmp_path / "x.png")
    with pytest.raises(CheckpointError, match="no such file"):
        curves.read_metrics(tmp_path / "nowhere")
