"""Removes rows of slots that ended long ago, in all organizations. Their events stay for as long as the ledger keeps them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.transition import Transition
from noetl.model.event import time_text
from noetl.model.stream import Scope
from noetl.services.schedule.drafts import Said, ScheduleDrafts, Told
from noetl.services.schedule.handlers.port import Outcome, SlotRun
from noetl.services.schedule.spec import Spec

PRUNE_SLOTS: Final = "prune_slots"
PRUNE_SPEC: Final = Spec(
    expression="17 3 * * *", run_timeout_seconds=1_800.0, stale_timeout_seconds=2_400.0, heartbeat_seconds=30.0
)
_PAGE: Final = 500
_OLD: Final = """
SELECT tenant_id, organization_id, schedule_id::text AS schedule_id, count(*) AS slots FROM noetl.cron_slot
WHERE status <> 'RUNNING' AND next_retry_at IS NULL AND finished_at < CASE status WHEN 'SUCCESS' THEN $1::timestamptz ELSE $2::timestamptz END
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 LIMIT $3
"""


class PruneSlots:
    """The job `prune_slots` of the platform."""

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        mint_many: Callable[[int], list[int]],
        producer: str,
        *,
        succeeded_days: float = 30.0,
        failed_days: float = 90.0,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._drafts = ScheduleDrafts(mint_many, producer)
        self._keeps = timedelta(days=succeeded_days), timedelta(days=failed_days)

    async def __call__(self, slot: SlotRun) -> Outcome:
        """Remove what is old by the database's time, schedule by schedule."""
        async with self._database.transaction(None, "reaper") as connection:
            now = await connection.fetchval("SELECT clock_timestamp()")
        succeeded, failed = (now - kept for kept in self._keeps)
        said = Said("slot.pruned", {"succeeded_before": time_text(succeeded), "failed_before": time_text(failed)})
        removed = 0
        while True:
            async with self._database.transaction(None, "reaper") as connection:
                rows = await connection.fetch(_OLD, succeeded, failed, _PAGE)
            if not rows:
                return Outcome(rows_affected=removed)
            by_scope: dict[Scope, list[Told]] = {}
            for row in rows:
                scope = Scope(row["tenant_id"], row["organization_id"])
                # Whatever else happens to the schedule: what ended before a time in the past ended before it.
                by_scope.setdefault(scope, []).append(Told(scope, row["schedule_id"], None, (said,)))
            for told in by_scope.values():
                await self._ledger.transact(Transition(tuple(self._drafts.appends(told))))
            removed += sum(row["slots"] for row in rows)
