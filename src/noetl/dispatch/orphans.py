"""Children that go on for nobody: those of an execution that failed or was cancelled, when whoever ended it did not come to them."""

from __future__ import annotations

from noetl.dispatch.executions import Executions
from noetl.ledger.database import Database
from noetl.model.stream import Scope
from noetl.plan.trigger import Cancelled

ORPHANS = """
SELECT h.tenant_id, h.organization_id, h.execution_id, h.parent_execution_id FROM noetl.execution_head AS h
WHERE h.parent_execution_id IS NOT NULL AND h.requested_at < clock_timestamp() - make_interval(secs => $1)
AND NOT EXISTS (
    SELECT FROM noetl.execution_head AS p WHERE p.tenant_id = h.tenant_id AND p.organization_id = h.organization_id
    AND p.execution_id = h.parent_execution_id)
AND NOT h.execution_id = ANY ($2::bigint[]) ORDER BY h.requested_at LIMIT 200
"""
"""Open executions whose parent has ended, in all organizations, but those that are let be."""
# A failed parent takes along what it waited for, a cancelled one all it had started by then.
_TAKES = """
SELECT parent.event_type FROM noetl.known_event AS parent JOIN noetl.known_event AS own
  ON own.execution_id = $2 AND own.event_type = 'execution.requested'
WHERE parent.execution_id = $1 AND CASE parent.event_type
    WHEN 'execution.cancelled' THEN parent.meta ->> 'cascade' IS NULL
        AND (own.meta ->> 'detached' IS NULL OR own.event_time <= parent.event_time)
    WHEN 'execution.failed' THEN own.meta ->> 'detached' IS NULL
    WHEN 'playbook.failed' THEN own.meta ->> 'detached' IS NULL
    ELSE false END
LIMIT 1
"""
KEPT = 10_000
"""Children that outlive their parents and are looked at once; beyond that, once more."""


class Orphans:
    """Stops them, and remembers which may go on."""

    def __init__(self, database: Database, executions: Executions) -> None:
        self._database = database
        self._executions = executions
        self.let_be: set[int] = set()
        """Children that go on though their parent has ended."""

    async def stopped(self, scope: Scope, child_id: int, parent_id: int) -> bool:
        """Stop a child if its parent takes it along."""
        async with self._database.transaction(scope) as connection:
            ended = await connection.fetchval(_TAKES, parent_id, child_id)
        if ended is None:
            if len(self.let_be) >= KEPT:
                self.let_be.clear()
            self.let_be.add(child_id)
            return False
        was = "was cancelled" if ended == "execution.cancelled" else "ended as FAILED"
        wish = Cancelled(reason=f"its parent {parent_id} {was}", by=f"execution/{parent_id}")
        return bool((await self._executions.trigger(scope, child_id, wish)).facts)
