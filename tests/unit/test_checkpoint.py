"""Files that survive: whole or not at all, whatever fails and whenever."""

import contextlib
import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from safetensors import safe_open
from torch import nn

from regard import checkpoint
from regard.errors import CheckpointError, ConfigError, RegardError, WorkFailed

CALLS = ("write", "fsync", "replace", "open", "close")


def fail_at(monkeypatch: pytest.MonkeyPatch, name: str, call: int, error: BaseException) -> list[int]:
    """The `call`-th use of os.`name` raises; returns the list of calls seen so far."""
    real, seen = getattr(os, name), []

    def failing(*args, **kwargs):
        seen.append(len(seen) + 1)
        if len(seen) == call:
            if name == "close":
                real(*args)  # the kernel closes the file even when it reports an error
            raise error
        return real(*args, **kwargs)

    monkeypatch.setattr(os, name, failing)
    return seen


@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), OSError(5, "I/O error"), KeyboardInterrupt()]
)
def test_a_file_is_old_or_new_but_never_between(tmp_path, monkeypatch, name, call, error):
    path = tmp_path / "state"
    checkpoint.write_atomic(path, b"old" * 1000)
    seen = fail_at(monkeypatch, name, call, error)
    expected = WorkFailed if isinstance(error, OSError) else KeyboardInterrupt
    if name in ("write", "replace") and call == 2:
        checkpoint.write_atomic(path, b"new" * 1000)  # one write and one rename are enough
        assert len(seen) == 1 and path.read_bytes() == b"new" * 1000
        return
    with pytest.raises(expected):
        checkpoint.write_atomic(path, b"new" * 1000)
    monkeypatch.undo()
    moved = name in ("fsync", "open", "close") and call == 2  # only the folder's own entry is in doubt then
    assert path.read_bytes() == (b"new" if moved else b"old") * 1000
    assert list(tmp_path.iterdir()) == [path], "a draft is left behind"


def test_a_full_disk_is_said_in_words(tmp_path, monkeypatch):
    fail_at(monkeypatch, "write", 1, OSError(28, "No space left on device"))
    with pytest.raises(WorkFailed, match="no space left on the disk") as e:
        checkpoint.write_atomic(tmp_path / "state", b"x")
    assert e.value.exit_code == 1


def test_short_writes_are_carried_on(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:7]))
    checkpoint.write_atomic(tmp_path / "state", bytes(range(256)))
    assert (tmp_path / "state").read_bytes() == bytes(range(256))


@pytest.mark.parametrize("name", ["fsync", "replace", "mkdir"])
def test_a_new_folder_appears_whole_or_not_at_all(tmp_path, monkeypatch, name):
    def write(folder: Path) -> None:
        (folder / "sub").mkdir()
        for file in ("config.json", "model.safetensors", "sub/notes"):
            (folder / file).write_text("new")

    for call in range(1, 20):
        place = tmp_path / f"new{call}"
        seen = fail_at(monkeypatch, name, call, OSError(5, "I/O error"))
        if len(seen) < call:
            with contextlib.suppress(WorkFailed):
                checkpoint.write_new_folder(place, write)
        monkeypatch.undo()
        assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == [], "a draft is left behind"
        if place.exists():
            assert {p.name for p in place.rglob("*")} == {"config.json", "model.safetensors", "sub", "notes"}
        if len(seen) < call:
            break
    assert call > 1 and (place / "sub/notes").read_text() == "new"


