"""The end of an attempt at a slot, recorded by whoever still holds it. A holder whose lease is lost changes nothing."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from noetl.errors import LeaseLost, Unavailable, VersionConflict
from noetl.faults import reach
from noetl.kernel.leases import operations, statements
from noetl.kernel.leases.kinds import SLOT
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.transition import Transition
from noetl.services.schedule.drafts import Said, ScheduleDrafts, Told
from noetl.services.schedule.held_slot import Held

_AGAIN_SECONDS: Final = 0.5

_SCHEDULE: Final = "JOIN noetl.schedule AS c USING (tenant_id, organization_id, schedule_id)"
_STANDING: Final = statements.standing(SLOT, "c.version", "s", _SCHEDULE)


class SlotLeases:
    """Renews the leases of this process, and ends them."""

    def __init__(self, database: Database, ledger: Ledger, drafts: ScheduleDrafts) -> None:
        self._database = database
        self._ledger = ledger
        self._drafts = drafts

    async def renew(self, held: list[Held]) -> list[Held]:
        """Renew leases of one organization with one statement, and return those that are lost."""
        asked = time.monotonic()
        async with self._database.transaction(held[0].scope) as connection:
            seconds = [one.spec.stale_timeout_seconds for one in held]
            kept = await operations.renew(connection, SLOT, [one.proof for one in held], seconds)
        lost = []
        for one in held:
            if one.proof in kept:
                one.renewed_at = asked
            else:
                lost.append(one)
        return lost

    async def end(self, held: Held, said: Said) -> None:
        """Record the end of an attempt; while the database is away it is tried again for as long as the lease lasts."""
        while True:
            try:
                await self._end(held, said)
                return
            except Unavailable as away:
                if time.monotonic() > held.lapses_at:
                    raise LeaseLost(f"the lease on a slot of {held.name} ran out while the database was away") from away
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _end(self, held: Held, said: Said) -> None:
        while True:
            async with self._database.transaction(held.scope) as connection:
                version = await connection.fetchval(
                    _STANDING, held.schedule_id, held.plan_time, held.attempt, held.token
                )
            if version is None:
                raise LeaseLost(f"a slot of {held.name} is somebody else's now, or was ended")
            told = Told(held.scope, held.schedule_id, version, (said,), held.execution_id)
            reach("slot.before_end")
            try:
                await self._ledger.transact(Transition(tuple(self._drafts.appends([told]))))
            except VersionConflict:
                continue  # another moment of the same schedule moved on meanwhile
            reach("slot.after_end")
            return
