"""Answers as text and bytes: an Arrow table goes in; CSV, JSON values or an Arrow stream come out."""

from __future__ import annotations

import csv
import io
import json
import math
from base64 import b64encode
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.ipc

ARROW: Final = "application/vnd.apache.arrow.stream"
CSV: Final = "text/csv"
_EXACT: Final = 2**53
"""Whole numbers up to here are the same in JSON everywhere."""


def as_arrow(table: pa.Table, told: dict[str, str]) -> bytes:
    """Return rows as an Arrow stream whose schema says what they were read from."""
    known = {name.encode(): value.encode() for name, value in told.items()}
    shown = table.replace_schema_metadata({**(table.schema.metadata or {}), **known})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, shown.schema) as stream:
        stream.write_table(shown)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def as_csv(table: pa.Table) -> str:
    """Return rows as CSV with a line of names; null is an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.column_names)
    for row in as_rows(table):
        writer.writerow([cell(value) for value in row])
    return text.getvalue()


def as_rows(table: pa.Table) -> list[list[Any]]:
    """Return rows as JSON knows them, in the order of the columns: two of them may have one name."""
    columns = [[plain(value) for value in column.to_pylist()] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in range(table.num_rows)]


def cell(value: Any) -> str:
    """Return one value as text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def plain(value: Any) -> Any:
    """Return a value as JSON knows it: what JSON lacks is text, a decimal without a fraction a number where that is exact."""
    match value:
        case None | bool() | str() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            whole = value.is_finite() and value.as_tuple().exponent == 0 and abs(value) <= _EXACT
            return int(value) if whole else str(value)
        case bytes():
            return b64encode(value).decode()
        case dict():
            return {str(name): plain(one) for name, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
        case _:
            return str(value)
