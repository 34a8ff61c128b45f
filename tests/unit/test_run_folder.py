"""What regard wrote is its to replace, everything else in a folder is the user's; a model is never half there."""

import contextlib
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from tests.unit.training.toy import toy_run, toy_train

import regard
from regard import checkpoint, run_folder
from regard.data.text import TextConfig
from regard.data.tokenizers.chars import Characters
from regard.errors import CheckpointError, ConfigError, RegardError, WorkFailed
from regard.models import GPTConfig, build
from regard.models.published import save_weights, to_published
from regard.models.published import weights as weights_module
from regard.training.run import write_run

CALLS = ("write", "fsync", "replace", "mkdir", "unlink")
THEIRS = {"notes.txt": "mine", "checkpoints/step-0000099.safetensors": "mine", "checkpoints/best": "mine",
          ".new/keep": "mine", ".notes.tmp": "mine", "checkpoints/.x.tmp": "mine",
          "sub/config.json": "mine"}  # fmt: skip


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def put(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def short(**settings):
    return toy_run(steps=4, eval_every=2, save_every=2, accumulate=1, **settings)


# -- whose files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    "name", ["README.md", "config.json", "model.safetensors", ".new/x", "checkpoints/step-0000001.safetensors",
             "run.json", "plan.json", ".draft/x", ".x.tmp"],
)  # fmt: skip
def test_a_folder_that_regard_did_not_write_is_refused_and_stays(tmp_path, name, force):
    put(tmp_path, {name: '{"theirs": true}'})
    before = files(tmp_path)
    with pytest.raises(ConfigError, match=rf"regard did not write what is there: {name.split('/')[0]}"):
        toy_train(tmp_path, short(), force=force)
    assert files(tmp_path) == before


def test_an_empty_folder_is_free_and_a_file_is_not(tmp_path):
    (tmp_path / "run").mkdir()
    toy_train(tmp_path / "run", short())
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="is a file"):
        toy_train(tmp_path / "file", short(), force=True)


def test_force_removes_what_regard_wrote_and_nothing_else(tmp_path):
    toy_train(tmp_path / "run", toy_run())
    put(tmp_path / "run", {"scores.jsonl": "{}"})  # as an evaluation does
    put(tmp_path / "run", THEIRS)
    with pytest.raises(ConfigError, match="already holds a run"):
        toy_train(tmp_path / "run", short())
    run_folder.new_run(tmp_path / "run", force=True)
    assert {k: v for k, v in files(tmp_path / "run").items() if k != run_folder.MANIFEST} == {
        name: text.encode() for name, text in THEIRS.items()
    }
    toy_train(tmp_path / "run", short(), force=True)
    left = files(tmp_path / "run")
    assert all(left[name] == b"mine" for name in THEIRS)
    listed = json.loads(left[run_folder.MANIFEST])["files"]
    assert {name for name in listed if (tmp_path / "run" / name).exists()} == left.keys() - THEIRS.keys() - {
        run_folder.MANIFEST
    }


def test_force_does_not_touch_a_run_in_training(tmp_path):
    toy_train(tmp_path / "run", short())
    with checkpoint.locked(tmp_path / "run"), pytest.raises(WorkFailed):
        run_folder.new_run(tmp_path / "run", force=True)
    assert (tmp_path / "run/run.json").exists() and (tmp_path / "run/state.safetensors").exists()


def test_resuming_leaves_the_users_files_alone(tmp_path):
    toy_train(tmp_path / "run", toy_run())
    put(tmp_path / "run", THEIRS)
    toy_train(tmp_path / "run", toy_run(), resume=True)
    left = files(tmp_path / "run")
    assert all(left[name] == b"mine" for name in THEIRS)


def test_a_file_put_there_meanwhile_is_not_replaced(tmp_path):
    def on_log(event):
        (tmp_path / "run/config.json").write_text("mine")

    with pytest.raises(CheckpointError, match=r"config\.json: regard did not write this file.*--resume"):
        toy_train(tmp_path / "run", short(log_every=1), on_log=on_log)
    assert (tmp_path / "run/config.json").read_text() == "mine"
    with pytest.raises(ConfigError, match=r"did not write config\.json"):
        toy_train(tmp_path / "run", short(), force=True)
    (tmp_path / "run/config.json").unlink()
    toy_train(tmp_path / "run", short(), resume=True)
    assert (tmp_path / "run/config.json").read_text() == "{}\n"


