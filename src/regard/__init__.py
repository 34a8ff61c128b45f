"""A Transformer toolkit you can read: from your text to a model that translates it, or continues it.

    import regard
    regard.load("runs/demo").translate(["Where is the station?"], beam=5)

Names arrive when they are first used, so `import regard` does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.tasks import train_run
    from regard.tasks.load import load
    from regard.training.run import Run

__version__ = "0.1.0"
__all__ = ["Run", "load", "train_run"]

_HOME = {"Run": "regard.training.run", "load": "regard.tasks.load", "train_run": "regard.tasks"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'regard' has no attribute {name!r}; there are: {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
