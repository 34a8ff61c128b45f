"""Fingerprints of files: right, remembered while nothing changes, and never wrong when something does."""

import hashlib
import json
import os
import time
from pathlib import Path

import pytest

from regard.data import fingerprint, store
from regard.data.fingerprint import combined, digests


@pytest.fixture
def files(tmp_path) -> list[Path]:
    paths = [tmp_path / f"{i}.wav" for i in range(3)]
    for i, path in enumerate(paths):
        path.write_bytes(bytes([i]) * 1000)
    return paths


@pytest.fixture
def hashed(monkeypatch) -> list[str]:
    """The names of the files that were read, in order."""
    seen, real = [], store.sha256
    monkeypatch.setattr(store, "sha256", lambda path: (seen.append(path.name), real(path))[1])
    return seen


@pytest.fixture
def at_once(monkeypatch) -> None:
    """Files are remembered however young they are."""
    monkeypatch.setattr(fingerprint, "SETTLED", -(10**12))


def right(paths: list[Path]) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]


@pytest.mark.usefixtures("at_once")
def test_only_what_changed_is_read_again(files, hashed):
    assert digests("data", files) == right(files)
    assert digests("data", files) == right(files) and hashed == ["0.wav", "1.wav", "2.wav"]
    files[1].write_bytes(b"other")
    assert digests("data", files) == right(files) and hashed[3:] == ["1.wav"]
    assert digests("other", files[:1]) == right(files[:1]) and hashed[4:] == ["0.wav"], (
        "each data set has its own memory"
    )


@pytest.mark.usefixtures("at_once")
def test_a_file_with_its_old_size_and_time_is_still_noticed(files):
    digests("data", files)
    status = files[0].stat()
    time.sleep(0.02)  # the clock of a file system ticks every few milliseconds
    files[0].write_bytes(b"x" * status.st_size)
    os.utime(files[0], ns=(status.st_atime_ns, status.st_mtime_ns))
    assert files[0].stat().st_mtime_ns == status.st_mtime_ns and digests("data", files) == right(files)


def test_a_file_that_just_changed_is_not_remembered(files, hashed):
    digests("data", files)
    digests("data", files)
    assert len(hashed) == 6


@pytest.mark.usefixtures("at_once")
def test_a_touched_file_has_its_old_fingerprint(files):
    before = digests("data", files)
    os.utime(files[0])
    assert digests("data", files) == before


@pytest.mark.usefixtures("at_once")
def test_what_cannot_be_read_has_none(files, tmp_path):
    files[0].unlink()
    assert digests("data", [*files, tmp_path]) == ["", *right(files[1:]), ""]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("text", ["", "[]", "{", '{"x": 3}', '{"x": []}'])
def test_a_damaged_memory_is_no_memory(files, tmp_path, monkeypatch, text):
    digests("data", files)
    (memory,) = (tmp_path / "cache" / "fingerprints").iterdir()
    assert len(json.loads(memory.read_text())) == 3
    memory.write_text(text)
    assert digests("data", files) == right(files)


def test_without_a_place_to_remember_they_are_hashed_anyway(files, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(fingerprint, "SETTLED", -(10**12))
    assert digests("data", files) == right(files)


def test_order_and_classes_count():
    one = combined(["a", "b"], ["cat", "dog"])
    assert one == combined(["a", "b"], ["cat", "dog"])
    assert (
        len({one, combined(["b", "a"], ["cat", "dog"]), combined(["a", "b"], ["dog", "cat"]), combined(["a", "b"])})
        == 4
    )
