"""Tasks: one object each, listed in `registry`; `assembly` turns any Run into a trained model folder.

Names are imported on first use: the registry needs no torch, training does.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.tasks.assembly import assemble, cost, extend_run, train_run
    from regard.tasks.plan import config_for, default_run, finetune_run, resolve_config
    from regard.tasks.registry import TASKS, get

__all__ = [
    "TASKS",
    "assemble",
    "config_for",
    "cost",
    "default_run",
    "extend_run",
    "finetune_run",
    "get",
    "resolve_config",
    "train_run",
]
_HOME = dict.fromkeys(("assemble", "cost", "extend_run", "train_run"), "assembly")
_HOME |= dict.fromkeys(("config_for", "default_run", "finetune_run", "resolve_config"), "plan")
_HOME |= dict.fromkeys(("TASKS", "get"), "registry")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'regard.tasks' has no attribute {name!r}")
    return getattr(importlib.import_module(f"regard.tasks.{_HOME[name]}"), name)
