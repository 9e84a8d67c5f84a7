"""Both ends of a transfer in PostgreSQL: a server-side cursor to read, one insert of arrays per chunk to write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from noetl.engine.tools.port import Call
from noetl.engine.tools.postgres.target import find_target
from noetl.engine.tools.postgres.values import rows_of, text_of
from noetl.engine.tools.sql_split import split
from noetl.engine.tools.transfer.rows import (
    BadTransfer,
    Row,
    column_texts,
    columns_of,
    json_text,
    last_of_each,
    one_key,
)

_COLUMNS = """
SELECT a.attname AS name, format_type(a.atttypid, NULL) AS type, t.typcategory = 'A' AS is_array
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 AND NOT a.attisdropped
"""
_CLOSE_SECONDS = 5.0


@asynccontextmanager
async def _connection(call: Call, auth: Any, *, json_as_text: bool) -> AsyncIterator[asyncpg.Connection]:
    # Not of the pool: transfers that hold one connection while they wait for another could all wait for ever.
    target = await find_target(call.credentials, auth)
    connection = await target.connect(json_as_text=json_as_text)
    try:
        yield connection
    finally:
        try:
            await connection.close(timeout=_CLOSE_SECONDS)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            connection.terminate()


@asynccontextmanager
async def postgres_source(
    call: Call, spec: Mapping[str, Any], size: int, *, json_as_text: bool
) -> AsyncIterator[AsyncIterator[list[Row]]]:
    """Lend the rows of a query or a table, chunk by chunk."""
    found = split(str(spec.get("query") or spec.get("command") or ""))
    if not found and not spec.get("table"):
        raise BadTransfer("a postgres source needs `query` or `table`")
    if len(found) > 1:
        raise BadTransfer("the query of a postgres source is one statement")
    async with _connection(call, spec.get("auth"), json_as_text=json_as_text) as connection:
        query = found[0] if found else f"SELECT * FROM {await _table(connection, str(spec['table']))}"  # noqa: S608
        async with connection.transaction(readonly=True):
            cursor = await connection.cursor(query)

            async def chunks() -> AsyncIterator[list[Row]]:
                while records := await cursor.fetch(size):
                    yield rows_of(records)

            yield chunks()


async def _table(connection: asyncpg.Connection, name: str) -> str:
    found = await connection.fetchval("SELECT to_regclass($1)::text", name)
    if found is None:
        raise BadTransfer(f"there is no table {name!r} for the transfer; create it first")
    return str(found)


class PostgresTarget:
    """Writes chunks into one table."""

    def __init__(self, connection: asyncpg.Connection, table: str, key: Sequence[str], *, exact: bool) -> None:
        self._connection = connection
        self._table = table
        self._key = key
        self._exact = exact
        self._types: dict[str, asyncpg.Record] = {}

    async def write(self, rows: list[Row]) -> int:
        """Insert rows, or update those whose key is there, and return how many."""
        if not self._types:
            self._types = {record["name"]: record for record in await self._connection.fetch(_COLUMNS, self._table)}
        columns = columns_of(rows)
        unknown = [name for name in (*columns, *self._key) if name not in self._types]
        if unknown:
            raise BadTransfer(
                f"the table {self._table} has no column {', '.join(unknown)}; name its columns in `mapping`"
            )
        rows = last_of_each(rows, self._key) if self._key else rows
        values = [column_texts(rows, name, self._text(name)) for name in columns]
        tag = await self._connection.execute(self._insert(columns), *values)
        return int(tag.rpartition(" ")[2])

    async def clear(self) -> None:
        """Delete all rows, for everybody else only once the transfer is done."""
        await self._connection.execute(f"DELETE FROM {self._table}")  # noqa: S608

    def _text(self, name: str) -> Callable[[Any], str | None]:
        if self._types[name]["type"] in ("json", "jsonb"):
            return lambda value: json_text(value, exact=self._exact)
        array = bool(self._types[name]["is_array"])
        return lambda value: text_of(value, array=array)

    def _insert(self, columns: Sequence[str]) -> str:
        names = [_quoted(name) for name in columns]
        casts = ", ".join(self._cast(name) for name in columns)
        arrays = ", ".join(f"${place}::text[]" for place in range(1, len(columns) + 1))
        text = f"INSERT INTO {self._table} ({', '.join(names)}) SELECT {casts} FROM unnest({arrays}) AS u({', '.join(names)})"  # noqa: S608
        if not self._key:
            return text
        changes = ", ".join(f"{_quoted(name)} = EXCLUDED.{_quoted(name)}" for name in columns if name not in self._key)
        then = f"UPDATE SET {changes}" if changes else "NOTHING"
        return f"{text} ON CONFLICT ({', '.join(map(_quoted, self._key))}) DO {then}"

    def _cast(self, name: str) -> str:
        kind = self._types[name]["type"]
        return f"decode(u.{_quoted(name)}, 'base64')" if kind == "bytea" else f"u.{_quoted(name)}::{kind}"


@asynccontextmanager
async def postgres_target(
    call: Call, spec: Mapping[str, Any], mode: str, *, exact: bool
) -> AsyncIterator[PostgresTarget]:
    """Lend a writer; everything it writes is committed together at the end, or nothing."""
    key = one_key(spec) if mode == "upsert" else []
    async with (
        _connection(call, spec.get("auth"), json_as_text=True) as connection,
        connection.transaction(),
    ):
        target = PostgresTarget(connection, await _table(connection, str(spec.get("table") or "")), key, exact=exact)
        if mode == "overwrite":
            await target.clear()
        yield target


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
