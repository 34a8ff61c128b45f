"""Inside a model while it reads one text: tokens, embeddings, every head, states, and the answer.

Only numbers, all from the forward pass itself; others draw them. Modules are imported on first use: `inside.look.look`.
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return import_module(f"regard.inside.{name}")
