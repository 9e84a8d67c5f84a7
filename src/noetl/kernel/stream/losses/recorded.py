"""Losses that nodes recorded in the database: what notes tell goes in, and every node is told of it until it is acknowledged.

A fact that came to the ledger after all is struck out, by whoever looks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from noetl.faults import reach
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.stream.losses.journal import Noted
from noetl.model.stream import Scope

_RECORD: Final = """
INSERT INTO noetl.lost_fact
    (tenant_id, organization_id, event_id, execution_id, shard, sequence, stream_created)
SELECT $1, $2, lost.* FROM unnest($3::bigint[], $4::bigint[], $5::smallint[], $6::bigint[], $7::text[]) AS lost
ON CONFLICT DO NOTHING
"""
_ACKNOWLEDGE: Final = """
UPDATE noetl.lost_fact SET acknowledged_at = clock_timestamp() WHERE event_id = ANY ($1) AND acknowledged_at IS NULL
"""
_ACKNOWLEDGED_OF: Final = """
SELECT event_id FROM noetl.lost_fact WHERE event_id = ANY ($1) AND acknowledged_at IS NOT NULL
"""
_STRIKE: Final = """
DELETE FROM noetl.lost_fact AS l WHERE EXISTS (
    SELECT FROM noetl.event AS e WHERE e.execution_id = l.execution_id AND e.event_id = l.event_id)
"""
_SCOPES: Final = "SELECT DISTINCT tenant_id, organization_id FROM noetl.lost_fact WHERE acknowledged_at IS NULL"
_TOLD: Final = """
SELECT stream_created, sequence, shard, tenant_id, organization_id, execution_id, event_id FROM noetl.lost_fact
WHERE acknowledged_at IS NULL ORDER BY event_id
"""
_COUNTS: Final = """
SELECT count(*) FILTER (WHERE acknowledged_at IS NULL) AS told,
       count(*) FILTER (WHERE acknowledged_at IS NOT NULL) AS acknowledged FROM noetl.lost_fact
"""


class RecordedLosses:
    """What all nodes of a database know to be lost, of all tenants."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, lost: Sequence[Noted]) -> None:
        """Let every node know of these; what is recorded already stays as it is."""
        for scope, mine in _by_scope(lost).items():
            reach("lost.before_record")
            async with self._database.transaction(scope) as connection:
                await _record(connection, scope, mine)
            reach("lost.after_record")

    async def acknowledge(self, lost: Sequence[Noted]) -> None:
        """Let nobody tell of these any more, recorded before or not."""
        for scope, mine in _by_scope(lost).items():
            async with self._database.transaction(scope) as connection:
                await _record(connection, scope, mine)
                await connection.execute(_ACKNOWLEDGE, [one.event_id for one in mine])

    async def acknowledged_of(self, lost: Sequence[Noted]) -> list[Noted]:
        """Return those of the facts whose loss somebody acknowledged, on whichever node."""
        found: list[Noted] = []
        for scope, mine in _by_scope(lost).items():
            async with self._database.transaction(scope) as connection:
                rows = await connection.fetch(_ACKNOWLEDGED_OF, [one.event_id for one in mine])
            known = {row["event_id"] for row in rows}
            found += [one for one in mine if one.event_id in known]
        return found

    async def told(self) -> list[Noted]:
        """Return the facts that are lost and that nobody acknowledged; what came to the ledger after all is struck out."""
        await self._strike()
        return [Noted(*row) for row in await self._read(_TOLD)]

    async def counts(self) -> tuple[int, int]:
        """Return how many losses are told of, and how many are acknowledged."""
        await self._strike()
        ((told, acknowledged),) = await self._read(_COUNTS)
        return told, acknowledged

    async def _strike(self) -> None:
        for tenant_id, organization_id in await self._read(_SCOPES):
            async with self._database.transaction(Scope(tenant_id, organization_id)) as connection:
                await connection.execute(_STRIKE)

    async def _read(self, query: str) -> list[Any]:
        async with self._database.transaction(None, "projector") as connection:
            return list(await connection.fetch(query))


async def _record(connection: Connection, scope: Scope, lost: Sequence[Noted]) -> None:
    await connection.execute(
        _RECORD, scope.tenant_id, scope.organization_id, [one.event_id for one in lost],
        [one.execution_id for one in lost], [one.shard for one in lost], [one.sequence for one in lost],
        [one.created for one in lost],
    )  # fmt: skip


def _by_scope(lost: Iterable[Noted]) -> dict[Scope, list[Noted]]:
    found: dict[Scope, list[Noted]] = defaultdict(list)
    for one in lost:
        found[one.scope].append(one)
    return found
