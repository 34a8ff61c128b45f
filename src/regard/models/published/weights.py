"""model.safetensors or its shards: first the table of contents, which is cheap to read, then the tensors.

pytorch_model.bin is read only where there is nothing else, as tensors and plain containers: nothing in it is executed.
"""

import json
import math
import struct
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard.config import no_run
from regard.errors import CheckpointError
from regard.jsonfile import expect, parse, read_json, write_json

FILE = "model.safetensors"
INDEX = f"{FILE}.index.json"
BIN = "pytorch_model.bin"
SHARD = 5_000_000_000  # bytes of a file; more are written in shards
LONGEST = 100_000_000  # bytes of a table of contents, the format's own limit
READ = {torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2}
READ |= {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool}
Shapes = dict[str, tuple[int, ...]]


def weight_files(folder: Path) -> list[Path]:
    """The weights file, or the shards its index names; pytorch_model.bin only if there is nothing better."""
    for name in (FILE, BIN):
        path, index = folder / name, folder / f"{name}.index.json"
        if path.exists():
            return [path]
        if index.is_file():
            return shards_of(index)
    return [folder / FILE]


def shards_of(index: Path) -> list[Path]:
    try:
        shards = sorted(set(read_json(index)["weight_map"].values()))
        invalid = [name for name in shards if name in ("", "..") or "\0" in name or Path(name).name != name]
    except (KeyError, AttributeError, TypeError) as e:
        raise CheckpointError(f"{index} is not the index of a model ({type(e).__name__}: {e})") from None
    if invalid:  # a file next to the index may be a link, as in a download cache
        raise CheckpointError(f"{index}: {invalid[0]!r} is not a file next to it; fetch the folder again")
    return [index.parent / shard for shard in shards]


def write_weights(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Write model.safetensors, or shards of at most `SHARD` bytes and their index."""
    groups: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if size + tensor.nbytes > SHARD and groups[-1]:
            groups.append({})
            size = 0
        groups[-1][name] = tensor
        size += tensor.nbytes
    names = [f"model-{i:05}-of-{len(groups):05}.safetensors" for i in range(1, len(groups) + 1)]
    for name, group in zip(names if len(groups) > 1 else [FILE], groups, strict=True):
        save_file(group, folder / name, metadata={"format": "pt"})
    if len(groups) > 1:
        total = sum(tensor.nbytes for tensor in tensors.values())
        where = {tensor: name for name, group in zip(names, groups, strict=True) for tensor in group}
        index = {"metadata": {"total_size": total}, "weight_map": where}
        write_json(folder / INDEX, index)


def read_shapes(folder: Path) -> Shapes:
    """The shape of every tensor by name, as the files claim; not verified until they are read."""
    return {name: shape for path in weight_files(folder) for name, shape in file_shapes(path).items()}


def file_shapes(path: Path) -> Shapes:
    """The shapes in one file's header: eight bytes of length, then a table in JSON."""
    if not path.is_file():
        raise missing(path)
    if path.suffix == ".bin":
        return {name: tuple(tensor.shape) for name, tensor in read_bin(path).items()}
    try:
        with path.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            if size > min(LONGEST, path.stat().st_size):
                raise ValueError(f"a table of {size:,} bytes")
            table = expect(parse(file.read(size)), dict)
        return {name: shape_of(about) for name, about in table.items() if name != "__metadata__"}
    except (struct.error, ValueError, KeyError, TypeError, OSError) as e:
        raise unreadable(path, e) from None


def shape_of(about: Any) -> tuple[int, ...]:
    shape = tuple(about["shape"])
    if not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"a tensor of the shape {json.dumps(shape)[:80]}")
    return shape


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors in float32; none may hold NaN or infinity."""
    return {name: tensor for path in weight_files(folder) for name, tensor in read_file(path).items()}


def read_bin(path: Path) -> dict[str, Tensor]:
    """The tensors of PyTorch's own format, a pickle; anything else in it is refused."""
    if not path.is_file():
        raise missing(path)
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"PK"  # PyTorch before 1.6 wrote no zip; such a file cannot be memory-mapped
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
        return {name: tensor.detach() for name, tensor in state.items()}
    except Exception as e:  # the library may raise anything for a malformed file
        reason = (str(e).splitlines() or [""])[0][:200]
        raise CheckpointError(f"{path} holds more than weights, or is damaged ({type(e).__name__}: {reason})") from None


def read_file(path: Path) -> dict[str, Tensor]:
    return finite(path, read_bin(path) if path.suffix == ".bin" else read_safetensors(path))


def read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as f:
            return {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        raise missing(path) from None
    except (SafetensorError, OSError, AttributeError) as e:  # the last: a dtype that torch does not have
        raise unreadable(path, e) from None


def finite(path: Path, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in float32, none with NaN or infinity."""
    if other := next((name for name, t in state.items() if t.dtype not in READ), None):
        raise CheckpointError(f"{path}: {other} has the dtype {state[other].dtype}, which we do not read")
    state = {name: tensor.float() for name, tensor in state.items()}
    for name, tensor in state.items():
        if not math.isfinite(tensor.sum()) and not tensor.isfinite().all():  # the sum is fast, and overflows rarely
            raise CheckpointError(f"{path}: {name} holds NaN or infinity; use an earlier checkpoint of this model")
    return state


def unreadable(path: Path, e: Exception) -> CheckpointError:
    return CheckpointError(f"{path} cannot be read ({e}); it is cut short or not a safetensors file")


def missing(path: Path) -> CheckpointError:
    folder = path.parent
    if path.exists():
        return CheckpointError(f"{path} is not a file that can be read")
    if path.name != FILE:
        return CheckpointError(f"{folder} has no {path.name}, which its index names; fetch the folder again")
    if (folder / "run.json").is_file():
        return no_run(folder)
    return CheckpointError(f"{folder} has no model.safetensors; fetch or export the folder again")