@pytest.mark.parametrize("force", [False, True])
def test_a_run_from_before_manifests_is_resumed_and_replaced(tmp_path, force):
    """The names are those such a run has; a user's files among them stay."""
    folder = tmp_path / "run"
    toy_train(folder, toy_run())
    put(folder, {"regard.json": "{}", ".state.safetensors.tmp": "half", ".new/config.json": "half", "mine": "x"})
    put(folder, {"checkpoints/.step-0000020.safetensors.tmp": "half", "checkpoints/best": "mine", ".mine.tmp": "x"})
    (folder / run_folder.MANIFEST).unlink()
    with pytest.raises(ConfigError, match="already holds a run"):
        toy_train(folder, toy_run())
    toy_train(folder, toy_run(), force=force, resume=not force)
    left = files(folder)
    assert left["checkpoints/best"] == b"mine" and {"mine", ".mine.tmp", "model.safetensors"} <= left.keys()
    assert not {".state.safetensors.tmp", ".new/config.json", "checkpoints/.step-0000020.safetensors.tmp"} & left.keys()
    run_folder.new_run(folder, force=True)
    assert files(folder).keys() == {"mine", ".mine.tmp", "checkpoints/best", run_folder.MANIFEST}


def test_before_the_first_model_an_older_run_owns_no_model_files(tmp_path):
    """Trained by an older regard into a project, and killed early: the project's own README is not regard's."""
    write_run(tmp_path, toy_run())
    put(tmp_path, {"README.md": "mine", "config.json": "mine"})
    with pytest.raises(ConfigError, match=r"did not write README\.md, config\.json"):
        toy_train(tmp_path, short(), force=True)
    with pytest.raises(CheckpointError, match="regard did not write this file"):
        toy_train(tmp_path, short(), resume=True)
    assert files(tmp_path)["README.md"] == files(tmp_path)["config.json"] == b"mine"


