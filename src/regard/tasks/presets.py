"""The defaults of `regard train TASK`, from `presets.toml`, by task, device and model."""

import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from regard.training.settings import Optim, Schedule

Presets = dict[tuple[str, str], "Preset"]


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A good run on one device: the size and settings of the model, and the settings of the run."""

    size: str = "tiny"
    model: dict[str, Any] = field(default_factory=dict)  # settings of the model
    shape: dict[str, Any] = field(default_factory=dict)  # more of them, unless the user chooses a size
    vocab: int = 0  # vocabulary size, for text
    run: dict[str, Any] = field(default_factory=dict)  # settings of the run


@cache
def tables() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("presets.toml").read_text("utf-8"))


def presets_of(name: str) -> Presets:
    """By device and model; "" is any model."""
    return {
        (device, "" if model == "any" else model): preset(**values)
        for device, models in tables()[name].items()
        for model, values in models.items()
    }


def fine_tuning(task: str, start: Path, device: str, lora: int) -> dict[str, Any]:
    """The settings shared by all runs that fine-tune the model in the folder `start`."""
    precision = "fp32" if device == "cpu" else "bf16"
    return dict(task=task, start=str(start.absolute()), lora=lora, precision=precision, average=False, keep=1)


def preset(optim: dict[str, Any], schedule: dict[str, Any], run: dict[str, Any], **settings: Any) -> Preset:
    if "betas" in optim:
        optim = optim | {"betas": tuple(optim["betas"])}
    return Preset(run={"optim": Optim(**optim), "schedule": Schedule(**schedule), **run}, **settings)
