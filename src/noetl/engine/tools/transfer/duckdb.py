"""Both ends of a transfer in DuckDB, each on a cursor of its own and in threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import duckdb

from noetl.engine.tools.duckdb.databases import Databases, database_named, databases_of
from noetl.engine.tools.duckdb.values import like_all_moments, plain_value, quoted, readable
from noetl.engine.tools.port import Call
from noetl.engine.tools.postgres.values import text_of
from noetl.engine.tools.transfer.rows import (
    BadTransfer,
    Row,
    column_texts,
    columns_of,
    json_text,
    last_of_each,
    one_key,
)


class Held:
    """The databases a transfer uses, opened once each even when both its ends are in the same one."""

    def __init__(self, databases: Databases, connections: Mapping[str | None, duckdb.DuckDBPyConnection]) -> None:
        self.databases = databases
        self._connections = connections

    def cursor(self, spec: Mapping[str, Any]) -> duckdb.DuckDBPyConnection:
        """Return a session of its own in the database an end names."""
        return self._connections[name_of(spec)].cursor()


def name_of(spec: Mapping[str, Any]) -> str | None:
    """Return the database an end of a transfer names; None stands for that of the execution."""
    name = spec.get("database") or spec.get("path")
    return None if name is None else str(name)


@asynccontextmanager
async def held(call: Call, settings: Mapping[str, str], ends: Sequence[Mapping[str, Any]]) -> AsyncIterator[Held]:
    """Lend the DuckDB databases of a transfer's ends."""
    databases = await databases_of(call.resources, settings)
    async with AsyncExitStack() as stack:
        # In one order for all, so that two transfers in opposite directions do not wait for each other.
        names = sorted({name_of(end) for end in ends if end.get("type") == "duckdb"}, key=lambda name: name or "")
        connections = {}
        for name in names:
            path = await stack.enter_async_context(database_named(call, name))
            connections[name] = await stack.enter_async_context(databases.connection(path))
        yield Held(databases, connections)


@asynccontextmanager
async def duckdb_source(held: Held, spec: Mapping[str, Any], size: int) -> AsyncIterator[AsyncIterator[list[Row]]]:
    """Lend the rows of a query or a table, chunk by chunk."""
    query = spec.get("query") or spec.get("command")
    text = str(query) if query else f"FROM {_table(spec)}"
    cursor = held.cursor(spec)

    def begin() -> tuple[list[str], frozenset[str]]:
        *before, last = cursor.extract_statements(text)
        for statement in before:
            cursor.execute(statement)
        sent, texts = readable(cursor, last, None)
        cursor.execute(sent)
        return [column[0] for column in cursor.description or ()], texts

    def fetch(columns: list[str], texts: frozenset[str]) -> list[Row]:
        rows = [dict(zip(columns, map(plain_value, row), strict=True)) for row in cursor.fetchmany(size)]
        for name in texts:
            for row in rows:
                row[name] = like_all_moments(row[name])
        return rows

    async def chunks() -> AsyncIterator[list[Row]]:
        columns, texts = await held.databases.run(cursor, begin)
        while rows := await held.databases.run(cursor, lambda: fetch(columns, texts)):
            yield rows

    try:
        yield chunks()
    finally:
        cursor.close()


def _table(spec: Mapping[str, Any]) -> str:
    name = str(spec.get("table") or "")
    if not name:
        raise BadTransfer("a duckdb end of a transfer needs `table`, or a source `query`")
    return ".".join(quoted(part) for part in name.split("."))


class DuckdbTarget:
    """Writes chunks into one table."""

    def __init__(
        self, held: Held, cursor: duckdb.DuckDBPyConnection, table: str, key: Sequence[str], *, exact: bool
    ) -> None:
        self._held = held
        self._cursor = cursor
        self._table = table
        self._key = key
        self._exact = exact
        self._types: dict[str, str] = {}

    async def write(self, rows: list[Row]) -> int:
        """Insert rows, or update those whose key is there, and return how many."""
        return await self._held.databases.run(self._cursor, lambda: self._write(rows))

    def _write(self, rows: list[Row]) -> int:
        if not self._types:
            described = self._cursor.execute(f"DESCRIBE {self._table}").fetchall()
            self._types = {name: kind for name, kind, *_ in described}
        columns = columns_of(rows)
        unknown = [name for name in (*columns, *self._key) if name not in self._types]
        if unknown:
            raise BadTransfer(
                f"the table {self._table} has no column {', '.join(unknown)}; name its columns in `mapping`"
            )
        rows = last_of_each(rows, self._key) if self._key else rows
        values = [column_texts(rows, name, self._text(name)) for name in columns]
        self._cursor.execute(self._insert(columns), values)
        return len(rows)

    def _text(self, name: str) -> Callable[[Any], str | None]:
        return (lambda value: json_text(value, exact=self._exact)) if self._types[name] == "JSON" else text_of

    def _insert(self, columns: Sequence[str]) -> str:
        names = ", ".join(quoted(name) for name in columns)
        casts = ", ".join(_cast(self._types[name], place) for place, name in enumerate(columns, 1))
        text = f"INSERT INTO {self._table} ({names}) SELECT {casts}"
        if not self._key:
            return text
        changes = ", ".join(f"{quoted(name)} = EXCLUDED.{quoted(name)}" for name in columns if name not in self._key)
        then = f"UPDATE SET {changes}" if changes else "NOTHING"
        return f"{text} ON CONFLICT ({', '.join(map(quoted, self._key))}) DO {then}"


def _cast(kind: str, place: int) -> str:
    text = f"unnest(${place}::VARCHAR[])"
    if kind == "BLOB":
        return f"from_base64({text})"
    nested = kind.endswith("]") or kind.startswith(("STRUCT", "MAP"))
    return f"{text}::JSON::{kind}" if nested else f"{text}::{kind}"


@asynccontextmanager
async def duckdb_target(held: Held, spec: Mapping[str, Any], mode: str, *, exact: bool) -> AsyncIterator[DuckdbTarget]:
    """Lend a writer; everything it writes is committed together at the end, or nothing."""
    table, key = _table(spec), one_key(spec) if mode == "upsert" else []
    cursor = held.cursor(spec)
    try:
        await held.databases.run(cursor, lambda: cursor.execute("BEGIN"))
        if mode == "overwrite":
            await held.databases.run(cursor, lambda: cursor.execute(f"DELETE FROM {table}"))  # noqa: S608
        yield DuckdbTarget(held, cursor, table, key, exact=exact)
        await held.databases.run(cursor, lambda: cursor.execute("COMMIT"))
    finally:
        # Closing takes back what was not committed.
        cursor.close()
