"""Scores that a run keeps."""

from regard.cli.info import read_scores
from regard.tasks.use import note


def test_a_score_on_a_file_whose_name_is_not_utf8_is_kept(tmp_path):
    note(tmp_path, {"on": "caf\udce9.csv", "bits": 1.5})
    assert read_scores(tmp_path) == [{"on": "caf\udce9.csv", "bits": 1.5}]
