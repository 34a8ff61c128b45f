"""Crash-safe files: written under a temporary name, flushed to disk, then renamed into place."""

import errno
import fcntl
import json
import os
import secrets
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from regard.errors import CheckpointError, ConfigError, WorkFailed, reason
from regard.jsonfile import parse

FORMAT_VERSION = 1  # of state.safetensors, checkpoints/ and run.json; raise it when an older regard could not read them
UNFINISHED = ".tmp"  # the suffix of a file until it is complete


# -- files --------------------------------------------------------------------------------------------------------


def write_atomic(path: str | Path, data: bytes) -> None:
    """Replace the contents of `path` by `data`, durably; on any failure it holds what it held before."""
    path = Path(path)
    draft = path.with_name(f".{path.name}{UNFINISHED}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)  # what a killed process left; a link is not followed
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
            os.fsync(file)
        finally:
            os.close(file)
        move(draft, path)
    except OSError as e:
        raise write_failed(path, e) from e
    finally:
        draft.unlink(missing_ok=True)  # gone already if all went well


def write_new_folder(folder: str | Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a folder that appears under its name when complete. A folder that holds files is refused."""
    folder = Path(folder)
    place = Path(os.path.realpath(folder))  # a link to an empty folder stays one; a loop of links is an OSError below
    draft = place.with_name(f".{place.name}-{secrets.token_hex(4)}{UNFINISHED}")
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"{folder} already exists and is not empty; choose another folder, or remove it first")
        draft.mkdir(parents=True)
        write(draft)
        for path in sorted(draft.rglob("*")):
            sync(path)
        move(draft, place)
    except OSError as e:
        raise write_failed(folder, e) from e
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # gone already if all went well


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Hold the lock on training in `folder`. It is released when the process ends, however it ends."""
    try:
        file = os.open(folder, os.O_RDONLY)
    except OSError as e:
        raise CheckpointError(f"{folder}: cannot be opened ({e.strerror}); runs live in runs/<name>") from None
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WorkFailed(f"{folder}: another process is training here; wait for it, or stop it first") from None
        yield
    finally:
        os.close(file)


def move(draft: Path, path: Path) -> None:
    os.replace(draft, path)
    sync(path.parent)  # the new name is durable only once the folder itself is on disk


def sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def write_failed(path: Path, error: OSError) -> WorkFailed:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return WorkFailed(f"{path}: no space left on the disk; what was there before is untouched; free some and go on")
    return WorkFailed(f"{path}: could not be written ({error.strerror or error}); what was there before is untouched")


# -- tensors ------------------------------------------------------------------------------------------------------


def save_state(path: str | Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Write tensors and metadata (anything JSON can hold) to one safetensors file."""
    host = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {
        "format_version": FORMAT_VERSION,
        "versions": versions(),
        "checksum": _checksum(host),
        "meta_checksum": _crc(meta),
        "meta": meta,
    }
    write_atomic(path, to_bytes(host, {"regard": json.dumps(header)}))


def load_state(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_state` wrote. Refuses a file that is damaged, not regard's, or from a newer regard."""
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get("regard")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        header = parse(text.encode()) if text else None
    except (SafetensorError, OSError, ValueError) as e:
        raise CheckpointError(
            f"{path}: damaged or not a safetensors file ({reason(e)}); restore an older copy"
        ) from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{path}: not written by regard; a model folder is loaded with regard.load(folder)")
    check_format(path, header)
    meta = header.get("meta")
    whole = header.get("checksum") == _checksum(tensors) and isinstance(meta, dict)
    if not whole or header.get("meta_checksum", _crc(meta)) != _crc(meta):  # older files have no second one
        raise CheckpointError(f"{path}: damaged, its checksum does not match its contents; restore an older copy")
    return tensors, meta


def tensor_names(path: Path) -> list[str]:
    """The names of the tensors in a file; [] if it cannot be read."""
    try:
        with safe_open(path, "pt") as file:
            return list(file.keys())
    except (SafetensorError, OSError):
        return []


def check_format(path: Path, header: dict[str, Any]) -> None:
    got = header.get("format_version")
    if not isinstance(got, int) or got > FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: written by a newer regard (format {got}, this one reads up to {FORMAT_VERSION}); "
            "type: pip install --upgrade regard"
        )


def versions() -> dict[str, str]:
    try:
        ours = version("regard")
    except PackageNotFoundError:  # run from a source tree
        ours = "source"
    return {"regard": ours, "torch": torch.__version__}


def _crc(meta: Any) -> int:
    return zlib.crc32(json.dumps(meta).encode())


def _checksum(tensors: dict[str, Tensor]) -> int:
    total = 0
    for name in sorted(tensors):
        total = zlib.crc32(name.encode(), total)
        total = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, total)
    return total


# -- models -------------------------------------------------------------------------------------------------------


def weights(model: nn.Module) -> dict[str, Tensor]:
    """The model's parameters and buffers by name, tied ones once. These are the live tensors.

    With LoRA, only those that are trained: the rest are the base model's.
    """
    seen: set[int] = set()
    tensors = {}
    trained_only = getattr(model, "saves_trained", False)
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen and (tensor.requires_grad or not trained_only):
            seen.add(id(tensor))
            tensors[name] = tensor.detach()
    return tensors


def load_weights(model: nn.Module, saved: dict[str, Tensor], path: str | Path) -> None:
    """Copy `saved` into the model; names and shapes must match. `path` is for the error message."""
    own = weights(model)
    if differing := sorted(own.keys() ^ saved.keys()):
        more = len(differing) - 1
        raise CheckpointError(f"{path}: a different model; it differs in {differing[0]!r} and {more} more")
    for name, tensor in own.items():
        if tensor.shape != saved[name].shape:
            got, expected = tuple(saved[name].shape), tuple(tensor.shape)
            raise CheckpointError(f"{path}: a different model; {name} has shape {got}, expected {expected}")
    with torch.no_grad():
        for name, tensor in own.items():
            fill(tensor, saved[name])


def fill(tensor: Any, whole: Tensor) -> None:
    """Copy `whole` into `tensor`; if that is sharded, only this process's rows."""
    if hasattr(tensor, "placements"):
        from torch.distributed.tensor import distribute_tensor

        how: Any = dict(src_data_rank=None)  # every process holds the whole tensor
        whole = distribute_tensor(whole.to(tensor.device), tensor.device_mesh, tensor.placements, **how)
    tensor.copy_(whole)


def average(paths: list[Path]) -> dict[str, Tensor]:
    """The mean of several saved models (Vaswani et al. 2017, section 6.1); integer tensors are those of the first."""
    first, _ = load_state(paths[0])
    total = {name: t.double() for name, t in first.items() if t.is_floating_point()}
    for path in paths[1:]:
        more, _ = load_state(path)
        for name in total:
            total[name] += more[name]
    return first | {name: (t / len(paths)).to(first[name].dtype) for name, t in total.items()}
