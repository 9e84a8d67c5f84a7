"""The rows' results of a frame as one Arrow table: index, status, error, data."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa

from noetl.execute.frame_rows import RowEnd
from noetl.execute.plain import plain
from noetl.payloads.codec import EncodedTable, encode_table


def table_of(rows: list[RowEnd], redact: Any) -> EncodedTable:
    """Return the table of a frame's rows, encoded. Data of one shape are columns of their types, others JSON text."""
    values = [redact(row.data) for row in rows]
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
    table = pa.table(
        [
            pa.array([row.index for row in rows], pa.int64()),
            pa.array([row.status for row in rows]),
            pa.array(errors, pa.string()),
            data,
        ],
        schema=schema,
    )
    return encode_table(table.combine_chunks())


def _column(values: list[Any]) -> tuple[Any, bytes]:
    if all(value is None for value in values):
        return pa.nulls(len(values)), b"typed"
    # Of one type only: among floats an integer would come back as a float.
    if {type(value) for value in values if value is not None} <= {str} | {bool} | {int} | {float}:
        try:
            return pa.array(values), b"typed"
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            pass
    # Mappings of differing shapes would gain and lose fields as a struct, so they stay as they are written.
    texts = [None if value is None else _text(value) for value in values]
    return pa.array(texts, pa.string()), b"json"


def _text(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return orjson.dumps(plain(value)).decode()
