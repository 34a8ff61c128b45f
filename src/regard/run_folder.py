"""The folder of a run, and which of its files are regard's.

It is also the model folder: `state.safetensors` holds all that a resume needs, `checkpoints/` the weights of the best
evaluations, and the rest is the best model so far, in the layout other tools read. A manifest lists every file before
it is written. Whatever it does not list belongs to the user, and is neither replaced nor removed: clean-up never goes
by pattern.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from regard.checkpoint import UNFINISHED, locked, move, sync, write_atomic, write_failed
from regard.config import ADAPTER, inside
from regard.errors import CheckpointError, ConfigError, reason
from regard.jsonfile import parse

MANIFEST = ".regard-manifest.json"
MANIFEST_VERSION = 1
DRAFT = ".draft"  # a model being written
WEIGHTS = "model.safetensors"  # published last: without it there is no model yet
INDEX = f"{WEIGHTS}.index.json"  # the same for a model in shards
WEIGHT_FILE = re.compile(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?")
OF_A_RUN = ("run.json", "state.safetensors", "metrics.jsonl", "scores.jsonl", DRAFT)
OF_SEVERAL = ("plan.json", "curves.png", "search.json")
OF_A_MODEL = ("README.md", "adapter_config.json", ADAPTER, "chat_template.jinja", "columns.json", "config.json",
              "generation_config.json", WEIGHTS, INDEX, "preprocessor_config.json", "regard.json", "tokenizer.json",
              "tokenizer_config.json", "vocab.txt")  # fmt: skip
CHECKPOINTS = "checkpoints"
OLD_DRAFT = ".new"  # before there was a manifest


# -- the manifest -------------------------------------------------------------------------------------------------


def owned(folder: Path) -> list[str] | None:
    """The files that regard wrote, as paths relative to `folder`; None if it wrote nothing there."""
    path = folder / MANIFEST
    try:
        names = parse(path.read_bytes())["files"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TypeError("expected a list of names")
    except FileNotFoundError:
        return _before_manifests(folder)
    except (ValueError, KeyError, TypeError, OSError) as e:
        raise CheckpointError(
            f"{path}: cannot be read ({reason(e)}), so regard cannot tell which files are its own; "
            "if it is damaged, remove it"
        ) from None
    _stay_inside(folder, names)
    return names


def claim(folder: Path, names: Iterable[str]) -> None:
    """List `names` before they are written. `CheckpointError` if the user has a file of one of these names."""
    listed = owned(folder) or []
    new = [name for name in names if name not in listed]
    _stay_inside(folder, new)
    if theirs := [name for name in new if os.path.lexists(folder / name)]:
        raise CheckpointError(
            f"{folder / theirs[0]}: regard did not write this file, and does not replace it; move it elsewhere, then "
            f"type: regard train --resume {folder}"
        )
    if new or not (folder / MANIFEST).exists():
        _write(folder, [*listed, *new])


def _stay_inside(folder: Path, names: Iterable[str]) -> None:
    """`CheckpointError` if a link among the parents leads out of `folder`. A file itself may be a link: that is what
    is replaced or removed."""
    for parent in {str(PurePosixPath(name).parent) for name in names}:
        inside(folder, parent, folder / MANIFEST)


def claim_written(folder: Path, names: Iterable[str]) -> None:
    """List files that another library has named and created."""
    _write(folder, [*(owned(folder) or []), *names])


def release(folder: Path, names: Iterable[str]) -> None:
    """Remove those `names` that are regard's, and the folders this leaves empty."""
    before, gone = owned(folder) or [], set(names)
    chosen = [name for name in before if name in gone]
    try:
        for name in sorted(chosen, key=lambda name: name not in (WEIGHTS, INDEX, ADAPTER)):  # no model from here on
            _remove(folder / name)
            _remove(unfinished(folder / name))
        for parent in {(folder / name).parent for name in chosen} - {folder}:
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()
    except OSError as e:
        raise write_failed(folder, e) from e
    if chosen:
        _write(folder, [name for name in before if name not in gone])


def sweep(folder: Path) -> None:
    """Remove what a killed process left unfinished."""
    _remove(unfinished(folder / MANIFEST))
    for name in owned(folder) or []:
        _remove(folder / name if name in (DRAFT, OLD_DRAFT) else unfinished(folder / name))


def unfinished(path: Path) -> Path:
    """The name that `write_atomic` gives a file until it is complete."""
    return path.with_name(f".{path.name}{UNFINISHED}")


def _write(folder: Path, names: list[str]) -> None:
    manifest = {"format_version": MANIFEST_VERSION, "about": "the files that regard wrote here", "files": sorted(names)}
    write_atomic(folder / MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())


