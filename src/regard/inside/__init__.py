"""Inside a model while it reads one text: tokens, embeddings, every head, states, and the answer.

Numbers only, all of the forward pass itself; drawing them is left to others. Modules are imported when first used:
`inside.look.look`.
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return import_module(f"regard.inside.{name}")
