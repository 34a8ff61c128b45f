"""Excel files: the first sheet of a workbook as rows of text."""

import io
import zipfile
from datetime import date, datetime
from pathlib import Path
from typing import Any

from regard import limits
from regard.data.arrow import pa
from regard.data.folders import Say
from regard.errors import DataError, MissingExtra, reason

EXCEL = (".xlsx", ".xlsm")
GROWTH = 4  # memory of a sheet, as a multiple of its XML


def read_sheet(path: Path, data: bytes, say: Say) -> tuple[list[Any], list[int]]:
    """The first sheet: its columns as text, and the number of every non-blank row. A formula gives the value that Excel
    last computed."""
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise MissingExtra(f"{path} is an Excel file; reading it", "tables") from None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            limits.require(GROWTH * sum(member.file_size for member in archive.infolist()), f"reading {path}")
        book = load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # some programs write wrong ones
        every = [[_text(cell) for cell in row] for row in sheet.iter_rows(values_only=True)]
    except (zipfile.BadZipFile, KeyError, ValueError, IndexError, TypeError, OSError) as e:
        raise DataError(f"{path} cannot be read as Excel ({reason(e)}); save it again as .xlsx, or as CSV") from None
    rows = {number: cells for number, cells in enumerate(every, 1) if any(cell.strip() for cell in cells)}
    if not rows:
        raise DataError(f"{path}: its first sheet, {sheet.title!r}, is empty; expected rows of a table")
    if others := book.sheetnames[1:]:
        say(f"{path}: read the first sheet, {sheet.title!r}; to use {others[0]!r}, save it as a separate file")
    width = max(len(row) for row in rows.values())
    columns = ([row[i] if i < len(row) else "" for row in rows.values()] for i in range(width))
    return [pa.chunked_array([pa.array(column, pa.large_string())]) for column in columns], list(rows)


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, datetime) and not (cell.hour or cell.minute or cell.second or cell.microsecond):
        return cell.date().isoformat()
    if isinstance(cell, date):
        return cell.isoformat(*([" "] if isinstance(cell, datetime) else []))
    return repr(int(cell)) if isinstance(cell, float) and cell.is_integer() and abs(cell) < 1e15 else str(cell)
