"""Turns what PostgreSQL gives into plain JSON values, and plain values into the text its types read. Nothing is dropped."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import asyncpg

from noetl.execute.plain import plain
from noetl.execute.tools.json_text import write_json

_PLAIN = frozenset({str, bool, type(None)})
_FIRST, _LAST = (
    dt.datetime.combine(day, time) for day, time in ((dt.date.min, dt.time.min), (dt.date.max, dt.time.max))
)


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


def interval(value: tuple[int, int, int]) -> str:
    """Return months, days and microseconds as an ISO 8601 duration, which PostgreSQL reads back unchanged."""
    months, days, micros = value
    years, months = _parts(months, 12)
    minutes, micros = _parts(micros, 60_000_000)
    hours, minutes = _parts(minutes, 60)
    sign = "-" if micros < 0 else ""
    whole, fraction = divmod(abs(micros), 1_000_000)
    seconds = f"{sign}{whole}" + (f".{fraction:06d}".rstrip("0") if fraction else "")
    day = "".join(f"{amount}{unit}" for amount, unit in ((years, "Y"), (months, "M"), (days, "D")) if amount)
    clock = "".join(f"{amount}{unit}" for amount, unit in ((hours, "H"), (minutes, "M")) if amount)
    clock += f"{seconds}S" if micros else ""
    return f"P{day}T{clock}" if clock else f"P{day}" if day else "PT0S"


def _parts(amount: int, size: int) -> tuple[int, int]:
    """Divide towards zero, so that both parts keep the sign."""
    whole = abs(amount) // size
    return (whole, amount - whole * size) if amount >= 0 else (-whole, amount + whole * size)


def _float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _moment(value: dt.datetime) -> str:
    # The driver's words for the two infinities: the ends of its own calendar.
    bare = value.replace(tzinfo=None)
    return "infinity" if bare == _LAST else "-infinity" if bare == _FIRST else value.isoformat()


def _day(value: dt.date) -> str:
    return "infinity" if value == dt.date.max else "-infinity" if value == dt.date.min else value.isoformat()


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
    return f'"{text}"' if any(mark in text for mark in ' ,()[]"') else text


def _sequence(value: Sequence[Any]) -> Any:
    return [plain_value(item) for item in value]


def _points(value: Iterable[Any]) -> str:
    return "(" + ",".join(plain_value(point) for point in value) + ")"


def _path(value: asyncpg.Path) -> str:
    text = ",".join(plain_value(point) for point in value.points)
    return f"({text})" if value.is_closed else f"[{text}]"


_TURNS: dict[type, Callable[[Any], Any]] = {
    float: _float,
    dt.datetime: _moment,
    dt.date: _day,
    list: _sequence,
    tuple: _sequence,
    # Only JSON columns give mappings, and their content is plain already.
    dict: lambda value: value,
    asyncpg.Record: _record,
    asyncpg.Range: _range,
    asyncpg.BitString: asyncpg.BitString.as_string,
    asyncpg.Point: lambda value: f"({value.x!r},{value.y!r})",
    asyncpg.Box: lambda value: f"{plain_value(value.high)},{plain_value(value.low)}",
    asyncpg.Line: lambda value: f"{{{value.a!r},{value.b!r},{value.c!r}}}",
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