def _remove(path: Path) -> None:
    """Remove a file or a link; a folder only if it is a draft, which only regard fills."""
    if path.is_dir() and not path.is_symlink():
        if path.name in (DRAFT, OLD_DRAFT):
            shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _before_manifests(folder: Path) -> list[str] | None:
    """The files of a regard that kept no manifest, by the names it used; None if its settings are missing."""
    if _is_plan(folder / "plan.json"):
        return [name for name in OF_SEVERAL if (folder / name).is_file()]
    if not _is_run(folder / "run.json"):
        return None
    names = [*OF_A_RUN, OLD_DRAFT]
    if (folder / "regard.json").is_file():  # it has published a model
        names += OF_A_MODEL
    for place, pattern in (
        (CHECKPOINTS, rf"\.?(step-\d{{7,}}\.safetensors)({re.escape(UNFINISHED)})?"),
        ("tensorboard", r"(events\.out\.tfevents\..+)"),
    ):
        matches = (re.fullmatch(pattern, file) for file in _contents(folder / place))
        names += {f"{place}/{match[1]}" for match in matches if match}
    return sorted(name for name in names if any(map(os.path.lexists, (folder / name, unfinished(folder / name)))))


def _is_run(path: Path) -> bool:
    settings = _json(path)
    return isinstance(settings, dict) and {"format_version", "versions", "task", "model", "data"} <= settings.keys()


def _is_plan(path: Path) -> bool:
    plan = _json(path)
    ours = {"label", "folder", "run"}
    return isinstance(plan, list) and bool(plan) and all(isinstance(job, dict) and ours <= job.keys() for job in plan)


def _json(path: Path) -> Any:
    try:
        return parse(path.read_bytes())
    except (OSError, ValueError):
        return None


def _contents(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        raise ConfigError(f"{folder} is a file; a run needs a folder, choose another --name") from None
    except OSError as e:
        raise ConfigError(f"{folder}: cannot be read ({e.strerror}); choose another --name") from None


# -- a new run ----------------------------------------------------------------------------------------------------


def check_free(folder: str | Path, force: bool = False, names: Sequence[str] = OF_A_RUN) -> None:
    """Raise `ConfigError` unless a run that writes `names` may start in `folder`: it is empty or missing, or regard
    wrote it and `force` is set."""
    folder = Path(folder)
    contents, ours = _contents(folder), owned(folder)
    passing = {MANIFEST, unfinished(Path(MANIFEST)).name, *(unfinished(Path(name)).name for name in ours or [])}
    if not (there := [name for name in contents if name not in passing]):
        return
    if ours is None:
        raise ConfigError(
            f"{folder} is not empty, and regard did not write what is there: {_some(there)}; a new run needs a folder "
            "of its own, choose another --name"
        )
    if taken := [name for name in there if name not in ours and name in (*names, *OF_A_MODEL)]:
        raise ConfigError(
            f"{folder}: regard did not write {_some(taken)}, and a run there would; move it elsewhere, or choose "
            "another --name"
        )
    if force:
        return
    if any((folder / name).exists() for name in ours):
        raise ConfigError(
            f"{folder} already holds a run; continue it (regard train --resume {folder}), "
            "choose another --name, or replace it with --force"
        )
    raise ConfigError(f"{folder} is not empty: {_some(there)}; choose another --name, or leave them there with --force")


def new_run(folder: str | Path, force: bool = False, names: Sequence[str] = OF_A_RUN) -> None:
    """Prepare `folder` for a run that writes at least `names`; `force` removes the files of a run already there."""
    folder = Path(folder)
    check_free(folder, force, names)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise write_failed(folder, e) from e
    with locked(folder):  # held by a run in training
        check_free(folder, force, names)  # again: another process may have been faster
        if owned(folder) is not None:
            adopt(folder)  # if removal is interrupted, the rest is still listed as regard's
        sweep(folder)
        release(folder, owned(folder) or [])
        claim(folder, names)


def adopt(folder: str | Path) -> None:
    """Write the manifest of a run folder that has none: from an older regard, or one killed before it wrote any."""
    folder = Path(folder)
    names = owned(folder)
    if names is None:
        check_free(folder)
    if not (folder / MANIFEST).exists():
        _write(folder, names or [])


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# -- the model ----------------------------------------------------------------------------------------------------


def publish(folder: str | Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a draft, then move its files into the run's `folder`, each complete and the weights last.

    Only the weights differ from one publication of a run to the next, so whenever this is interrupted a reader finds
    no model, the old one or the new one. With shards, the index is removed first and written last: there is no model
    while old and new shards are mixed.
    """
    folder = Path(folder)
    draft = folder / DRAFT
    try:
        _remove(draft)
        draft.mkdir()
        write(draft)
        last = next((name for name in (INDEX, ADAPTER) if (draft / name).is_file()), WEIGHTS)
        files = sorted((p for p in draft.rglob("*") if p.is_file()), key=lambda p: (p == draft / last, p))
        names = [path.relative_to(draft).as_posix() for path in files]
        for path in files:
            sync(path)
        claim(folder, names)
        if last == INDEX:
            _remove(folder / INDEX)
        for path, name in zip(files, names, strict=True):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            move(path, folder / name)
        release(folder, [name for name in owned(folder) or [] if WEIGHT_FILE.fullmatch(name) and name not in names])
    except OSError as e:
        raise write_failed(folder, e) from e
    finally:
        _remove(draft)
