"""Slots that wait to be tried again and slots whose runner was lost: all that are due are found and decided about."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from noetl.faults import reach
from noetl.kernel.leases import statements
from noetl.kernel.leases.kinds import SLOT
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.event import time_text
from noetl.services.schedule import planning
from noetl.services.schedule.claims import MINE, Able, Claiming
from noetl.services.schedule.drafts import Said
from noetl.services.schedule.held_slot import Held
from noetl.services.schedule.meter import Meter
from noetl.services.schedule.rows import DUE_COLUMNS, DueRow, as_due

_SCHEDULE: Final = "JOIN noetl.schedule AS c USING (tenant_id, organization_id, schedule_id)"
_COLUMNS: Final = f"""
{DUE_COLUMNS}, s.plan_time, s.status, s.attempt AS slot_attempt, s.max_attempts AS slot_max_attempts,
       s.next_retry_at, s.lease_until, s.runner
"""
_RETRIES: Final = f"""
SELECT {_COLUMNS} FROM noetl.cron_slot AS s {_SCHEDULE}
WHERE {SLOT.free("s", now="$3")} AND NOT c.paused AND (c.removed_at IS NOT NULL OR {MINE})
ORDER BY {SLOT.first("s")} LIMIT $4
"""  # noqa: S608
_STALE: Final = statements.expired(SLOT, _COLUMNS, "s", _SCHEDULE, now="$1", limit="$2")


class TakingBack:
    """Decides about slots that stand, for one process."""

    def __init__(self, database: Database, claiming: Claiming, able: Able, meter: Meter) -> None:
        self._database = database
        self._claiming = claiming
        self._able = able
        self._meter = meter

    async def take_back(self, limit: int) -> tuple[bool, list[Held]]:
        """Look once; tell whether anything was decided, and return the slots that this process holds now.

        A lease that ran out is recorded first, so that the attempt that was lost is in the ledger before the next begins.
        """
        now, found = await self._found(limit)
        by_schedule: dict[tuple[Any, ...], list[Any]] = {}
        for row in found:
            by_schedule.setdefault((row["tenant_id"], row["organization_id"], row["schedule_id"]), []).append(row)
        decided = await asyncio.gather(*(self._decided(rows, now) for rows in by_schedule.values()))
        recorded = [held for held in decided if held is not None]
        return bool(recorded), [one for held in recorded for one in held]

    async def _found(self, limit: int) -> tuple[datetime, list[Any]]:
        async with self._database.transaction(None, "reaper") as connection:
            now = await connection.fetchval("SELECT clock_timestamp()")
            rows = await connection.fetch(_STALE, now, limit)
            rows += await connection.fetch(_RETRIES, self._able.kinds, self._able.platform_jobs, now, limit)
        return now, rows

    async def _decided(self, rows: Sequence[Any], now: datetime) -> list[Held] | None:
        schedule = as_due(rows[0])
        said = [found for row in rows if (found := self._said(schedule, row, now)) is not None]
        if not said:
            return None
        reach("slot.before_stale")
        held = await self._claiming.claim_again([(schedule, said)])
        reach("slot.after_stale")
        if held:
            self._meter.slots_claimed(schedule.kind, "retried", len(held))
        return held

    def _said(self, schedule: DueRow, row: Any, now: datetime) -> Said | None:
        facts = planning.SlotFacts(
            plan_time=row["plan_time"],
            status=row["status"],
            attempt=row["slot_attempt"],
            max_attempts=row["slot_max_attempts"],
            next_retry_at=row["next_retry_at"],
            lease_until=row["lease_until"],
        )
        meta: dict[str, Any] = {"plan_time": time_text(facts.plan_time), "attempt": facts.attempt}
        lost = f"its runner {row['runner']} was lost in attempt {facts.attempt}"
        match planning.verdict(schedule.spec, facts, now):
            case "retry" if schedule.removed_at is None:
                return self._claiming.retried(schedule, facts.plan_time, facts.attempt + 1, facts.max_attempts)
            case "stale_retry" if schedule.removed_at is None:
                # The wait for the lease's end was wait enough.
                return Said("slot.abandoned", {**meta, "error_code": "stale_timeout", "delay_seconds": 0}, error=lost)
            case "stale_retry" | "stale_failed":
                return Said("slot.failed", {**meta, "error_code": "stale_timeout"}, error=lost)
            case "retry":
                error = "its schedule was removed before it could be tried again"
                return Said("slot.failed", {**meta, "error_code": "schedule_removed"}, error=error)
            case "too_old":
                error = "it could not be tried again before it was older than the schedule catches up with"
                return Said("slot.failed", {**meta, "error_code": "too_old"}, error=error)
            case None:
                return None
