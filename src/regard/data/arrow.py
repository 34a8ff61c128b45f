"""pyarrow, imported on first use so that commands without tables start faster; and helpers for its columns."""

import json
import math
from importlib import import_module
from typing import Any

import numpy as np

from regard.data.cells import MISSING


class OnUse:
    """A module that is imported on first use of one of its names."""

    def __init__(self, module: str):
        self.module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.module), name)


pa: Any = OnUse("pyarrow")
pc: Any = OnUse("pyarrow.compute")
parquet: Any = OnUse("pyarrow.parquet")


def is_text(type: Any) -> bool:
    return pa.types.is_string(type) or pa.types.is_large_string(type)


def is_time(type: Any) -> bool:
    return pa.types.is_timestamp(type) or pa.types.is_date(type)


def present(column: Any) -> Any:
    """Text stripped of white space, null where missing; other columns unchanged."""
    if not is_text(column.type):
        return column
    column = pc.utf8_trim_whitespace(column)
    missing = pc.is_in(pc.utf8_lower(column), value_set=pa.array(MISSING, column.type))
    return pc.if_else(missing, pa.scalar(None, column.type), column)


def float64(column: Any) -> np.ndarray:
    return column.fill_null(math.nan).to_numpy()


def as_text(column: Any) -> Any:
    """The column as text; NaN becomes null, lists and structs JSON."""
    if is_text(column.type):
        return column
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    try:
        return column.cast(pa.large_string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # lists, structs and bytes
        return pa.array([None if x is None else json.dumps(x, default=str) for x in column.to_pylist()], pa.string())
