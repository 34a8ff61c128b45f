"""Where data is kept, and files that appear whole or not at all."""

import os
import time
from pathlib import Path

import pytest

from regard.data.folders import building, building_file, cache_folder
from regard.errors import WorkFailed


def test_the_cache_follows_the_usual_variables(monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert cache_folder() == Path("/a")
    monkeypatch.delenv("REGARD_CACHE")
    assert cache_folder() == Path("/b/regard")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "regard"


@pytest.mark.parametrize("kind", [building, building_file])
def test_what_is_built_appears_whole_or_not_at_all(tmp_path, kind):
    def fill(place: Path) -> None:
        (place / "x" if kind is building else place).write_text("done")

    def fail() -> None:
        with kind(tmp_path / "new") as place:
            fill(place)
            assert not (tmp_path / "new").exists()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []
    for _ in range(2):  # the second time someone else's is already there
        with kind(tmp_path / "new") as place:
            fill(place)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize("name", ["fsync", "rename"])
@pytest.mark.parametrize("kind", [building, building_file])
def test_a_disk_that_fills_up_at_the_last_moment(tmp_path, monkeypatch, kind, name):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(
        *((os, "fsync") if name == "fsync" else (Path, "rename" if kind is building else "replace")), full
    )

    def build() -> None:
        with kind(tmp_path / "new") as place:
            (place / "x" if kind is building else place).write_text("done")

    with pytest.raises(WorkFailed, match="disk is full"):
        build()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_swept_away(tmp_path):
    for age, name in ((2 * 86_400, ".new-old"), (60, ".new-fresh"), (2 * 86_400, ".other-old")):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    with building(tmp_path / "new") as place:
        (place / "x").write_text("done")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".new-fresh", ".other-old", "new"]
