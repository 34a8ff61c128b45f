"""A folder of several runs: what it lists is resumed below it, and nowhere else."""

import json
from pathlib import Path

import pytest
from tests.system.cli_toy import regard
from tests.unit.training.toy import toy_run

from regard.errors import CheckpointError, ConfigError
from regard.tasks.jobs import read_plan, write_plan


def test_a_plan_comes_back(tmp_path):
    jobs = [("gpt", tmp_path / "several" / f"gpt-seed{seed}", toy_run(seed=seed)) for seed in (0, 1)]
    write_plan(tmp_path / "several", jobs, force=False)
    assert read_plan(tmp_path / "several") == jobs
    with pytest.raises(ConfigError, match="already holds a run"):
        write_plan(tmp_path / "several", jobs, force=False)
    (tmp_path / "several/notes").write_text("mine")
    write_plan(tmp_path / "several", jobs[:1], force=True)
    assert read_plan(tmp_path / "several") == jobs[:1] and (tmp_path / "several/notes").read_text() == "mine"


@pytest.mark.parametrize("place", ["absolute", "../outside", "a/../../outside", "link", ".", "..", "", "gpt/deeper"])
def test_plan_that_points_elsewhere_is_refused(tmp_path, place):
    folder, outside = tmp_path / "several", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (folder / "link").symlink_to(outside)
    place = str(outside) if place == "absolute" else place
    known = [{"label": "a", "folder": "gpt", "run": toy_run().to_dict()}]
    known += [{"label": "b", "folder": place, "run": toy_run().to_dict()}]
    (folder / "plan.json").write_text(json.dumps(known))
    result = regard("train", "--resume", folder)
    assert result.code == 2 and "plan.json" in result.err
    assert {p.name for p in folder.iterdir()} == {"plan.json", "link"} and not list(outside.iterdir())
    assert {p.name for p in Path(tmp_path).iterdir()} == {"several", "outside"}


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "[3]", '[{"label": "a"}]', '[{"label": "a", "folder": "b", "run": {}}]', "[" * 100_000]
)
def test_a_damaged_plan_is_refused(tmp_path, text):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_plan(tmp_path)
