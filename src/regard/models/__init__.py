"""One file per paper. Names are imported on first use, so that `models.sizes` needs no torch."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.models.registry import *  # noqa: F403
    from regard.models.sizes import SIZES as SIZES


def __getattr__(name: str) -> Any:
    if name == "config_for":  # recipes written for version 0.1 import it from here
        return importlib.import_module("regard.tasks").config_for
    if name.startswith("_"):
        raise AttributeError(name)
    module = importlib.import_module(f"regard.models.{'sizes' if name == 'SIZES' else 'registry'}")
    return getattr(module, name)
