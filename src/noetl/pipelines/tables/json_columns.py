"""Values that travelled as JSON become columns of a type: texts are read back as the decimals, moments and bytes they were.

JSON has no decimals, no moments, no bytes, no integers beyond 2^53 and no NaN; results carry these as text. Where a column's
type is known, by a schema or because the result tells it, nothing of them is lost.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import orjson
import pyarrow as pa

from noetl.errors import InputError
from noetl.pipelines.tables.column_types import arrow_type

_DIGITS: Final = 38
"""What a decimal has room for."""
_ROOMY_SCALE: Final = 18
"""Digits after the point where the values of a column have differing numbers of them."""


class CannotReadError(Exception):
    """A value is not of the type that its column has; the message says how."""


def column_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values as a column of a type."""
    read = _reader(kind)
    try:
        return pa.array([None if value is None else read(value) for value in values], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, TypeError, InvalidOperation, OverflowError) as problem:
        raise CannotReadError(str(problem)) from problem


def carried_column(values: Sequence[Any], told: str) -> pa.Array | None:
    """Return values as a column of the type that their result tells; None where they have no such type in common.

    A decimal whose digits are not told gets as many as its values have, with room before the point.
    """
    try:
        if told.removeprefix("array<").startswith("decimal") and "(" not in told:
            told = told.replace("decimal", _decimal_for(values))
        return column_of(values, arrow_type(told))
    except (CannotReadError, InputError, ValueError, InvalidOperation):
        return None


def text_of(value: Any) -> str:
    """Return a value as text: what is no text, as JSON."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _decimal_for(values: Sequence[Any]) -> str:
    numbers = [
        Decimal(one) for value in values for one in (value if isinstance(value, list) else [value]) if one is not None
    ]
    if not all(number.is_finite() for number in numbers):
        raise ValueError("a decimal column has no NaN and no Infinity")
    scales = {max(0, -int(number.as_tuple().exponent)) for number in numbers} or {0}
    before = max((number.adjusted() + 1 for number in numbers if number), default=1)
    scale = max(scales)
    if len(scales) > 1 and max(before, 1) + max(scale, _ROOMY_SCALE) <= _DIGITS:
        scale = max(scale, _ROOMY_SCALE)
    return f"decimal({_DIGITS},{scale})"


def _reader(kind: pa.DataType) -> Callable[[Any], Any]:
    """Return what reads a value of a type; what JSON has as it is stays as it is."""
    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind):
        return _list_reader(_reader(kind.value_type))
    if types.is_struct(kind):
        readers = {field.name: _reader(field.type) for field in kind}
        return lambda value: {name: _or_none(read, value.get(name)) for name, read in readers.items()}
    if types.is_map(kind):
        key, item = _reader(kind.key_type), _reader(kind.item_type)
        return lambda value: [(key(name), _or_none(item, one)) for name, one in value.items()]
    if types.is_timestamp(kind):
        return _with_zone if kind.tz else _without_zone
    for belongs, read in _READERS:
        if belongs(kind):
            return (lambda value: _decimal(value, kind.scale)) if read is _decimal else read
    return lambda value: value


def _list_reader(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def items(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError("a list is needed")
        return [_or_none(read, one) for one in value]

    return items


def _or_none(read: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else read(value)


def _decimal(value: Any, scale: int = 0) -> Decimal:
    if isinstance(value, bool):
        raise ValueError("true and false are no decimals")
    number = Decimal(repr(value) if isinstance(value, float) else value)
    if not number.is_finite():
        raise ValueError("a decimal column has no NaN and no Infinity")
    if max(0, -int(number.normalize().as_tuple().exponent)) > scale:
        raise ValueError(f"a value has more than {scale} digits after the point")
    return number


def _integer(value: Any) -> Any:
    return int(value) if isinstance(value, str) else value


def _float(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError("true and false are no numbers")
    return float(value)


def _bytes(value: Any) -> bytes:
    return b64decode(value, validate=True)


def _date(value: Any) -> date:
    return date.fromisoformat(value)


def _with_zone(value: Any) -> datetime:
    moment = datetime.fromisoformat(value)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _without_zone(value: Any) -> datetime:
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is not None:
        raise ValueError("a moment with an offset is no timestamp_ntz")
    return moment


_READERS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[..., Any]], ...]] = (
    (pa.types.is_decimal, _decimal),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _float),
    (pa.types.is_string, text_of),
    (pa.types.is_binary, _bytes),
    (pa.types.is_date, _date),
)
