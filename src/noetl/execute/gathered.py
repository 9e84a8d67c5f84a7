"""The rows' results of a frame as one Arrow table: index, status, error, data."""

from __future__ import annotations

from array import array
from typing import Any

import orjson
import pyarrow as pa

from noetl.dispatch.results import rows_of
from noetl.execute.frame_rows import RowEnd
from noetl.execute.outcome import Problem
from noetl.execute.plain import plain
from noetl.payloads.arrow_bounds import decode_bounded
from noetl.payloads.codec import EncodedTable, encode_table

_PLAIN = {str, bool, int, float}


def table_of(rows: list[RowEnd], redact: Any) -> EncodedTable:
    """Return the table of a frame's rows, encoded. Data of one shape are columns of their types, others JSON text."""
    values = redact([row.data for row in rows])
    data, form = _column(values)
    schema = pa.schema(
        [
            pa.field("index", pa.int64()),
            pa.field("status", pa.string()),
            pa.field("error", pa.string()),
            pa.field("data", data.type, metadata={b"noetl.form": form}),
        ]
    )
    errors = [None if row.error is None else redact(row.error.message) for row in rows]
    numbers = array("q", [row.index for row in rows])
    table = pa.table(
        [
            pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(numbers)]),
            _texts([row.status for row in rows]),
            _texts(errors),
            data,
        ],
        schema=schema,
    )
    return encode_table(table.combine_chunks())


def ends_of(data: bytes | memoryview) -> list[RowEnd]:
    """Return the rows of such a table; of a problem only its words are left."""
    table = decode_bounded(data, flat="data")
    index, status, error = (table.column(name).to_pylist() for name in ("index", "status", "error"))
    problems = [None if words is None else Problem(kind="unknown", message=words) for words in error]
    return [RowEnd(*row) for row in zip(index, status, rows_of(data), problems, strict=True)]


def _column(values: list[Any]) -> tuple[Any, bytes]:
    if all(value is None for value in values):
        return pa.nulls(len(values)), b"typed"
    types = {type(value) for value in values if value is not None}
    # Of one type only: among floats an integer would come back as a float.
    if len(types) == 1 and types <= _PLAIN:
        try:
            return _texts(values) if types == {str} else pa.array(values), b"typed"
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError):
            pass
    # Mappings of differing shapes would gain and lose fields as a struct, so they stay as they are written.
    texts = [None if value is None else _text(value) for value in values]
    return _texts(texts), b"json"


def _texts(values: list[str | None]) -> Any:
    # Where pandas is installed, `pa.array` loads all of it first to ask whether a list is one of its own.
    builder = pa.lib.StringBuilder()
    builder.append_values(values)
    return builder.finish()


def _text(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return orjson.dumps(plain(value)).decode()
