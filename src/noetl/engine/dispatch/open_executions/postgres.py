"""Open executions in PostgreSQL: `noetl.execution_head`, and the events by which ended ones were requested."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from noetl.engine.dispatch.open_executions.port import Descendant, OpenExecution, OpenHead
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.stream import Scope

# Both of one moment: while the stream has this version, the execution is open.
_HEAD: Final = """
SELECT h.execution_id, s.version, h.catalog_id, h.path, h.parent_execution_id, h.parent_command_id
FROM noetl.execution_head AS h JOIN noetl.stream AS s ON s.stream_id = 'execution/' || h.execution_id::text
WHERE h.execution_id = $1
"""
_ENDED: Final = """
SELECT own.execution_id FROM unnest($1::bigint[]) AS own (execution_id)
WHERE NOT EXISTS (SELECT FROM noetl.execution_head AS known WHERE known.execution_id = own.execution_id)
"""
# What an execution was requested with is the first event of its stream: the others, however many, are not looked at.
_WAITED: Final = """
SELECT h.execution_id FROM noetl.execution_head AS h JOIN noetl.known_event AS e
    ON e.execution_id = h.execution_id AND e.stream_id = 'execution/' || h.execution_id::text AND e.stream_version = 1
WHERE h.parent_execution_id = $1 AND e.meta ->> 'detached' IS NULL
"""
_BELOW: Final = """
WITH RECURSIVE below AS (
    SELECT h.execution_id, h.parent_execution_id, 1 AS level FROM noetl.execution_head AS h
    WHERE h.parent_execution_id = ANY ($1::bigint[])
    UNION ALL
    SELECT h.execution_id, h.parent_execution_id, below.level + 1
    FROM below JOIN noetl.execution_head AS h ON h.parent_execution_id = below.execution_id
)
SELECT execution_id, parent_execution_id, level FROM below ORDER BY level, execution_id
"""
# Who started those that outlived their parents is known from what these were requested with.
_OUTLIVED: Final = """
WITH RECURSIVE up AS (
    SELECT h.execution_id, h.parent_execution_id, h.parent_execution_id AS above FROM noetl.execution_head AS h
    WHERE h.parent_execution_id IS NOT NULL AND NOT EXISTS (
        SELECT FROM noetl.execution_head AS p WHERE p.execution_id = h.parent_execution_id)
    UNION
    SELECT up.execution_id, up.parent_execution_id, e.parent_execution_id
    FROM up JOIN noetl.known_event AS e
        ON e.execution_id = up.above AND e.stream_id = 'execution/' || up.above::text AND e.stream_version = 1
    WHERE up.above <> $1 AND e.parent_execution_id IS NOT NULL
)
SELECT execution_id, parent_execution_id, 1 AS level FROM up WHERE above = $1 ORDER BY execution_id
"""
# Upwards as far as executions are open: whoever is let be by an ended parent is the first of a family of its own.
_TOP_OF: Final = """
WITH RECURSIVE up AS (
    SELECT h.tenant_id, h.organization_id, h.execution_id, h.parent_execution_id FROM noetl.execution_head AS h
    WHERE h.execution_id = $1
    UNION
    SELECT h.tenant_id, h.organization_id, h.execution_id, h.parent_execution_id
    FROM up JOIN noetl.execution_head AS h ON h.execution_id = up.parent_execution_id
)
SELECT * FROM up WHERE up.parent_execution_id IS NOT NULL AND NOT EXISTS (
    SELECT FROM noetl.execution_head AS p WHERE p.execution_id = up.parent_execution_id)
"""
_ORPHANS: Final = """
SELECT h.tenant_id, h.organization_id, h.execution_id, h.parent_execution_id FROM noetl.execution_head AS h
WHERE h.parent_execution_id IS NOT NULL AND h.requested_at < clock_timestamp() - make_interval(secs => $1)
AND NOT EXISTS (
    SELECT FROM noetl.execution_head AS p WHERE p.tenant_id = h.tenant_id AND p.organization_id = h.organization_id
    AND p.execution_id = h.parent_execution_id)
