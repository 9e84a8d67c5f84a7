"""Loops' results and stored tables as tables of a `duckdb` task: references go in, Arrow tables DuckDB scans come out.

A row that came to a mapping gives its fields as columns, any other result is the column `value`; `_index` is the row's
place in the loop. Rows that came to nothing are left out. Large tables are scanned where they lie, never copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import duckdb
import msgspec
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from noetl.engine.tools.artifact import is_reference, reference_in
from noetl.engine.tools.duckdb.values import BadTask
from noetl.engine.tools.plain import plain
from noetl.engine.tools.port import Call
from noetl.errors import InputError, NotFound
from noetl.kernel.payloads.codec import ARROW_STREAM, decode_json, decode_table
from noetl.model.payload_ref import PayloadRef

_FORM: Final = b"noetl.form"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HIDDEN: Final = "__noetl_rows_"


async def tables_of(call: Call) -> dict[str, pa.Table]:
    """Return the inputs of a task that stand for tables; others are values for its templates."""
    found = {}
    for name, given in call.input.items():
        table = await _table(call, given)
        if table is not None:
            if not _NAME.fullmatch(name):
                raise BadTask(f"input {name!r} of the duckdb task is a table, and its name is no name in SQL")
            found[name] = table
    return found


@contextmanager
def shown(connection: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table]) -> Iterator[None]:
    """Let SQL see tables for the time of the block."""
    try:
        for name, table in tables.items():
            connection.register(_HIDDEN + name, table)
            connection.execute(f'CREATE OR REPLACE TEMP VIEW "{name}" AS {_columns(connection, name, table)}')
        yield
    finally:
        for name in tables:
            connection.execute(f'DROP VIEW IF EXISTS temp."{name}"')
            connection.unregister(_HIDDEN + name)


def _columns(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> str:
    """Return the query that gives a frame's rows their columns, or any other table as it is."""
    source = f'"{_HIDDEN}{name}"'
    if (table.schema.metadata or {}).get(_FORM) is None:
        return f"SELECT * FROM {source}"  # noqa: S608 - the name was checked
    if (table.schema.field("data").metadata or {}).get(_FORM) != b"json":
        return f"SELECT data AS value, _index FROM {source}"  # noqa: S608
    found = connection.execute(f"SELECT json_group_structure(data::JSON)::VARCHAR FROM {source}").fetchone()  # noqa: S608
    shape = str(found[0]) if found and found[0] is not None else ""
    quoted = shape.replace("'", "''")
    if shape.startswith("{"):
        return f"SELECT unnest(json_transform(data::JSON, '{quoted}')), _index FROM {source}"  # noqa: S608
    if shape.startswith(('"', "[")) and shape != '"NULL"':
        return f"SELECT json_transform(data::JSON, '{quoted}') AS value, _index FROM {source}"  # noqa: S608
    return f"SELECT data::JSON AS value, _index FROM {source}"  # noqa: S608 - nothing tells what it is


async def _table(call: Call, given: Any) -> pa.Table | None:
    if not isinstance(given, Mapping):
        return None
    if isinstance(given.get("frames"), list):
        refs = [one["ref"] for one in given["frames"] if isinstance(one, Mapping) and one.get("ref") is not None]
        return _together([decode_table(await call.payloads.view(_reference(ref))) for ref in refs])
    ref = given if is_reference(given) else given.get("_ref")
    if isinstance(ref, Mapping):
        return await _referred(call, await _found(call, ref))
    if isinstance(given.get("results"), list):
        return _inline(given["results"])
    return None


async def _referred(call: Call, ref: PayloadRef) -> pa.Table | None:
    if ref.media_type == ARROW_STREAM:
        table = decode_table(await call.payloads.view(ref))
        return _together([table]) if _is_frame(table) else table
    return await _table(call, decode_json(await call.payloads.fetch(ref)))


async def _found(call: Call, ref: Mapping[str, Any]) -> PayloadRef:
    try:
        return await reference_in(ref, call.payloads)
    except (InputError, NotFound) as problem:
        raise BadTask(problem.message) from None


def _reference(ref: Mapping[str, Any]) -> PayloadRef:
    try:
        return msgspec.convert(dict(ref), PayloadRef)
    except msgspec.ValidationError as problem:
        raise BadTask(f"the reference is not sound: {problem}") from None


def _is_frame(table: pa.Table) -> bool:
    return bool(table.column_names == ["index", "status", "error", "data"])


def _together(frames: list[pa.Table]) -> pa.Table:
    """Return the rows of frames as one table of `_index` and `data`, of their type where it is one, else JSON text."""
    if not frames:
        return _marked(pa.array([], pa.int64()), pa.array([], pa.string()), b"json")
    forms = {(one.schema.field("data").metadata or {}).get(_FORM, b"typed") for one in frames}
    types = {one.schema.field("data").type for one in frames if not pa.types.is_null(one.schema.field("data").type)}
    if forms == {b"typed"} and len(types) <= 1:
        kept = [one for one in frames if one.schema.field("data").type in types] or frames[:1]
        form = b"typed"
    else:
        kept, form = [_as_text(one) for one in frames], b"json"
    index = pa.chunked_array([chunk for one in kept for chunk in one.column("index").chunks], pa.int64())
    data = pa.chunked_array([chunk for one in kept for chunk in one.column("data").chunks], kept[0].column("data").type)
    return _marked(index, data, form)


def _as_text(frame: pa.Table) -> pa.Table:
    if (frame.schema.field("data").metadata or {}).get(_FORM) == b"json":
        return frame
    texts = [None if value is None else orjson.dumps(value).decode() for value in frame.column("data").to_pylist()]
    return pa.table({"index": frame.column("index"), "data": pa.array(texts, pa.string())})


def _inline(results: list[Any]) -> pa.Table:
    kept = [(number, orjson.dumps(plain(row)).decode()) for number, row in enumerate(results) if row is not None]
    index = pa.array([number for number, _ in kept], pa.int64())
    return _marked(index, pa.array([text for _, text in kept], pa.string()), b"json")


def _marked(index: Any, data: Any, form: bytes) -> pa.Table:
    fields = [pa.field("_index", pa.int64()), pa.field("data", data.type, metadata={_FORM: form})]
    table = pa.table([index, data], schema=pa.schema(fields, metadata={_FORM: b"rows"}))
    return table if data.null_count == 0 else table.filter(pc.is_valid(data))
