"""Executions that go on for nobody: one goes in, and why it does comes out, if its parent or one further up took it along.

A parent that failed takes along what it waited for, one that was cancelled all that it started, unless it was told not to.
Whoever ended it mostly stops them at once; here they are known by when that did not happen, or has not happened yet.
"""

from __future__ import annotations

from noetl.ledger.database import Database
from noetl.model.stream import Scope

ORPHANS = """
SELECT h.tenant_id, h.organization_id, h.execution_id, h.parent_execution_id FROM noetl.execution_head AS h
WHERE h.parent_execution_id IS NOT NULL AND h.requested_at < clock_timestamp() - make_interval(secs => $1)
AND NOT EXISTS (
    SELECT FROM noetl.execution_head AS p WHERE p.tenant_id = h.tenant_id AND p.organization_id = h.organization_id
    AND p.execution_id = h.parent_execution_id)
AND NOT h.execution_id = ANY ($2::bigint[]) ORDER BY h.requested_at LIMIT 200
"""
"""Open executions whose parent has ended, in all organizations, but those that are let be."""
_TAKES = """
SELECT parent.event_type FROM noetl.known_event AS parent JOIN noetl.known_event AS own
  ON own.execution_id = $2 AND own.event_type = 'execution.requested'
WHERE parent.execution_id = $1 AND CASE parent.event_type
    WHEN 'execution.cancelled' THEN parent.meta ->> 'cascade' IS NULL
    WHEN 'execution.failed' THEN own.meta ->> 'detached' IS NULL
    WHEN 'playbook.failed' THEN own.meta ->> 'detached' IS NULL
    ELSE false END
LIMIT 1
"""
# Upwards as far as executions are open: whoever is let be by an ended parent is the first of a family of its own.
_FIRST_ENDED_ABOVE = """
WITH RECURSIVE up AS (
    SELECT h.execution_id, h.parent_execution_id FROM noetl.execution_head AS h WHERE h.execution_id = $1
    UNION
    SELECT h.execution_id, h.parent_execution_id
    FROM up JOIN noetl.execution_head AS h ON h.execution_id = up.parent_execution_id
)
SELECT up.execution_id, up.parent_execution_id FROM up WHERE up.parent_execution_id IS NOT NULL AND NOT EXISTS (
    SELECT FROM noetl.execution_head AS p WHERE p.execution_id = up.parent_execution_id)
"""
KEPT = 10_000
"""Children that outlive their parents and are looked at once; beyond that, once more."""


class Orphans:
    """Tells them from those that may go on, and remembers the latter."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.let_be: set[int] = set()
        """Children that go on though their parent has ended."""

    async def why(self, scope: Scope, child_id: int, parent_id: int) -> str | None:
        """Say why a child goes on for nobody, its parent having ended; None if it may go on."""
        if child_id in self.let_be:
            return None
        async with self._database.transaction(scope) as connection:
            ended = await connection.fetchval(_TAKES, parent_id, child_id)
        if ended is None:
            if len(self.let_be) >= KEPT:
                self.let_be.clear()
            self.let_be.add(child_id)
            return None
        return f"its parent {parent_id} {'was cancelled' if ended == 'execution.cancelled' else 'ended as FAILED'}"

    async def why_below(self, scope: Scope, execution_id: int) -> str | None:
        """Say why an open execution goes on for nobody, whoever above it has ended; None if it may go on."""
        async with self._database.transaction(scope) as connection:
            row = await connection.fetchrow(_FIRST_ENDED_ABOVE, execution_id)
        if row is None:
            return None
        orphan = row["execution_id"]
        said = await self.why(scope, orphan, row["parent_execution_id"])
        return said if said is None or orphan == execution_id else f"of {orphan} above it {said}"
