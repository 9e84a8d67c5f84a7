"""The sink in a database of the user's: a typed table per version, a barrier beside it, and a view of the table's name.

Rows and barrier are written in one transaction there. A runner that came later has a higher attempt, which is written
first; whoever has a lower one is refused from then on.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg
import orjson

from noetl.engine.tools.postgres.target import Target
from noetl.errors import InputError, LeaseLost, Unavailable
from noetl.faults import reach
from noetl.kernel.ledger.postgres.database import LOST, Database
from noetl.language.view.definition import Definition
from noetl.model.stream import Scope
from noetl.services.views.barriers import Barrier, Batch, admit, count_late
from noetl.services.views.sinks.port import Held
from noetl.services.views.versions import ViewLease, hold

_BARRIERS: Final = "noetl_view_barrier"
_FIELDS: Final = "batch, since, mark, watermark, late, late_total, changed, removed, checkpoint, at"
_MAKE: Final = """
CREATE TABLE IF NOT EXISTS {barriers} (version_id uuid NOT NULL, batch bigint NOT NULL, since text NOT NULL,
    mark text NOT NULL, watermark timestamptz, late bigint NOT NULL, late_total bigint NOT NULL, changed bigint NOT NULL,
    removed bigint NOT NULL, checkpoint text NOT NULL, at timestamptz NOT NULL, PRIMARY KEY (version_id, batch));