@pytest.mark.parametrize("name", ["../mine", "/etc/hostname", "link/mine", "checkpoints/../../mine", "a\0b/c"])
def test_a_manifest_cannot_point_outside(tmp_path, name):
    put(tmp_path, {"mine": "x", "run/run.json": "{}", "elsewhere/mine": "x"})
    (tmp_path / "run/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "run" / run_folder.MANIFEST).write_text(json.dumps({"files": ["run.json", name]}))
    before = files(tmp_path)
    with pytest.raises(CheckpointError, match="leads out of"):
        run_folder.new_run(tmp_path / "run", force=True)
    assert files(tmp_path) == before


def test_a_listed_file_that_is_a_link_goes_and_its_target_stays(tmp_path):
    toy_train(tmp_path / "run", short())
    weights = tmp_path / "run/model.safetensors"
    shutil.move(weights, tmp_path / "weights")
    weights.symlink_to(tmp_path / "weights")
    run_folder.new_run(tmp_path / "run", force=True)
    assert (tmp_path / "weights").is_file() and not weights.is_symlink()


@pytest.mark.parametrize("manifest", [True, False])
def test_links_in_a_run_folder_do_not_lead_writing_out_of_it(tmp_path, manifest):
    """As in an archive from somebody else, of a run to go on with."""
    outside = tmp_path / "outside"
    put(outside, {"mine": "x", "folder/mine": "x"})
    before = files(outside)
    folder, whole = tmp_path / "run", tmp_path / "whole"
    toy_train(whole, short())
    for name in (".state.safetensors.tmp", f".{run_folder.MANIFEST}.tmp", ".run.json.tmp", ".metrics.jsonl.tmp",
                 "state.safetensors", "metrics.jsonl", "run.json", "checkpoints/.step-0000002.safetensors.tmp",
                 "checkpoints/step-0000004.safetensors", ".draft", "checkpoints", "tensorboard"):  # fmt: skip
        for target in ("mine", "folder", "not there"):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(whole, folder)
            path, rest = folder / name, outside / target
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            path.symlink_to(rest)
            if not manifest:
                (folder / run_folder.MANIFEST).unlink()
            with contextlib.suppress(RegardError, OSError):
                toy_train(folder, short(), resume=True)
            assert files(outside) == before, f"{name} -> {target}"


@pytest.mark.parametrize("text", ["", "[]", '{"files": 3}', '{"files": [3]}', '{"about": 1}'])
def test_a_damaged_manifest_is_refused(tmp_path, text):
    toy_train(tmp_path / "run", short())
    before = files(tmp_path / "run").keys()
    (tmp_path / "run" / run_folder.MANIFEST).write_text(text)
    with pytest.raises(CheckpointError, match="cannot be read"):
        run_folder.new_run(tmp_path / "run", force=True)
    assert files(tmp_path / "run").keys() == before


# -- a model is published ---------------------------------------------------------------------------------------------


class Killed(BaseException):
    """No clean-up follows: whatever else the process tries to do to the disk fails too."""


def kill_at(monkeypatch: pytest.MonkeyPatch, call: int) -> list[int]:
    """The `call`-th change to the disk, and all that come after it, raise; the list grows with every call."""
    seen: list[int] = []

    def dying(real):
        def wrapped(*args, **kwargs):
            seen.append(1)
            if len(seen) >= call:
                raise Killed
            return real(*args, **kwargs)

        return wrapped

    for name in (*CALLS, "rmdir"):
        monkeypatch.setattr(os, name, dying(getattr(os, name)))
    return seen


@pytest.fixture(params=["one file", "shards"])
def saved(request, monkeypatch):
    """Two models of one run, and how to write one."""
    if request.param == "shards":
        monkeypatch.setattr(weights_module, "SHARD", 1_500)
    config = GPTConfig(vocab=3, width=8, layers=1, heads=2, ffn=16, context=8)
    run = toy_run(task="lm", model=config, data=TextConfig(path="x.txt", context=8))
    tokenizer = Characters("abc")
    models = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        models.append(build(run.model))

    def write(model):
        def fill(draft: Path) -> None:
            tokenizer.save(draft)
            (draft / "config.json").write_text(json.dumps(to_published(config)))
            save_weights(model, draft)
            (draft / "regard.json").write_text('{"format_version": 1, "task": "lm"}')

        return fill

    return run, [m.token.weight.detach().clone() for m in models], [write(m) for m in models]


def read(folder: Path, weights: list[torch.Tensor]) -> str:
    """Which model a reader finds, or what they are told."""
    try:
        actual = regard.load(folder).model.token.weight
    except CheckpointError as e:
        return (
            "has no model yet" if f"has no model yet; continue it: regard train --resume {folder}" in str(e) else str(e)
        )
    return next(
        (name for name, known in zip(("old", "new"), weights, strict=True) if torch.equal(actual, known)), "mixed"
    )


def test_kill_at_any_write_leaves_no_half_written_model(tmp_path, monkeypatch, saved):
    run, weights, (first, second) = saved
    allowed = {0: ("has no model yet", "new"), 1: ("old", "new")}
    if weights_module.SHARD < 5_000:  # no model for as long as files are moved, and never some files of each
        allowed = {1: ("old", "new", "has no model yet")}
    for published in allowed:
        call = 0
        while True:
            call += 1
            folder = tmp_path / f"{published}-{call}"
            run_folder.new_run(folder)
            write_run(folder, run)
            if published:
                run_folder.publish(folder, first)
            with monkeypatch.context() as patch, contextlib.suppress(Killed):
                seen = kill_at(patch, call)
                run_folder.publish(folder, second)
            if len(seen) < call:
                break
            assert read(folder, weights) in allowed[published]
            run_folder.sweep(folder)
            run_folder.publish(folder, second)
            assert read(folder, weights) == "new"
            assert files(folder).keys() == files(tmp_path / f"{published}-1").keys(), "something half-written is left"
        assert call > 15, "is everything still published through run_folder.py?"


@pytest.mark.parametrize("name", CALLS)
def test_a_disk_that_fails_while_publishing_leaves_a_whole_model(tmp_path, monkeypatch, saved, name):
    run, weights, (first, second) = saved
    run_folder.new_run(tmp_path)
    write_run(tmp_path, run)
    run_folder.publish(tmp_path, first)
    names, real = files(tmp_path).keys(), getattr(os, name)
    for call in range(1, 30):
        seen = []

        def failing(*args, call=call, seen=seen, **kwargs):
            seen.append(1)
            if len(seen) == call:
                raise OSError(28, "No space left on device")
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, failing)
        with contextlib.suppress(WorkFailed):
            run_folder.publish(tmp_path, second if call % 2 else first)
        monkeypatch.setattr(os, name, real)
        sharded = weights_module.SHARD < 5_000
        assert files(tmp_path).keys() - {run_folder.INDEX} == names - {run_folder.INDEX}
        assert read(tmp_path, weights) in ("old", "new", *["has no model yet"] * sharded)
        if len(seen) < call:
            return
    raise AssertionError("it never came through")


def test_claim_refuses_a_name_taken_by_a_dangling_link(tmp_path):
    (tmp_path / "scores.jsonl").symlink_to(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="regard did not write this file"):
        run_folder.claim(tmp_path, ["scores.jsonl"])
