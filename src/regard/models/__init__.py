"""One file a lecture. The names below are imported when they are first used, so that `models.sizes` needs no torch."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.models.registry import *  # noqa: F403
    from regard.models.sizes import SIZES as SIZES


def __getattr__(name: str) -> Any:
    if name == "config_for":  # where recipes written for version 0.1 look for it
        return importlib.import_module("regard.tasks").config_for
    if name.startswith("_"):
        raise AttributeError(name)
    module = importlib.import_module(f"regard.models.{'sizes' if name == 'SIZES' else 'registry'}")
    return getattr(module, name)
