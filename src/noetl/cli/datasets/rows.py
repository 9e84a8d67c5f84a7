"""Rows of a dataset for a terminal: an Arrow table goes in, a table, CSV or plain objects come out."""

from __future__ import annotations

import csv
import io
import json
import math
from base64 import b64encode
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def as_objects(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows as JSON knows them."""
    return [{name: plain(value) for name, value in row.items()} for row in rows.to_pylist()]


def as_csv(rows: pa.Table) -> str:
    """Return rows as CSV with a line of names; null is an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows.column_names)
    writer.writerows([cell(value) for value in row.values()] for row in rows.to_pylist())
    return text.getvalue()


def as_table(rows: pa.Table) -> str:
    """Return rows under their column names."""
    from noetl.cli.terminal.tables import rendered

    if not rows.column_names:
        return ""
    cells = [["null" if value is None else cell(value) for value in row.values()] for row in rows.to_pylist()]
    return rendered(rows.column_names, cells)


def cell(value: Any) -> str:
    """Return one value as text."""
    known = plain(value)
    if known is None:
        return ""
    return known if isinstance(known, str) else json.dumps(known, ensure_ascii=False)


def plain(value: Any) -> Any:
    """Return a value as JSON knows it: numbers that JSON lacks, times and bytes as text."""
    match value:
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return b64encode(value).decode()
        case dict():
            return {str(name): plain(one) for name, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
        case None | str() | int():
            return value
        case _:
            return str(value)