def test_a_folder_with_files_is_not_written_into(tmp_path):
    (tmp_path / "mine").write_text("x")
    with pytest.raises(ConfigError, match="not empty"):
        checkpoint.write_new_folder(tmp_path, lambda draft: None)
    with pytest.raises(ConfigError, match="already exists"):
        checkpoint.write_new_folder(tmp_path / "mine", lambda draft: None)
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_a_loop_of_links_is_refused_as_a_new_folder(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(RegardError, match="loop"):
        checkpoint.write_new_folder(tmp_path / "loop", lambda draft: None)
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


def test_what_is_saved_comes_back(tmp_path):
    tensors = {
        "a": torch.randn(3, 4).mT,  # not contiguous
        "half": torch.randn(5).bfloat16(),
        "count": torch.tensor(7),
        "empty": torch.zeros(0, 3),
        "bytes": torch.arange(256, dtype=torch.uint8),
    }
    meta = {"step": 3, "score": 0.1 + 0.2, "worst": float("-inf"), "names": ["ä", "b"]}
    checkpoint.save_state(tmp_path / "s", tensors, meta)
    loaded, known = checkpoint.load_state(tmp_path / "s")
    assert known == meta and loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype and torch.equal(loaded[name], tensor)


def test_others_can_read_our_file(tmp_path):
    checkpoint.save_state(tmp_path / "s", {"a": torch.arange(6.0).reshape(2, 3)}, {"step": 1})
    assert np.array_equal(safetensors.numpy.load_file(tmp_path / "s")["a"], np.arange(6.0).reshape(2, 3))


def test_damage_is_noticed_wherever_it_is(tmp_path):
    path = tmp_path / "s"
    checkpoint.save_state(path, {"a": torch.randn(50), "b": torch.randn(3)}, {"step": 1})
    good = path.read_bytes()
    header = 8 + struct.unpack("<Q", good[:8])[0]
    damaged = [b"", good[:4], good[: header - 5], good[:-1], b"\x80" + good[1:], b"not a checkpoint" * 9]
    damaged += [good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in range(header, len(good), 9)]
    for bad in damaged:
        path.write_bytes(bad)
        with pytest.raises(CheckpointError, match="damaged"):
            checkpoint.load_state(path)


def renamed(path, names: dict[str, str]) -> None:
    """The same bytes and metadata, with tensors under other names."""
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
        tensors = {names.get(name, name): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    safetensors.torch.save_file(tensors, path, metadata)


@pytest.mark.parametrize(
    "names",
    [{"a": "b", "b": "a"}, {"a": "c", "b": "a", "c": "b"}, {"a": "d"}, {"b": "bb"}],
    ids=["two swapped", "three in a ring", "another order", "the same order"],
)
def test_tensors_under_other_names_are_damage(tmp_path, names):
    """Of equal shapes nothing else would tell: the weights of two layers, or two moments of the optimiser."""
    path = tmp_path / "s"
    tensors = {name: torch.randn(4, 3) for name in ("a", "b", "c")}
    checkpoint.save_state(path, tensors, {"step": 1})
    renamed(path, {})
    assert torch.equal(checkpoint.load_state(path)[0]["a"], tensors["a"]), "written again as it was, it is whole"
    renamed(path, names)
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoint.load_state(path)


def test_a_newer_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT_VERSION", 2)
    checkpoint.save_state(tmp_path / "s", {"a": torch.zeros(1)}, {})
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"newer regard \(format 2, this one reads up to 1\)"):
        checkpoint.load_state(tmp_path / "s")


def test_files_of_others_and_missing_ones_are_refused(tmp_path):
    safetensors.numpy.save_file({"a": np.zeros(2)}, tmp_path / "theirs", {"format": "pt"})
    with pytest.raises(CheckpointError, match="not written by regard"):
        checkpoint.load_state(tmp_path / "theirs")
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(CheckpointError, match="no such file"):
            checkpoint.load_state(missing)


def test_versions_are_recorded(tmp_path):
    checkpoint.save_state(tmp_path / "s", {"a": torch.zeros(1)}, {})
    raw = (tmp_path / "s").read_bytes()
    header = json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])
    settings = json.loads(header["__metadata__"]["regard"])
    assert (
        settings["versions"]["torch"] == torch.__version__ and settings["format_version"] == checkpoint.FORMAT_VERSION
    )


class Tied(nn.Module):
    def __init__(self, width: int = 3):
        super().__init__()
        self.table, self.head = nn.Embedding(5, width), nn.Linear(width, 5)
        self.head.weight = self.table.weight
        self.register_buffer("seen", torch.tensor(0))


def test_tied_weights_are_saved_once_and_stay_tied(tmp_path):
    model, other = Tied(), Tied()
    assert "table.weight" in checkpoint.weights(model) and "head.weight" not in checkpoint.weights(model)
    checkpoint.save_state(tmp_path / "s", checkpoint.weights(model), {})
    checkpoint.load_weights(other, checkpoint.load_state(tmp_path / "s")[0], "s")
    assert other.head.weight is other.table.weight
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_weights_of_another_model_are_refused():
    with pytest.raises(CheckpointError, match=r"a different model; table\.weight has shape"):
        checkpoint.load_weights(Tied(), checkpoint.weights(Tied(width=4)), "s")
    with pytest.raises(CheckpointError, match="a different model; it differs in"):
        checkpoint.load_weights(Tied(), checkpoint.weights(nn.Linear(2, 2)), "s")


def test_the_average_is_numpys(tmp_path):
    many = [{"w": torch.randn(4, 4), "n": torch.tensor(i)} for i in range(3)]
    for i, tensors in enumerate(many):
        checkpoint.save_state(tmp_path / str(i), tensors, {})
    mean = checkpoint.average([tmp_path / str(i) for i in range(3)])
    np.testing.assert_allclose(mean["w"].numpy(), np.mean([m["w"].numpy() for m in many], 0), atol=1e-6)
    assert mean["n"] == 0 and mean["w"].dtype == torch.float32
