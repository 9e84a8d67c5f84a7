"""Calls that make much out of little: a call goes in, and whether it stays within bounds comes out. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from sqlglot import exp

MOST_MADE: Final = 1_000_000
"""Rows or elements that one call may make."""
LONGEST_TEXT: Final = 10_000
"""Characters that one call may pad or repeat a text to."""
_STEPS: Final = {
    "MICROSECOND": timedelta(microseconds=1),
    "MILLISECOND": timedelta(milliseconds=1),
    "SECOND": timedelta(seconds=1),
    "MINUTE": timedelta(minutes=1),
    "HOUR": timedelta(hours=1),
    "DAY": timedelta(days=1),
    "WEEK": timedelta(days=7),
    "MONTH": timedelta(days=28),
    "QUARTER": timedelta(days=89),
    "YEAR": timedelta(days=365),
}
_SIZES: Final = {"Repeat": "times", "Pad": "expression", "Space": "this"}
"""The field of a call that says how long its text becomes."""


def excess(call: exp.Expr) -> str | None:
    """Say what is wrong with a call that makes rows, elements or text; None for all others and for those in bounds."""
    if isinstance(call, exp.GenerateSeries):
        given = call.args
        return _series(
            given.get("start"), given.get("end"), given.get("step"), exclusive=bool(given.get("is_end_exclusive"))
        )
    if isinstance(call, exp.Anonymous) and call.name.lower() == "range":
        told = call.expressions
        start, end = (None, told[0]) if len(told) == 1 else (told[0], told[1]) if told else (None, None)
        return _series(start, end, told[2] if len(told) > 2 else None, exclusive=True)
    field = _SIZES.get(type(call).__name__)
    if field is not None:
        size = _integer(call.args.get(field))
        if size is None or size > LONGEST_TEXT:
            return f"the length must be written as a number up to {LONGEST_TEXT:,}"
    return None


def _series(start: exp.Expr | None, end: exp.Expr | None, step: exp.Expr | None, *, exclusive: bool) -> str | None:
    steps = _steps(start, end, step)
    if steps is None:
        return "its bounds must be written as numbers, or as dates or times with an INTERVAL as step"
    count = steps if exclusive else steps + 1
    return f"it makes {count:,} values, and {MOST_MADE:,} are allowed" if count > MOST_MADE else None


def _steps(start: exp.Expr | None, end: exp.Expr | None, step: exp.Expr | None) -> int | None:
    first, last = (0 if start is None else _integer(start)), _integer(end)
    if first is not None and last is not None:
        by = 1 if step is None else _integer(step)
        return None if not by else -(-abs(last - first) // abs(by))
    begins, ends, each = _instant(start), _instant(end), timedelta(days=1) if step is None else _span(step)
    if begins is None or ends is None or not each:
        return None
    return int(abs(ends - begins) / abs(each))


def _integer(node: exp.Expr | None) -> int | None:
    sign = 1
    while isinstance(node, exp.Neg | exp.Paren):
        sign *= -1 if isinstance(node, exp.Neg) else 1
        node = node.this
    plain = isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() and len(node.name) < 19
    return sign * int(node.name) if plain and node is not None else None


def _instant(node: exp.Expr | None) -> datetime | None:
    while isinstance(node, exp.Cast | exp.Paren | exp.TsOrDsToDate | exp.Date | exp.Timestamp):
        node = node.this
    if not (isinstance(node, exp.Literal) and node.is_string):
        return None
    try:
        return datetime.fromisoformat(node.name).replace(tzinfo=None)
    except ValueError:
        return None


def _span(node: exp.Expr | None) -> timedelta | None:
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal) or node.args.get("unit") is None:
        return None
    unit = _STEPS.get(node.args["unit"].name.upper().removesuffix("S"))
    try:
        return None if unit is None else unit * float(node.this.name)
    except (ValueError, OverflowError):
        return None
