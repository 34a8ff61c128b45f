"""Checks of every model's config, when it is constructed."""

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from regard.config import at_least, fraction, unknown
from regard.errors import ConfigError


def check_model(
    config: Any,
    least: Mapping[str, int] | None = None,
    full: Collection[str] = (),
    split: str = "width",
    **choices: Collection[str],
) -> None:
    """Raise `ConfigError` for the first field with which no model can be built.

    Integers are at least 1, or their `least`; dropout is in [0, 1); eps is positive; heads divide the field `split`
    evenly ("": no check); tuples named in `full` are not empty; names are among their `choices`.
    """
    names = {field.name: field.type for field in fields(config)}
    at_least(config, "model.", **{name: 1 for name, kind in names.items() if kind is int} | dict(least or {}))
    for name in names:
        if name.endswith("dropout"):
            fraction(config, name, "model.")
    if not getattr(config, "eps", 1) > 0:
        raise ConfigError(f"model.eps is {config.eps}; must be greater than 0")
    if split and "heads" in names and (width := getattr(config, split)) % config.heads:
        near = max(width // config.heads, 1) * config.heads
        raise ConfigError(f"{split} {width} is not divisible by {config.heads} heads; try {split} {near}")
    for name in full:
        if not getattr(config, name):
            raise ConfigError(f"model.{name} is empty; expected at least one")
    for name, table in choices.items():
        if getattr(config, name) not in table:
            raise unknown(name, getattr(config, name), table)


def check_pixels(config: Any) -> None:
    """One mean and one std for all channels, or one for each."""
    for name in ("mean", "std"):
        if len(getattr(config, name)) not in (1, config.channels):
            raise ConfigError(f"model.{name} has {len(getattr(config, name))} numbers for {config.channels} channels")