CREATE TABLE IF NOT EXISTS {barriers}_runner (version_id uuid PRIMARY KEY, attempt integer NOT NULL)
"""
_TAKE: Final = """
INSERT INTO {barriers}_runner AS r VALUES ($1, $2)
ON CONFLICT (version_id) DO UPDATE SET attempt = greatest(r.attempt, excluded.attempt) RETURNING attempt
"""
_TYPES: Final = {
    "string": "text",
    "bigint": "bigint",
    "int": "integer",
    "smallint": "smallint",
    "tinyint": "smallint",
    "double": "double precision",
    "float": "real",
    "boolean": "boolean",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "date": "date",
}
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class TableSink:
    """The rows of one version in a table of the user's database."""

    def __init__(
        self,
        target: Callable[[], Awaitable[Target]],
        database: Database,
        scope: Scope,
        version_id: str,
        definition: Definition,
        lease: ViewLease | None = None,
    ) -> None:
        self._target = target
        self._database = database
        self._scope = scope
        self._version_id = version_id
        self._definition = definition
        self._lease = lease
        schema, _, name = (definition.table or definition.name).rpartition(".")
        above = f"{quoted(schema)}." if schema else ""
        self._name = f"{above}{quoted(name)}"
        self._above, self._bare = above, name
        self._table = self._table_of(version_id)
        self._barriers = f"{above}{_BARRIERS}"
        self._connection: asyncpg.Connection | None = None

    async def open(self) -> None:
        """Make the table of barriers, and shut out whoever ran the version before."""
        async with self._transaction() as connection:
            await connection.execute(_MAKE.format(barriers=self._barriers))
            await self._hold(connection)

    async def standing(self) -> Barrier | None:
        """Return the newest barrier."""
        async with self._transaction() as connection:
            known = await connection.fetchval("SELECT to_regclass($1)", self._barriers)
            return None if known is None else await self._newest(connection)

    async def apply(self, batch: Batch) -> Barrier:
        """Write rows and barrier in one transaction of the user's database."""
        reach("view.before_apply")
        async with self._database.transaction(self._scope) as own:
            await hold(own, self._lease, self._definition.name)
            late = await count_late(own, batch, self._definition)
        async with self._transaction() as connection:
            await self._hold(connection)
            standing = await self._newest(connection)
            if admit(batch, standing, self._definition.name) == "covered":
                assert standing is not None
                return standing
            await self._make(connection, batch)
            changed, removed = await self._write(connection, batch)
            total = late + (0 if standing is None else standing.late_total)
            row = (batch.batch, batch.start, batch.mark, batch.late_until, late, total, changed, removed)
            await connection.execute(
                f"INSERT INTO {self._barriers} (version_id, {_FIELDS}) "  # noqa: S608 - names of ours
                "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, clock_timestamp())",
                self._version_id, *row, batch.checkpoint,
            )  # fmt: skip
            forget = f"DELETE FROM {self._barriers} WHERE version_id = $1 AND batch < $2 AND late = 0"  # noqa: S608
            await connection.execute(forget, self._version_id, batch.batch)
            stands = await self._newest(connection)
            reach("view.before_commit")
        reach("view.after_commit")
        assert stands is not None
        return stands

    async def held(self) -> Held:
        """Return barrier and rows as they are at one moment."""
        async with self._transaction(isolation="repeatable_read") as connection:
            if await connection.fetchval("SELECT to_regclass($1)", self._barriers) is None:
                return Held(barrier=None, late=(), rows={})
            barrier = await self._newest(connection)
            late = await connection.fetch(
                f"SELECT {_FIELDS} FROM {self._barriers} WHERE version_id = $1 AND late > 0 ORDER BY batch",  # noqa: S608
                self._version_id,
            )
            rows: list[Any] = []
            if await connection.fetchval("SELECT to_regclass($1)", self._table) is not None:
                told = f"SELECT noetl_key, noetl_value FROM {self._table}"  # noqa: S608
                rows = await connection.fetch(told)
        found = {row["noetl_key"]: orjson.loads(row["noetl_value"]) for row in rows}
        return Held(barrier=barrier, late=tuple(Barrier(**dict(row)) for row in late), rows=found)

    async def serve(self) -> None:
        """Let the name people read mean the table of this version."""
        async with self._transaction() as connection:
            kind = await connection.fetchval("SELECT relkind FROM pg_class WHERE oid = to_regclass($1)", self._name)
            if kind not in (None, b"v"):
                raise InputError(
                    f"view {self._definition.name}: {self._name} is there already and is no view",
                    hint="name another table under sink, or drop that one",
                )
            columns = await connection.fetch(
                "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped"
                " AND attname NOT IN ('noetl_key', 'noetl_value') ORDER BY attnum",
                self._table,
            )
            shown = ", ".join(quoted(row["attname"]) for row in columns)
            await connection.execute(f"DROP VIEW IF EXISTS {self._name}")
            await connection.execute(f"CREATE VIEW {self._name} AS SELECT {shown} FROM {self._table}")  # noqa: S608

    async def clear(self, versions: Sequence[str]) -> None:
        """Drop the tables of other versions."""
        async with self._transaction() as connection:
            await connection.execute(_MAKE.format(barriers=self._barriers))
            for version_id in versions:
                if version_id == self._version_id:
                    await connection.execute(f"DROP VIEW IF EXISTS {self._name}")
                await connection.execute(f"DROP TABLE IF EXISTS {self._table_of(version_id)}")
                await connection.execute(f"DELETE FROM {self._barriers} WHERE version_id = $1", version_id)  # noqa: S608

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()

    def _table_of(self, version_id: str) -> str:
        return f"{self._above}{quoted(f'{self._bare}_{version_id[:8]}')}"

    async def _hold(self, connection: asyncpg.Connection) -> None:
        if self._lease is None:
            raise LeaseLost(f"view {self._definition.name} is not run by this process")
        taken = await connection.fetchval(_TAKE.format(barriers=self._barriers), self._version_id, self._lease.attempt)
        if taken != self._lease.attempt:
            raise LeaseLost(f"view {self._definition.name} is no longer run by this process")

    async def _newest(self, connection: asyncpg.Connection) -> Barrier | None:
        row = await connection.fetchrow(
            f"SELECT {_FIELDS} FROM {self._barriers} WHERE version_id = $1 ORDER BY batch DESC LIMIT 1",  # noqa: S608
            self._version_id,
        )
        return None if row is None else Barrier(**dict(row))

    async def _make(self, connection: asyncpg.Connection, batch: Batch) -> None:
        if await connection.fetchval("SELECT to_regclass($1)", self._table) is not None:
            return
        columns = ", ".join(f"{quoted(name)} {_type(kind)}" for name, kind in batch.columns)
        await connection.execute(
            f"CREATE TABLE {self._table} ({columns}, noetl_key text PRIMARY KEY, noetl_value jsonb NOT NULL)"
        )

    async def _write(self, connection: asyncpg.Connection, batch: Batch) -> tuple[int, int]:
        changed = removed = 0
        if batch.rows:
            names = [quoted(name) for name, _ in batch.columns]
            told = ", ".join(names)
            said = await connection.execute(
                f"INSERT INTO {self._table} AS r ({told}, noetl_key, noetl_value) "  # noqa: S608 - names are quoted
                f"SELECT {', '.join(f'n.{name}' for name in names)}, g.key, g.value::jsonb "
                f"FROM unnest($1::text[], $2::text[]) AS g (key, value), "
                f"LATERAL jsonb_populate_record(NULL::{self._table}, g.value::jsonb) AS n "
                "ON CONFLICT (noetl_key) DO UPDATE SET "
                + ", ".join(f"{name} = excluded.{name}" for name in (*names, "noetl_value"))
                + " WHERE r.noetl_value IS DISTINCT FROM excluded.noetl_value",
                list(batch.rows),
                list(batch.rows.values()),
            )
            changed = _count(said)
        if batch.whole:
            said = await connection.execute(
                f"DELETE FROM {self._table} WHERE NOT noetl_key = ANY ($1::text[])",  # noqa: S608
                list(batch.rows),
            )
            removed = _count(said)
        elif batch.gone:
            said = await connection.execute(
                f"DELETE FROM {self._table} WHERE noetl_key = ANY ($1::text[])",  # noqa: S608
                batch.gone,
            )
            removed = _count(said)
        return changed, removed

    @asynccontextmanager
    async def _transaction(self, isolation: Any = None) -> AsyncIterator[asyncpg.Connection]:
        try:
            if self._connection is None or self._connection.is_closed():
                target = await self._target()
                self._connection = await target.connect_as_driver()
            async with self._connection.transaction(isolation=isolation):
                yield self._connection
        except LOST as problem:
            self._connection = None
            said = f"view {self._definition.name}: the database of its table does not answer ({type(problem).__name__})"
            raise Unavailable(said) from problem
        except asyncpg.PostgresError as problem:
            raise InputError(f"view {self._definition.name}: its table cannot be written: {problem}") from problem


def quoted(name: str) -> str:
    """Return a name as SQL takes it."""
    if not _WORD.fullmatch(name):
        raise InputError(f"{name!r} cannot be the name of a column", hint="give it another one with AS")
    return f'"{name}"'


def _type(kind: str) -> str:
    return _TYPES.get(kind, kind.replace("decimal", "numeric") if kind.startswith("decimal") else "jsonb")


def _count(said: str) -> int:
    return int(said.rsplit(" ", 1)[1])
