"""Finds what is due in all organizations and claims it: many moments with few statements, each claimed once.

Who claims appends to the schedule's stream at the version it read, so that of several schedulers one wins; a moment whose
lease is written is given back to the caller as held.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from noetl.errors import AlreadyRecorded, Conflict
from noetl.faults import reach
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.event import time_text
from noetl.services.schedule import planning
from noetl.services.schedule.drafts import Said, ScheduleDrafts, Told
from noetl.services.schedule.held_slot import Held
from noetl.services.schedule.meter import Meter
from noetl.services.schedule.planning import Plan, Skip, plan
from noetl.services.schedule.rows import DUE_COLUMNS, DueRow, as_due
from noetl.services.schedule.spec import Kind

_log = logging.getLogger(__name__)
_TURNS: Final = 3
"""Turns of the loop after which a chunk is on its way: the server writes it while the next one is made."""
_text = lru_cache(4096)(time_text)
"""Moments as text: thousands of schedules share a few."""
CHUNK: Final = 500
"""Schedules claimed in one group, which stands or falls as a whole."""

TRIES: Final = 5
"""How often a chunk is read again before it is left to the next look."""

MINE: Final = "c.kind = ANY ($1::text[]) AND (c.kind <> 'platform' OR c.target ->> 'handler' = ANY ($2::text[]))"
"""What this process has handlers for."""
_DUE: Final = f"""
SELECT {DUE_COLUMNS} FROM noetl.schedule AS c WHERE c.next_due <= $3 AND {MINE} ORDER BY c.next_due LIMIT $4
"""  # noqa: S608

_STILL: Final = f"""
SELECT {DUE_COLUMNS} FROM unnest($1::uuid[]) AS own (schedule_id) CROSS JOIN LATERAL (
    SELECT * FROM noetl.schedule AS one WHERE one.schedule_id = own.schedule_id AND one.next_due <= $2
) AS c
"""  # noqa: S608


class Able(msgspec.Struct, frozen=True):
    """What a process has handlers for."""

    kinds: tuple[Kind, ...]
    platform_jobs: tuple[str, ...] = ()


class Claiming:
    """Claims moments for one process, whose name is in the leases."""

    def __init__(
        self, database: Database, ledger: Ledger, drafts: ScheduleDrafts, runner: str, able: Able, meter: Meter
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._drafts = drafts
        self._runner = runner
        self._able = able
        self._meter = meter

    async def claim_due(self, limit: int) -> list[Held]:
        """Look once for at most so many schedules that are due, and return the slots that are held now."""
        async with self._database.transaction(None, "reaper") as connection:
            now = await connection.fetchval("SELECT clock_timestamp()")
            rows = await connection.fetch(_DUE, self._able.kinds, self._able.platform_jobs, now, limit)
        by_scope: dict[tuple[str, str], list[Any]] = {}
        for row in rows:
            by_scope.setdefault((row["tenant_id"], row["organization_id"]), []).append(row)
        reach("slot.before_claim")
        claims = []
        for found in by_scope.values():
            for start in range(0, len(found), CHUNK):
                chunk = [as_due(row) for row in found[start : start + CHUNK]]
                claims.append(asyncio.get_running_loop().create_task(self._claim(chunk, now)))
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
        held = await asyncio.gather(*claims)
        reach("slot.after_claim")
        return [one for some in held for one in some]

    async def _claim(self, rows: Sequence[DueRow], now: datetime) -> list[Held]:
        """Claim a chunk; as long as somebody moves one of them meanwhile, those that are still due are read again."""
        for _ in range(TRIES):
            planned = [(row, found) for row in rows if (found := _planned(row, now)) is not None]
            if not planned:
                return []
            told = [Told(row.scope, row.schedule_id, row.version, self._said(row, own)) for row, own in planned]
            at = time.monotonic()
            try:
                appends = await self._recorded(told, rows[0].kind)
            except AlreadyRecorded:
                return await self._claim_apart(planned, now)
            if appends is not None:
                held = [
                    one for (row, _), append in zip(planned, appends, strict=True) for one in holding(row, append, at)
                ]
                for one in held:
                    self._meter.slots_claimed(one.kind, "won")
                return held
            rows, now = await self._still_due([row for row, _ in planned])
        return []

    async def _claim_apart(self, planned: Sequence[tuple[DueRow, Plan]], now: datetime) -> list[Held]:
        """Claim the halves of a chunk in which a slot stands already: that one is passed over, and the others are not."""
        if len(planned) > 1:
            half = len(planned) // 2
            parts = [[row for row, _ in some] for some in (planned[:half], planned[half:])]
            return [held for part in parts for held in await self._claim(part, now)]
        ((row, own),) = planned
        _log.error("a slot of %s stands already and is passed over: %s", row.name, own.plans)
        skips = [
            Skip(reason="stands_already", count=1, first=moment, last=moment) for moment in own.plans
        ]  # fmt: skip
        passed = Plan(plans=(), skips=(*own.skips, *skips), next_plan=own.next_plan)
        await self._recorded([Told(row.scope, row.schedule_id, row.version, self._said(row, passed))], row.kind)
        return []

    async def _still_due(self, rows: Sequence[DueRow]) -> tuple[list[DueRow], datetime]:
        async with self._database.transaction(rows[0].scope) as connection:
            now: datetime = await connection.fetchval("SELECT clock_timestamp()")
            found = await connection.fetch(_STILL, [row.schedule_id for row in rows], now)
        return [as_due(row) for row in found], now

    async def claim_one(self, row: DueRow, plan_time: datetime) -> Held | None:
        """Claim a moment that nobody planned, because somebody wants the schedule run now."""
        meta = {**self._claimed(row, plan_time, 1, row.spec.max_attempts), "manual": True}
        told = Told(row.scope, row.schedule_id, row.version, (Said("slot.claimed", meta),))
        at = time.monotonic()
        appends = await self._recorded([told], row.kind)
        return None if appends is None else holding(row, appends[0], at)[0]

    async def claim_again(self, told: Sequence[tuple[DueRow, list[Said]]]) -> list[Held] | None:
        """Record what was decided about slots and return those that are held now; None if somebody was quicker."""
        at = time.monotonic()
        appends = await self._recorded(
            [Told(row.scope, row.schedule_id, row.version, said) for row, said in told], told[0][0].kind
        )
        if appends is None:
            return None
        return [held for (row, _), append in zip(told, appends, strict=True) for held in holding(row, append, at)]

    async def _recorded(self, told: Sequence[Told], kind: Kind) -> list[Append] | None:
        """Record all of it, or nothing if somebody else was quicker at one of the schedules."""
        if not told:
            return []
        appends = self._drafts.appends(told)
        try:
            await self._ledger.transact(Transition(tuple(appends)))
        except AlreadyRecorded:
            raise
        except Conflict:
            self._meter.slots_claimed(kind, "conflicted", len(told))
            return None
        return appends

    def _said(self, row: DueRow, own: Plan) -> list[Said]:
        said = []
        for skip in own.skips:
            coming = planning.following(row.spec, skip.last)
            meta: dict[str, Any] = {
                "reason": skip.reason,
                "count": skip.count,
                "first_plan": time_text(skip.first),
                "last_plan": time_text(skip.last),
                "next_plan": time_text(coming),
            }
            said.append(Said("slot.skipped", meta if skip.complete else {**meta, "complete": False}))
        for place, moment in enumerate(own.plans, 1):
            coming = own.plans[place] if place < len(own.plans) else own.next_plan
            meta = self._claimed(row, moment, 1, row.spec.max_attempts)
            meta["next_plan"] = _text(coming)
            said.append(Said("slot.claimed", meta))
        return said

    def _claimed(self, row: DueRow, moment: datetime, attempt: int, max_attempts: int) -> dict[str, Any]:
        return {
            "plan_time": _text(moment),
            "attempt": attempt,
            "max_attempts": max_attempts,
            "worker": self._runner,
            "lease_token": str(uuid.uuid4()),
            "lease_seconds": row.spec.stale_timeout_seconds,
        }

    def retried(self, row: DueRow, moment: datetime, attempt: int, max_attempts: int) -> Said:
        """Say that this process tries a slot again."""
        return Said("slot.claimed", self._claimed(row, moment, attempt, max_attempts))


def _planned(row: DueRow, now: datetime) -> Plan | None:
    try:
        return plan(row.spec, row.next_plan, now)
    except Exception:
        # A zone that is no longer known, say: it must not keep the others from being claimed.
        _log.exception("the schedule %s cannot be planned", row.name)
        return None


def holding(row: DueRow, append: Append, at: float) -> list[Held]:
    """Return the slots that an append to a schedule's stream leased."""
    return [
        Held(
            scope=row.scope,
            schedule_id=row.schedule_id,
            name=row.name,
            kind=row.kind,
            target=row.target,
            spec=row.spec,
            plan_time=datetime.fromisoformat(draft.meta["plan_time"]),
            attempt=draft.meta["attempt"],
            max_attempts=draft.meta["max_attempts"],
            token=draft.meta["lease_token"],
            execution_id=draft.execution_id,
            renewed_at=at,
        )
        for draft in append.drafts
        if draft.event_type == "slot.claimed"
    ]
