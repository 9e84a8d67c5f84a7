"""Turns Snowflake's values into plain JSON values: zoned moments in UTC, semi-structured columns as what they hold."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from typing import Any, Final

from noetl.execute.plain import plain
from noetl.execute.tools.json_text import read_json

_SEMI_STRUCTURED: Final = frozenset({"VARIANT", "OBJECT", "ARRAY", "MAP"})
_TYPES: Final = (
    "FIXED", "REAL", "TEXT", "DATE", "TIMESTAMP", "VARIANT", "TIMESTAMP_LTZ", "TIMESTAMP_TZ", "TIMESTAMP_NTZ",
    "OBJECT", "ARRAY", "BINARY", "TIME", "BOOLEAN", "GEOGRAPHY", "GEOMETRY", "VECTOR", "MAP", "FILE",
)  # fmt: skip
"""The connector's types by their codes."""


def names_of(description: Sequence[Any] | None) -> list[str]:
    """Return the names of a result's columns."""
    return [str(column[0]) for column in description or ()]


def rows_of(
    description: Sequence[Any] | None, found: Sequence[Any], *, json_as_text: bool = False
) -> list[dict[str, Any]]:
    """Return the rows of a result with plain values."""
    names = names_of(description)
    nested = [not json_as_text and type_of(column) in _SEMI_STRUCTURED for column in description or ()]
    return [
        {name: plain_value(value, nested=inner) for name, value, inner in zip(names, row, nested, strict=True)}
        for row in found
    ]


def type_of(column: Any) -> str:
    """Return the name of a column's type."""
    code = column[1]
    return _TYPES[code] if isinstance(code, int) and 0 <= code < len(_TYPES) else str(code)


def plain_value(value: Any, *, nested: bool) -> Any:
    """Return one value in plain JSON types; `nested` says that its text is JSON."""
    if isinstance(value, str):
        return _inner(value) if nested else value
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return plain(value.astimezone(dt.UTC))
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return plain(bytes(value) if isinstance(value, bytearray) else value)


def _inner(text: str) -> Any:
    try:
        return read_json(text.encode())
    except ValueError:
        # Arrays may hold `undefined`, which JSON does not have.
        return text
