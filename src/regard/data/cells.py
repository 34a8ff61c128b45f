"""One cell of a table: what is missing, what is a number, what is a date. Every task means the same by them."""

import math
from datetime import UTC, datetime
from typing import Any

MISSING = ("", "na", "n/a", "nan", "null", "none", "-", "?")
DATES = ("%m/%d/%Y", "%m/%d/%y", "%d.%m.%Y", "%Y%m%d", "%m/%d/%Y %H:%M", "%d.%m.%Y %H:%M")
DAY = 86_400.0
LARGEST = 1e18  # of a number that is of use: the square of a much larger one is infinite in 32 bits


def is_missing(cell: str) -> bool:
    return cell.strip().lower() in MISSING


def to_number(cell: str) -> float:
    """NaN where it is missing; `ValueError` where it is not a number."""
    return math.nan if is_missing(cell) else float(cell)


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def to_days(cell: str) -> float | None:
    """Days since 1970 of a date in one of the usual forms, None if it is not one; without a zone it is taken as UTC."""
    cell = cell.strip()
    if not any(map(str.isdigit, cell)):
        return None
    attempts = [lambda: datetime.fromisoformat(cell.replace("/", "-"))]
    attempts += [lambda form=form: datetime.strptime(cell, form) for form in DATES]
    for attempt in attempts:
        try:
            date = attempt()
            return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() / DAY
        except (ValueError, OverflowError):
            continue
    return None


def is_date(cell: str) -> bool:
    return not is_number(cell) and to_days(cell) is not None


def usable(number: Any) -> Any:
    """Whether a number is finite, and stays so when it is squared; of an array, which are."""
    return abs(number) <= LARGEST
