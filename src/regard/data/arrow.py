"""pyarrow, imported when it is first used: commands that read no table start without it."""

from importlib import import_module
from typing import Any


class OnUse:
    """A module that is imported when one of its names is used."""

    def __init__(self, module: str):
        self.module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.module), name)


pa: Any = OnUse("pyarrow")
pc: Any = OnUse("pyarrow.compute")
parquet: Any = OnUse("pyarrow.parquet")