AND NOT h.execution_id = ANY ($2::bigint[]) ORDER BY h.requested_at LIMIT 200
"""
_OVERDUE: Final = """
SELECT h.tenant_id, h.organization_id, h.execution_id FROM noetl.execution_head AS h
WHERE h.deadline < clock_timestamp() ORDER BY h.deadline LIMIT 200
"""
_DECIDING: Final = """
INSERT INTO noetl.decision_begun AS own (tenant_id, organization_id, execution_id, version, times)
VALUES (noetl.tenant(), noetl.organization(), $1, $2, 1)
ON CONFLICT (tenant_id, organization_id, execution_id) DO UPDATE SET
    version = excluded.version, times = CASE WHEN own.version = excluded.version THEN own.times + 1 ELSE 1 END,
    begun_at = excluded.begun_at
RETURNING times
"""
# Of an execution that ended otherwise, or was never started: nobody decides about it any more.
_FORGET: Final = "DELETE FROM noetl.decision_begun WHERE begun_at < clock_timestamp() - interval '7 days'"
_DECIDED: Final = "DELETE FROM noetl.decision_begun WHERE execution_id = $1"
_IDLE: Final = """
SELECT h.tenant_id, h.organization_id, h.execution_id FROM noetl.execution_head AS h
WHERE h.requested_at < clock_timestamp() - make_interval(secs => $1) AND NOT EXISTS (
    SELECT FROM noetl.command AS c WHERE c.tenant_id = h.tenant_id AND c.organization_id = h.organization_id
    AND c.execution_id = h.execution_id) LIMIT 200
"""


class PostgresOpenExecutions:
    """See `OpenExecutions` for the promises."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def head(self, scope: Scope, execution_id: int) -> OpenHead | None:
        """Return an open execution with its version."""
        rows = await self._rows(scope, _HEAD, execution_id)
        return OpenHead(**rows[0]) if rows else None

    async def ended(self, scope: Scope, executions: Sequence[int]) -> list[int]:
        """Return those executions that are not open."""
        return [row["execution_id"] for row in await self._rows(scope, _ENDED, list(executions))]

    async def waited_for(self, scope: Scope, execution_id: int) -> list[int]:
        """Return the open executions that an execution waits for."""
        return [row["execution_id"] for row in await self._rows(scope, _WAITED, execution_id)]

    async def below(self, scope: Scope, executions: Sequence[int]) -> list[Descendant]:
        """Return the open executions below these."""
        return [Descendant(**row) for row in await self._rows(scope, _BELOW, list(executions))]

    async def outlived(self, scope: Scope, execution_id: int) -> list[Descendant]:
        """Return the open executions that an execution started and whose parent has ended."""
        return [Descendant(**row) for row in await self._rows(scope, _OUTLIVED, execution_id)]

    async def top_of(self, scope: Scope, execution_id: int) -> OpenExecution | None:
        """Return the highest execution above an open one, if its own parent has ended."""
        rows = await self._rows(scope, _TOP_OF, execution_id)
        return _execution(rows[0]) if rows else None

    async def orphans(self, idle_seconds: float, but: Collection[int]) -> list[OpenExecution]:
        """Return executions whose parent has ended."""
        return [_execution(row) for row in await self._rows(None, _ORPHANS, idle_seconds, list(but))]

    async def overdue(self) -> list[OpenExecution]:
        """Return executions whose time is over."""
        return [_execution(row) for row in await self._rows(None, _OVERDUE)]

    async def deciding(self, scope: Scope, execution_id: int, version: int) -> int:
        """Note that a lengthy decision begins, and return how many have."""
        async with self._database.transaction(scope, "runtime") as connection:
            await connection.execute(_FORGET)
            times: int = await connection.fetchval(_DECIDING, execution_id, version)
            return times

    async def decided(self, scope: Scope, execution_id: int) -> None:
        """Forget the lengthy decisions about an execution."""
        async with self._database.transaction(scope, "runtime") as connection:
            await connection.execute(_DECIDED, execution_id)

    async def idle(self, idle_seconds: float) -> list[OpenExecution]:
        """Return executions that have no command."""
        return [_execution(row) for row in await self._rows(None, _IDLE, idle_seconds)]

    async def _rows(self, scope: Scope | None, query: str, *values: Any) -> list[Any]:
        async with self._database.transaction(scope, "reaper" if scope is None else "runtime") as connection:
            return list(await connection.fetch(query, *values))


def _execution(row: Any) -> OpenExecution:
    scope = Scope(row["tenant_id"], row["organization_id"])
    return OpenExecution(scope, row["execution_id"], row.get("parent_execution_id"))
