"""JSON that was sent becomes rows of a table: an object, a list of objects, or one object per line.

Values are taken for what they are: text is no number and a number is no text. Errors name row and column, never values.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn

import pyarrow as pa

from noetl.errors import InputError

_KINDS: Final = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number"}
_LARGEST_WHOLE: Final = 1 << 64
_DEEPEST: Final = 64
"""Levels of nesting of a value."""
_MOST_CELLS: Final = 20_000_000
"""Rows times columns: each row may bring names of its own."""
Row = dict[str, Any]


def json_rows(body: bytes, path: str = "") -> list[Row]:
    """Return the objects that were sent; `path` leads to them within each document, such as data.items."""
    try:
        text = body.decode()
    except UnicodeDecodeError as problem:
        raise InputError(f"the body is not UTF-8: byte {problem.start} cannot be decoded") from None
    found = []
    for number, document in enumerate(_documents(text), 1):
        for name in filter(None, path.split(".")):
            document = document.get(name) if isinstance(document, dict) else None
        for row in document if isinstance(document, list) else [document]:
            if not isinstance(row, dict):
                where = f"{path[:200]} of document {number}" if path else f"document {number}"
                raise InputError(f"{where} holds {_kind(row)}, and objects are asked for")
            found.append(row)
    return found


def table_of(rows: Sequence[Row], schema: pa.Schema | None, *, others: str = "keep") -> pa.Table:
    """Return rows as a table of these columns; what they have besides is kept, ignored or refused.

    Columns that are kept, all of them where no schema is known, get the type that fits all values; one without any
    value is left out.
    """
    known = schema or pa.schema([])
    names = list(dict.fromkeys(name for row in rows for name in row if name not in known.names))
    if names and others == "refuse":
        raise InputError(f"the rows have {names[0]!r}, which is no column", hint=f"columns: {', '.join(known.names)}")
    if len(rows) * (len(known) + len(names)) > _MOST_CELLS:
        raise InputError(
            f"{len(rows):,} rows with {len(known) + len(names):,} columns are more than {_MOST_CELLS:,} values",
            hint="send fewer rows at a time, or declare the columns under schema.columns",
        )
    columns = {field.name: _declared(rows, field) for field in known}
    for name in names if others == "keep" else ():
        column = _inferred([row.get(name) for row in rows], name)
        if not pa.types.is_null(column.type):
            columns[name] = column
    return pa.table(columns)


def _documents(text: str) -> list[Any]:
    """Read one document, or one on each line."""
    try:
        return [_loads(text)]
    except json.JSONDecodeError as problem:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if not lines:
            raise InputError("the body is empty", hint="send a JSON object or a list of objects") from None
        if len(lines) == 1 or problem.msg != "Extra data":
            raise _not_json(problem.msg, problem.lineno, problem.colno) from None
    found = []
    for number, line in lines:
        try:
            found.append(_loads(line))
        except json.JSONDecodeError as problem:
            raise _not_json(problem.msg, number, problem.colno) from None
    return found


def _loads(text: str) -> Any:
    try:
        # Exact until a column says what a number is.
        return json.loads(text, parse_float=Decimal, parse_constant=_no_number)
    except RecursionError:
        raise InputError("the body is nested too deeply") from None
    except ValueError as problem:
        if isinstance(problem, json.JSONDecodeError):
            raise
        raise InputError("the body has a number that is too long") from None


def _no_number(word: str) -> NoReturn:
    raise InputError(f"the body has {word}, which is no number of JSON")


def _not_json(said: str, line: int, column: int) -> InputError:
    return InputError(f"the body is not JSON: {said[:1].lower()}{said[1:]} at line {line}, column {column}")


def _declared(rows: Sequence[Row], field: pa.Field) -> pa.Array:
    values = []
    for number, row in enumerate(rows, 1):
        value = row.get(field.name)
        if value is None and not field.nullable:
            raise InputError(f"row {number} has no {field.name!r}, which may not be null")
        values.append(value_of(value, field.type, f"row {number}, {field.name}"))
    return _array(values, field.type, field.name)


def _inferred(values: list[Any], name: str) -> pa.Array:
    for number, value in enumerate(values, 1):
        if isinstance(value, dict | list) and _is_deeper(value, _DEEPEST):
            raise InputError(f"row {number}, {name} is nested deeper than {_DEEPEST} levels")
    return _array([_plain(value) for value in values], None, name)


def _is_deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value
    return not levels or any(isinstance(one, dict | list) and _is_deeper(one, levels - 1) for one in inner)


def _array(values: list[Any], kind: pa.DataType | None, name: str) -> pa.Array:
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError) as problem:
        told = f"as {kind}" if kind is not None else "as one type"
        raise InputError(
            f"the values of {name!r} cannot be read {told}", hint="declare the column under schema.columns"
        ) from problem


def _plain(value: Any) -> Any:
    match value:
        case Decimal():
            return float(value)
        case dict():
            return {name: _plain(one) for name, one in value.items()}
        case list():
            return [_plain(one) for one in value]
        case _:
            return value


def value_of(value: Any, kind: pa.DataType, where: str) -> Any:
    """Return a value of JSON as a type asks for it."""
    if value is None:
        return None
    types = pa.types
    try:
        if types.is_list(kind) and isinstance(value, list):
            return [value_of(one, kind.value_type, where) for one in value]
        if types.is_struct(kind) and isinstance(value, dict):
            return {one.name: value_of(value.get(one.name), one.type, f"{where}.{one.name}") for one in kind}
        if types.is_map(kind) and isinstance(value, dict):
            return [(name, value_of(one, kind.item_type, where)) for name, one in value.items()]
        found = _scalar(value, kind)
    except (ValueError, InvalidOperation, OverflowError, RecursionError):
        found = None
    if found is None:
        raise InputError(f"{where} is {_kind(value)} that is no {kind}")
    return found


def _scalar(value: Any, kind: pa.DataType) -> Any:
    types = pa.types
    number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    if types.is_boolean(kind):
        return value if isinstance(value, bool) else None
    if types.is_integer(kind):
        # A short text such as 1e99999999 stands for a number that takes all memory to write out.
        small = number and -_LARGEST_WHOLE <= value <= _LARGEST_WHOLE
        return int(value) if small and value == int(value) and _fits(int(value), kind) else None
    if types.is_floating(kind):
        return float(value) if number else None
    if types.is_decimal(kind):
        exact = Decimal(value) if number or isinstance(value, str) else None
        return exact if exact is not None and exact == round(exact, kind.scale) else None
    if types.is_string(kind):
        # What has parts is kept as JSON text, so that a column may take whatever is sent.
        return json.dumps(_plain(value), ensure_ascii=False) if isinstance(value, dict | list) else _text(value)
    if types.is_binary(kind):
        return b64decode(value, validate=True) if isinstance(value, str) else None
    if types.is_date(kind):
        return date.fromisoformat(value) if isinstance(value, str) else None
    if types.is_timestamp(kind) and isinstance(value, str):
        moment = datetime.fromisoformat(value)
        if kind.tz is None:
            return moment if moment.tzinfo is None else None
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _fits(value: int, kind: pa.DataType) -> bool:
    half = 1 << (int(kind.bit_width) - 1)
    return -half <= value < half


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    return next((said for kind, said in _KINDS.items() if isinstance(value, kind)), "a number")
