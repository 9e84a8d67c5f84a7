"""The sink in our own database: rows of all views in one table, under row-level security, each named by version and key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson

from noetl.faults import reach
from noetl.kernel.ledger.postgres.database import Connection, Database, bind, translated
from noetl.language.view.definition import Definition
from noetl.model.stream import Scope
from noetl.services.views.barriers import Barrier, Batch, admit, count_late, newest, put, with_late
from noetl.services.views.sinks.port import Held
from noetl.services.views.versions import ViewLease, hold

_UPSERT: Final = """
INSERT INTO noetl.view_row AS r (tenant_id, organization_id, version_id, key, value, barrier)
SELECT noetl.tenant(), noetl.organization(), $1, n.key, n.value::jsonb, $4
FROM unnest($2::text[], $3::text[]) AS n (key, value)
ON CONFLICT (tenant_id, organization_id, version_id, key)
DO UPDATE SET value = excluded.value, barrier = excluded.barrier WHERE r.value IS DISTINCT FROM excluded.value
"""
_REMOVE: Final = "DELETE FROM noetl.view_row WHERE version_id = $1 AND key = ANY ($2::text[])"
_REMOVE_OTHERS: Final = "DELETE FROM noetl.view_row WHERE version_id = $1 AND NOT key = ANY ($2::text[])"
_ROWS: Final = "SELECT key, value FROM noetl.view_row WHERE version_id = $1 ORDER BY key"
_CLEAR: Final = """
WITH gone AS (DELETE FROM noetl.view_row WHERE version_id = ANY ($1::uuid[]))
DELETE FROM noetl.view_barrier WHERE version_id = ANY ($1::uuid[])
"""


class OwnRows:
    """The rows of one version in `noetl.view_row`, as the holder of a lease writes them, or anybody reads them."""

    def __init__(
        self, database: Database, scope: Scope, version_id: str, definition: Definition, lease: ViewLease | None = None
    ) -> None:
        self._database = database
        self._scope = scope
        self._version_id = version_id
        self._definition = definition
        self._lease = lease

    async def open(self) -> None:
        """There is nothing to make, and every write is fenced by the lease."""

    async def standing(self) -> Barrier | None:
        """Return the newest barrier."""
        async with self._database.transaction(self._scope) as connection:
            return await newest(connection, self._version_id)

    async def apply(self, batch: Batch) -> Barrier:
        """Write rows and barrier in one transaction, under the lease."""
        reach("view.before_apply")
        async with self._database.transaction(self._scope) as connection:
            await hold(connection, self._lease, self._definition.name)
            standing = await newest(connection, self._version_id)
            if admit(batch, standing, self._definition.name) == "covered":
                assert standing is not None
                return standing
            changed, removed = await self._write(connection, batch)
            late = await count_late(connection, batch, self._definition)
            await put(connection, self._version_id, batch, standing, late, changed, removed)
            stands = await newest(connection, self._version_id)
            reach("view.before_commit")
        reach("view.after_commit")
        assert stands is not None
        return stands

    async def held(self) -> Held:
        """Return barrier and rows as they are at one moment."""
        pool = await self._database.pool()
        with translated():
            async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
                await bind(connection, self._scope)
                barrier = await newest(connection, self._version_id)
                late = await with_late(connection, self._version_id)
                rows = await connection.fetch(_ROWS, self._version_id)
        return Held(barrier=barrier, late=tuple(late), rows={row["key"]: orjson.loads(row["value"]) for row in rows})

    async def serve(self) -> None:
        """The row of the version says which one serves."""

    async def clear(self, versions: Sequence[str]) -> None:
        """Delete rows and barriers of other versions."""
        async with self._database.transaction(self._scope) as connection:
            await connection.execute(_CLEAR, list(versions))

    async def close(self) -> None:
        """The connections are the database's."""

    async def _write(self, connection: Connection, batch: Batch) -> tuple[int, int]:
        keys = list(batch.rows)
        changed = removed = 0
        if keys:
            said = await connection.execute(_UPSERT, self._version_id, keys, list(batch.rows.values()), batch.batch)
            changed = _count(said)
        if batch.whole:
            removed = _count(await connection.execute(_REMOVE_OTHERS, self._version_id, keys))
        elif batch.gone:
            removed = _count(await connection.execute(_REMOVE, self._version_id, batch.gone))
        return changed, removed


def _count(said: str) -> int:
    return int(said.rsplit(" ", 1)[1])
