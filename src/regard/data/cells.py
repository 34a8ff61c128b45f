"""One cell of a table: what counts as missing, a number or a date, for every task."""

import math
import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

MISSING = ("", "na", "n/a", "nan", "null", "none", "-", "?")
DATES = ("%m/%d/%Y", "%m/%d/%y", "%d.%m.%Y", "%Y%m%d", "%m/%d/%Y %H:%M", "%d.%m.%Y %H:%M")
DAY = 86_400.0
CODES = "USD EUR GBP CHF JPY CNY INR AUD CAD NZD SEK NOK DKK PLN CZK HUF BRL MXN ZAR kr zł Kč"
# of countries that write € 210.000 for thousands; $3.459 is the price of a gallon
DOTTED = {"€", "₽", "₺", "₫", "EUR", "SEK", "NOK", "DKK", "PLN", "CZK", "HUF", "BRL", "kr", "zł", "Kč"}
CURRENCY = rf"[$€£¥₹₩₽₺₫₪฿]|{CODES.replace(' ', '|')}"
WRITTEN = re.compile(rf"([+−-]?)\s*(?:({CURRENCY})\s*)?([+−-]?)([\d.,'’\s]*\d)\s*({CURRENCY}|%|‰)?")
DIGITS = {  # by decimal mark, with or without thousands separators
    ".": re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?|\d{1,3}([\s'’]\d{3})+(\.\d+)?|\d*(\.\d+)?"),
    ",": re.compile(r"\d{1,3}(\.\d{3})+(,\d+)?|\d{1,3}([\s'’]\d{3})+(,\d+)?|\d*(,\d+)?"),
}
LARGEST = 1e18  # usable number: the square of a much larger one is infinite in 32 bits


def is_missing(cell: str) -> bool:
    return cell.strip().lower() in MISSING


def to_number(cell: str, mark: str = ".") -> float:
    """NaN if missing; `ValueError` if it is not a number, with this decimal mark, in a common notation."""
    if is_missing(cell):
        return math.nan
    if mark == "." and is_number(cell):
        return float(cell)
    written = WRITTEN.fullmatch(cell.strip())
    if written is None or not DIGITS[mark].fullmatch(written[4]):
        raise ValueError(f"{cell!r} is not a number")
    number = float(re.sub(rf"[^\d{mark}]", "", written[4]).replace(mark, "."))
    return number if (written[1] + written[3]) in ("", "+") else -number


def decimal_mark(cells: Iterable[str], words: float = 0.0) -> str | None:
    """The decimal mark of a column of numbers: 12.5, 12,5 %, €1,200 or 1.200,50; None if more than the share `words`
    of the cells are not numbers, or their units differ."""
    counts = Counter(cells)
    if all(map(is_number, counts)):
        return "."
    if len(_units(counts)) > 1:
        return None
    faults = {mark: sum(n for c, n in counts.items() if not _is_written(c, mark)) for mark in DIGITS}
    dotted = bool(_units(counts) & DOTTED)
    mark = min(faults, key=lambda mark: (faults[mark], dotted and _thousandths(counts, mark)))
    return mark if faults[mark] <= words * counts.total() else None


def notation(cells: Iterable[str], mark: str) -> str:
    """A description of how a column's numbers are written; "" if plain."""
    formatted = [cell.strip() for cell in set(cells) if not is_missing(cell) and not is_number(cell)]
    units = [{"%": "percentages", "‰": "per mille"}.get(unit, f"amounts in {unit}") for unit in _units(formatted)]
    digits = [written[4].strip() for cell in formatted if (written := WRITTEN.fullmatch(cell))]
    grouped = any(re.search(rf"[^\d{mark}]", x) for x in digits)
    commas = mark == "," and any("," in x for x in digits)
    return ", ".join([*units, *["thousands separators"] * grouped, *["decimal commas"] * commas])


def _units(cells: Iterable[str]) -> set[str]:
    matches = (WRITTEN.fullmatch(cell.strip()) for cell in cells)
    return {unit for match in matches if match for unit in (match[2], match[5]) if unit}


def _thousandths(cells: Iterable[str], mark: str) -> bool:
    """Whether numbers have three decimals with this mark, which in many currencies are thousands."""
    return any(re.search(rf"[1-9]\d*[{mark}]\d{{3}}(?!\d)", cell) for cell in cells)


def _is_written(cell: str, mark: str) -> bool:
    try:
        to_number(cell, mark)
    except ValueError:
        return False
    return True


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def to_days(cell: str) -> float | None:
    """Days since 1970 of a date in a common format, None if it is not one; without a time zone, UTC is assumed."""
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
    """Whether a number, or each of an array, is finite and stays so when squared."""
    return abs(number) <= LARGEST
