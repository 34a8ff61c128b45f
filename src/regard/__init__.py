"""A Transformer toolkit you can read: train on your own data, use the model, score it, look inside.

    import regard
    trained = regard.train("classify", data=df, text="review", label="sentiment", start="minilm", minutes=2)
    model = regard.load(trained.best["folder"])
    model("A stirring, funny film.").label

Names are imported on first use, so `import regard` does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.api import compare, evaluate, finetune, look, resume, train
    from regard.tasks import train_run
    from regard.tasks.load import load
    from regard.training.run import Run

__version__ = "0.1.0"
__all__ = ["Run", "compare", "evaluate", "finetune", "load", "look", "resume", "train", "train_run"]

_HOME = dict.fromkeys(("compare", "evaluate", "finetune", "look", "resume", "train"), "regard.api")
_HOME |= {"Run": "regard.training.run", "load": "regard.tasks.load", "train_run": "regard.tasks"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'regard' has no attribute {name!r}; there are: {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
