"""Turns PostgreSQL's values into plain JSON values and back into text; names the columns that JSON cannot type."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import unpack, unpack_from
from typing import Any, Final

import asyncpg

from noetl.engine.tools.json_text import write_json
from noetl.engine.tools.plain import plain

_PLAIN = frozenset({str, bool, type(None)})
_MARKS = frozenset(',()[]"\\')
"""What an edge of a range says only in quotes."""


def rows_of(records: Iterable[asyncpg.Record]) -> list[dict[str, Any]]:
    """Return records as mappings of plain values."""
    return [
        {name: value if type(value) in _PLAIN else plain_value(value) for name, value in record.items()}
        for record in records
    ]


def plain_value(value: Any) -> Any:
    """Return one value in plain JSON types; what no rule knows becomes text."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    turn = _TURNS.get(kind)
    if turn is not None:
        return turn(value)
    try:
        return plain(value)
    except ValueError:
        return str(value)


def base64_text(value: bytes) -> str:
    """Return the bytes of a `bytea` as text."""
    return b64encode(value).decode()


def log_place(value: bytes) -> str:
    """Return a place in the server's log as the server writes it."""
    number = int.from_bytes(value, "big")
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


def row_place(value: bytes) -> str:
    """Return the place of a row in its table as the server writes it."""
    block, number = unpack(">IH", value)
    return f"({block},{number})"


def snapshot(value: bytes) -> str:
    """Return which transactions are seen as the server writes it."""
    count, first, last = unpack_from(">iqq", value)
    return f"{first}:{last}:{','.join(map(str, unpack_from(f'>{count}q', value, 20)))}"


def _letter(value: bytes) -> str:
    """Return what the server writes for its type of one byte: nothing for zero, and an escape for what is no ASCII."""
    (byte,) = value
    return "" if byte == 0 else chr(byte) if byte < 128 else f"\\{byte:03o}"


def _float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _record(value: asyncpg.Record) -> Any:
    names = list(value.keys())
    # An anonymous row has no names, only places.
    if all(name is None or name == "" or name == "?column?" for name in names):
        return [plain_value(item) for item in value.values()]
    return {name: plain_value(item) for name, item in value.items()}


def _range(value: asyncpg.Range[Any]) -> str:
    if value.isempty:
        return "empty"
    lower, upper = ("" if edge is None else _quoted_edge(plain_value(edge)) for edge in (value.lower, value.upper))
    return f"{'[' if value.lower_inc else '('}{lower},{upper}{']' if value.upper_inc else ')'}"


def _quoted_edge(edge: Any) -> str:
    text = str(edge)
    if text and not any(mark in _MARKS or mark.isspace() for mark in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '""') + '"'


def _sequence(value: Sequence[Any]) -> Any:
    return [plain_value(item) for item in value]


def _points(value: Iterable[Any]) -> str:
    return "(" + ",".join(plain_value(point) for point in value) + ")"


def _path(value: asyncpg.Path) -> str:
    text = ",".join(plain_value(point) for point in value.points)
    return f"({text})" if value.is_closed else f"[{text}]"


_TURNS: dict[type, Callable[[Any], Any]] = {
    float: _float,
    # Not `bytea`, which the connections give as text, but the catalogs' type of one byte, such as pg_class.relkind.
    bytes: _letter,
    list: _sequence,
    tuple: _sequence,
    # Only JSON columns give mappings, and their content is plain already.
    dict: lambda value: value,
    asyncpg.Record: _record,
    asyncpg.Range: _range,
    asyncpg.BitString: asyncpg.BitString.as_string,
    asyncpg.Point: lambda value: f"({value.x!r},{value.y!r})",
    asyncpg.Box: lambda value: f"{plain_value(value.high)},{plain_value(value.low)}",
    asyncpg.Line: lambda value: f"{{{value.A!r},{value.B!r},{value.C!r}}}",
    asyncpg.LineSegment: lambda value: f"[{plain_value(value.p1)},{plain_value(value.p2)}]",
    asyncpg.Polygon: lambda value: _points(value.points),
    asyncpg.Path: _path,
    asyncpg.Circle: lambda value: f"<({value.center[0]!r},{value.center[1]!r}),{value.radius!r}>",
}


def text_of(value: Any, *, array: bool = False) -> str | None:
    """Return the text a PostgreSQL type reads a plain value from; lists are array literals or, by default, JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple) and array:
        return "{" + ",".join(_element(item) for item in value) + "}"
    if isinstance(value, dict | list | tuple):
        return write_json(value).decode()
    return str(value)


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    text = text_of(value, array=isinstance(value, list | tuple))
    if isinstance(value, list | tuple):
        return text or "{}"
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


_TOLD: Final = {
    "numeric": "decimal",
    "float4": "float",
    "float8": "double",
    "int8": "bigint",
    "bytea": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}
"""Numbers of digits are not told: a reader finds them in the values."""


def types_of(attributes: Iterable[Any]) -> dict[str, str]:
    """Return the types by column; texts, flags, small integers, JSON and what datasets keep as text have none."""
    found = {attribute.name: _told(attribute.type) for attribute in attributes}
    return {name: told for name, told in found.items() if told is not None}


def needed(types: dict[str, str], rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return those that the values of these rows do not tell: an integer says that it is one unless it is too large."""
    if "bigint" not in types.values():
        return types
    return {
        name: told
        for name, told in types.items()
        if told != "bigint" or not all(type(row.get(name)) is int for row in rows)
    }


def _told(kind: Any) -> str | None:
    if kind.schema != "pg_catalog":
        return None
    name = _TOLD.get(kind.name.removesuffix("[]"))
    return f"array<{name}>" if name is not None and kind.kind == "array" else name
