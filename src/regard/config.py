"""Dataclass ↔ dict, dotted overrides, and the nearest name when one is mistyped."""

import dataclasses
import difflib
import math
import os
import types
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from regard.errors import CheckpointError, ConfigError

T = TypeVar("T")
ADAPTER = "adapter_model.safetensors"  # of a model folder that holds a LoRA adapter only
MAX_SEED = 2**32 - 1  # the largest that every RNG we use accepts


def unknown(what: str, key: str, names: Iterable[str]) -> ConfigError:
    """The error for an unknown name, with the nearest one that exists."""
    names = list(names)
    near = difflib.get_close_matches(key.lower(), names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names)}"
    return ConfigError(f"no {what} {key!r}; {hint}")


def model_file(folder: Path) -> Path:
    """The file that marks a complete model: model.safetensors, the index of its shards, or a LoRA adapter."""
    whole = folder / "model.safetensors"
    others = [folder / f"{whole.name}.index.json", folder / ADAPTER]
    return next((path for path in (whole, *others) if path.is_file()), whole)


def no_run(folder: Path) -> CheckpointError:
    """The error for a folder without a model; it names the runs inside, or the nearest run that exists."""
    if (folder / "run.json").is_file():
        return CheckpointError(f"{folder} has no model yet", f"continue it: regard train --resume {folder}")
    inside = sorted(str(p.parent) for p in folder.glob("*/config.json"))
    if inside:
        return CheckpointError(f"{folder} is not one run", f"name one of: {', '.join(inside)}")
    runs = {p.parent.name.lower(): str(p.parent) for p in sorted(Path("runs").glob("*/config.json"))}
    near = difflib.get_close_matches(folder.name.lower(), runs, n=1)
    hint = f"did you mean {runs[near[0]]}?" if near else f"there are: {', '.join(runs.values())}"
    hint = hint if runs else "train one: regard train translate --data tatoeba-en-fr --name demo"
    hint += "" if near else "; models by name: regard model list, or hf:OWNER/NAME"
    what = ", which has no config.json" if folder.is_dir() else ""
    return CheckpointError(f"no run or model folder '{folder}'{what}", hint)


def inside(folder: Path, name: str, source: Path) -> Path:
    """`folder / name`, for a name read from the file `source`; `CheckpointError` if it leads out of the folder."""
    path = folder / name
    try:
        stays = not Path(name).is_absolute() and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
    except (OSError, RuntimeError, ValueError):  # a loop of links, a name no file can have
        stays = False
    if not stays:
        raise CheckpointError(f"{source}: the path {name!r} leads out of {folder}; it must stay inside that folder")
    return path


def at_least(config: Any, group: str = "", **least: float) -> None:
    """Raise `ConfigError` for the first field that is infinite, NaN or below its minimum."""
    for name, low in least.items():
        if not low <= getattr(config, name) < math.inf:
            raise ConfigError(f"{group}{name} is {getattr(config, name)}; must be at least {low}")


def fraction(config: Any, name: str, group: str = "") -> None:
    """Raise `ConfigError` unless the field is in [0, 1)."""
    if not 0 <= getattr(config, name) < 1:
        raise ConfigError(f"{group}{name} is {getattr(config, name)}; must be in [0, 1)")


def check_types(config: Any) -> None:
    """Raise `ConfigError` for the first field, as read from a file, that does not have its annotated type."""
    for name, hint in typing.get_type_hints(type(config)).items():
        several = typing.get_origin(hint) is tuple
        value, hint = getattr(config, name), typing.get_args(hint)[0] if several else hint
        expected = (int, float) if hint is float else hint
        for one in value if several else [value]:
            if not isinstance(one, expected) or (isinstance(one, bool) and hint is not bool):
                raise ConfigError(f"{name} is {one!r:.80}; expected {hint.__name__}")
            if isinstance(one, int) and one >= 1 << 63:
                raise ConfigError(f"{name} is {one!r:.80}; too large for a 64-bit integer")


def to_dict(config: Any) -> dict[str, Any]:
    """A config as plain values, ready for JSON."""
    return dataclasses.asdict(config)


def from_dict(cls: type[T], values: dict[str, Any], path: str = "") -> T:
    """Build `cls` from plain values; nested dataclasses are built from nested dicts."""
    hints = typing.get_type_hints(cls)
    names = [f.name for f in dataclasses.fields(typing.cast(Any, cls))]
    kwargs = {}
    for key, value in values.items():
        if key not in names:
            raise unknown("setting", path + key, [path + n for n in names])
        kwargs[key] = _convert(hints[key], value, path + key)
    try:
        return cls(**kwargs)
    except TypeError as e:
        raise ConfigError(f"{path or cls.__name__}: {e}") from None


def override(config: T, settings: Iterable[str]) -> T:
    """`config` with each `dotted.name=value` of `settings` applied: the command line's `--set`."""
    read = []
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set takes name=value, got {setting!r}")
        read.append((name.strip().split("."), value.strip()))
    return _replace(config, read, "") if read else config


def _replace(config: Any, settings: list[tuple[list[str], str]], path: str) -> Any:
    """Apply all settings of a group at once, because its fields are validated together."""
    fields = {f.name: f for f in dataclasses.fields(config)}
    changes: dict[str, Any] = {}
    deeper: dict[str, list[tuple[list[str], str]]] = {}
    for (head, *rest), value in settings:
        if head not in fields:
            groups = [n for n in fields if hasattr(getattr(config, n), head)] if not path else []
            raise unknown("setting", path + head, [f"{n}.{head}" for n in groups] or [path + n for n in fields])
        old = getattr(config, head)
        if rest:
            if not dataclasses.is_dataclass(old):
                raise ConfigError(f"{path}{head} is a value, not a group of settings")
            deeper.setdefault(head, []).append((rest, value))
        elif dataclasses.is_dataclass(old):
            inside = ", ".join(f.name for f in dataclasses.fields(old))
            raise ConfigError(f"{path}{head} is a group of settings; set one of its fields: {inside}")
        else:
            changes[head] = _convert(typing.get_type_hints(type(config))[head], value, path + head)
    for head, inner in deeper.items():
        changes[head] = _replace(getattr(config, head), inner, f"{path}{head}.")
    return dataclasses.replace(config, **changes)


def _convert(hint: Any, value: Any, name: str) -> Any:
    """`value` as the annotated type: text from the command line is parsed, JSON values are checked."""
    if dataclasses.is_dataclass(hint):
        cls = typing.cast(type, hint)
        return value if isinstance(value, cls) else from_dict(cls, value, f"{name}.")
    if hint is Any or isinstance(hint, types.UnionType):  # `int | None`, and configs that are built already
        return value
    if typing.get_origin(hint) is tuple:
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(_convert(typing.get_args(hint)[0], p, name) for p in parts if p != "")
    try:
        if hint is bool and isinstance(value, str):
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[value.lower()]
        if hint is int and isinstance(value, float) and value != int(value):
            raise ValueError
        if hint is int and isinstance(value, str):
            return int(value.replace("_", ""))
        return hint(value)
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{name} takes {hint.__name__}, got {value!r}") from None
