"""Both ends of a transfer in Snowflake: a cursor to read, one statement with all of a chunk's values to write."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from noetl.engine.tools.port import Call
from noetl.engine.tools.postgres.values import text_of
from noetl.engine.tools.snowflake.session import Session, find_target, session_of
from noetl.engine.tools.snowflake.statements import rows_of, statements_in
from noetl.engine.tools.transfer.rows import BadTransfer, Row, columns_of, json_text, last_of_each, one_key

_MOST_VALUES: Final = 16_000
"""Values in one statement."""
_FOLDED: Final = re.compile(r"[A-Z_][A-Z0-9_$]*")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
_PARSED: Final = {"VARIANT": "", "OBJECT": "::OBJECT", "ARRAY": "::ARRAY"}


def folded(name: str) -> str:
    """Return a name that was written without quotes as most systems spell it: in small letters."""
    return name.lower() if _FOLDED.fullmatch(name) else name


@asynccontextmanager
async def snowflake_source(
    call: Call, spec: Mapping[str, Any], size: int, *, json_as_text: bool
) -> AsyncIterator[AsyncIterator[list[Row]]]:
    """Lend the rows of a query or a table, chunk by chunk, under names as most systems spell them."""
    query = spec.get("query") or spec.get("command")
    if not query and not spec.get("table"):
        raise BadTransfer("a snowflake source needs `query` or `table`")
    found = statements_in(str(query) if query else f"SELECT * FROM {_table(spec)}")  # noqa: S608
    if len(found) > 1:
        raise BadTransfer("the query of a snowflake source is one statement")
    target = await find_target(call.credentials, spec.get("auth"))
    async with session_of(call, target, call.timeout) as session:
        cursor = session.connection.cursor()

        async def chunks() -> AsyncIterator[list[Row]]:
            await session.run(lambda: cursor.execute(found[0]))
            while fetched := await session.run(lambda: cursor.fetchmany(size)):
                rows = rows_of(cursor.description, fetched, json_as_text=json_as_text)
                yield [{folded(name): value for name, value in row.items()} for row in rows]

        yield chunks()


class SnowflakeTarget:
    """Writes chunks into one table."""

    def __init__(self, session: Session, table: str, key: Sequence[str], *, exact: bool) -> None:
        self._session = session
        self._table = table
        self._key = key
        self._exact = exact
        self._types: dict[str, tuple[str, str]] = {}

    async def describe(self) -> None:
        """Learn the table's columns: each under its name in small letters, with its own name and its type."""

        def work() -> list[Any]:
            found: list[Any] = self._session.connection.cursor().execute(f"DESCRIBE TABLE {self._table}").fetchall()
            return found

        described = await self._session.run(work)
        self._types = {str(row[0]).lower(): (str(row[0]), str(row[1]).upper()) for row in described}

    async def write(self, rows: list[Row]) -> int:
        """Insert rows, or update those whose key is there, and return how many."""
        columns = columns_of(rows)
        unknown = [name for name in (*columns, *self._key) if name.lower() not in self._types]
        if unknown:
            raise BadTransfer(
                f"the table {self._table} has no column {', '.join(unknown)}; name its columns in `mapping`"
            )
        rows = last_of_each(rows, self._key) if self._key else rows
        size = max(1, _MOST_VALUES // max(1, len(columns)))
        for start in range(0, len(rows), size):
            await self._send(columns, rows[start : start + size])
        return len(rows)

    async def _send(self, columns: list[str], rows: list[Row]) -> None:
        values = [self._text(name, row.get(name)) for row in rows for name in columns]
        text = self._statement(columns, len(rows))
        await self._session.run(lambda: self._session.connection.cursor().execute(text, values))

    async def clear(self) -> None:
        """Delete all rows, for everybody else only once the transfer is done."""
        await self.execute(f"DELETE FROM {self._table}")  # noqa: S608

    async def execute(self, text: str) -> None:
        """Run a statement."""
        await self._session.run(lambda: self._session.connection.cursor().execute(text))

    def _text(self, name: str, value: Any) -> str | None:
        _, kind = self._types[name.lower()]
        return json_text(value, exact=self._exact) if kind.partition("(")[0] in _PARSED else text_of(value)

    def _statement(self, columns: Sequence[str], count: int) -> str:
        names = [_quoted(self._types[name.lower()][0]) for name in columns]
        places = [f"c{place}" for place in range(1, len(columns) + 1)]
        casts = ", ".join(
            f"{self._cast(name, place)} AS {quoted}" for name, place, quoted in zip(columns, places, names, strict=True)
        )
        row = f"({', '.join('?' * len(columns))})"
        given = f"SELECT {casts} FROM (VALUES {', '.join([row] * count)}) AS v ({', '.join(places)})"  # noqa: S608
        if not self._key:
            return f"INSERT INTO {self._table} ({', '.join(names)}) {given}"
        return self._merge(columns, names, given)

    def _merge(self, columns: Sequence[str], names: Sequence[str], given: str) -> str:
        keys = {name.lower() for name in self._key}
        same = " AND ".join(
            f"t.{quoted} = s.{quoted}" for name, quoted in zip(columns, names, strict=True) if name.lower() in keys
        )
        others = [quoted for name, quoted in zip(columns, names, strict=True) if name.lower() not in keys]
        changes = ", ".join(f"{quoted} = s.{quoted}" for quoted in others)
        matched = f" WHEN MATCHED THEN UPDATE SET {changes}" if changes else ""
        values = ", ".join(f"s.{quoted}" for quoted in names)
        inserted = f"INSERT ({', '.join(names)}) VALUES ({values})"  # noqa: S608
        return f"MERGE INTO {self._table} AS t USING ({given}) AS s ON {same}{matched} WHEN NOT MATCHED THEN {inserted}"

    def _cast(self, name: str, place: str) -> str:
        kind = self._types[name.lower()][1]
        word = kind.partition("(")[0]
        if word in _PARSED:
            return f"PARSE_JSON({place}){_PARSED[word]}"
        return f"TO_BINARY({place}, 'BASE64')" if word == "BINARY" else f"{place}::{kind}"


@asynccontextmanager
async def snowflake_target(
    call: Call, spec: Mapping[str, Any], mode: str, *, exact: bool
) -> AsyncIterator[SnowflakeTarget]:
    """Lend a writer; everything it writes is committed together at the end, or nothing."""
    key = one_key(spec) if mode == "upsert" else []
    account = await find_target(call.credentials, spec.get("auth"))
    async with session_of(call, account, call.timeout) as session:
        target = SnowflakeTarget(session, _table(spec), key, exact=exact)
        await target.describe()
        await target.execute("BEGIN")
        if mode == "overwrite":
            await target.clear()
        # A session that ends without a commit takes back what it did.
        yield target
        await target.execute("COMMIT")


def _table(spec: Mapping[str, Any]) -> str:
    """Return a table's name for SQL; parts that need no quotes get none, so that they mean what they mean elsewhere."""
    name = str(spec.get("table") or "")
    parts = name.split(".")
    if not name or not all(parts) or len(parts) > 3:
        raise BadTransfer("a snowflake end of a transfer needs `table`: its name, with schema and database if need be")
    return ".".join(part if _PLAIN.fullmatch(part) else _quoted(part.strip('"')) for part in parts)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
