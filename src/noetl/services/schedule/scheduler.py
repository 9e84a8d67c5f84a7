"""The scheduler of one process: looks when something is due, claims it, and runs it in a pool. Any number may run at once.

It sleeps until the next moment that the database knows of, with a slow look as a net. All times are the database's: what
is due is asked of it anew before every claim. While the database is away it waits and tries again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from noetl.engine.dispatch.polling import Signal
from noetl.errors import Conflict, NoetlError, Unavailable
from noetl.kernel.leases.kinds import SLOT
from noetl.kernel.leases.statements import next_end
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.stream import Scope
from noetl.services.schedule.claims import MINE, Able, Claiming
from noetl.services.schedule.dag_sources import DagSources
from noetl.services.schedule.drafts import ScheduleDrafts
from noetl.services.schedule.handlers.port import Handler, PlatformJobs
from noetl.services.schedule.held_slot import Held
from noetl.services.schedule.lost_runs import TakingBack
from noetl.services.schedule.meter import Meter, NoMeter
from noetl.services.schedule.rows import SlotRow
from noetl.services.schedule.schedules import Schedules
from noetl.services.schedule.slot_leases import SlotLeases
from noetl.services.schedule.slot_runner import RunningSlots
from noetl.services.schedule.spec import PLATFORM, Kind

_log = logging.getLogger(__name__)

_LEAST_SLEEP: Final = 0.02
_PAUSE: Final = 0.25
_NEXT: Final = f"""
SELECT clock_timestamp() AS now, least(
    (SELECT c.next_due FROM noetl.schedule AS c WHERE c.next_due IS NOT NULL AND {MINE} ORDER BY c.next_due LIMIT 1),
    (SELECT s.next_retry_at FROM noetl.cron_slot AS s
        JOIN noetl.schedule AS c USING (tenant_id, organization_id, schedule_id)
     WHERE s.next_retry_at IS NOT NULL AND NOT c.paused AND {MINE} ORDER BY s.next_retry_at LIMIT 1),
    ({next_end(SLOT, "s")})) AS next
"""  # noqa: S608


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one scheduler does at a time."""

    page: int = 10_000
    """Schedules or slots found by one query."""
    held: int = 10_000
    """Slots held at a time; more are left to other schedulers, or for later."""
    poll_seconds: float = 2.0
    """How often one looks without being woken: what other processes changed is seen by then."""
    room: Mapping[Kind, int] = field(default_factory=lambda: {"platform": 4, "playbook": 16, "source": 16})
    """Slots of each kind that run at a time."""


LIMITS: Final = Limits()


class Scheduler:
    """Ticks until stopped; what is claimed is run to its end."""

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        mint_many: Callable[[int], list[int]],
        runner: str,
        handlers: Mapping[Kind, Handler],
        platform: PlatformJobs,
        *,
        limits: Limits = LIMITS,
        meter: Meter | None = None,
    ) -> None:
        self._database = database
        self._limits = limits
        self._platform = platform
        counting = meter or NoMeter()
        kinds: dict[Kind, Handler] = {**handlers, "platform": platform}
        self._able = Able(tuple(kinds), tuple(platform.names))
        drafts = ScheduleDrafts(mint_many, runner)
        self.schedules = Schedules(database, ledger, mint_many, runner)
        """What people do with schedules."""
        self.sources = DagSources(database, self.schedules)
        self._claiming = Claiming(database, ledger, drafts, runner, self._able, counting)
        self._taking_back = TakingBack(database, self._claiming, self._able, counting)
        self.running = RunningSlots(SlotLeases(database, ledger, drafts), kinds, limits.room, runner, counting)
        self._wakes = Signal()
        self._stopping = False
        self._ticking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Keep the platform's own schedules, and tick from now on."""
        self.running.start()
        self._ticking = asyncio.get_running_loop().create_task(self._tick_on(), name="noetl-scheduler")

    async def stop(self) -> None:
        """Claim nothing more, and finish what is held."""
        self.rest()
        try:
            if self._ticking is not None:
                await self._ticking
            await self.running.drain()
        finally:
            if self._ticking is not None and not self._ticking.done():
                self._ticking.cancel()
                with suppress(asyncio.CancelledError):
                    await self._ticking
            await self.running.stop()

    def rest(self) -> None:
        """Claim nothing more from now on; what is held goes on."""
        self._stopping = True
        self._wakes.touch()

    def wake(self) -> None:
        """Look now: something was changed in this process."""
        self._wakes.touch()

    async def keep_platform_jobs(self) -> None:
        """Make the platform's schedules what this program declares; those of jobs it has not are left alone."""
        for definition in self._platform.definitions():
            await self.schedules.put(PLATFORM, definition, by="platform")

    async def tick(self) -> int:
        """Look once for everything that is due, claim it and run it; return how many slots were claimed."""
        await self.sources.sync_changed()
        claimed = 0
        while not self._stopping and (room := self._limits.held - self.running.count) > 0:
            held = await self.claim(min(room, self._limits.page))
            if held is None:
                break
            for one in held:
                self.running.add(one)
            claimed += len(held)
        return claimed

    async def claim(self, most: int) -> list[Held] | None:
        """Claim what is due by one look each; None if nothing is, or if others are quicker at all of it."""
        recorded, held = await self._taking_back.take_back(most)
        held += await self._claiming.claim_due(most)
        return held if held or recorded else None

    async def run_now(self, scope: Scope, name: str) -> tuple[Held, asyncio.Event]:
        """Run a schedule now, whatever its time, also one that is paused; its plan stays as it is."""
        while True:
            row = await self.schedules.get(scope, name)
            async with self._database.transaction(scope) as connection:
                now: datetime = await connection.fetchval("SELECT clock_timestamp()")
            # Moments that are planned have whole seconds, so this one is nobody else's.
            moment = now if now.microsecond else now + timedelta(microseconds=1)
            held = await self._claiming.claim_one(row, moment)
            if held is not None:
                self.running.add(held)
                return held, held.ended

    async def slot(self, held: Held) -> SlotRow:
        """Return the row of a slot that is or was held."""
        after = held.plan_time + timedelta(microseconds=1)
        (found,) = await self.schedules.slots(held.scope, held.schedule_id, after, 1)
        return found

    async def _tick_on(self) -> None:
        kept = False
        while not self._stopping:
            seen = self._wakes.number
            wait = self._limits.poll_seconds
            try:
                if not kept:
                    await self.keep_platform_jobs()
                    kept = True
                claimed = await self.tick()
                wait = await self._sleep_seconds(busy=claimed > 0)
            except (Unavailable, Conflict) as problem:
                _log.warning("the scheduler could not look: %s", problem.message)
            except NoetlError as problem:
                _log.error("the scheduler stumbled: %s", problem.message)
            except Exception:
                _log.exception("the scheduler stumbled")
            if not self._stopping:
                await self._wakes.wait(seen, wait)

    async def _sleep_seconds(self, *, busy: bool) -> float:
        async with self._database.transaction(None, "reaper") as connection:
            row: Any = await connection.fetchrow(_NEXT, self._able.kinds, self._able.platform_jobs)
        if row["next"] is None:
            return self._limits.poll_seconds
        left: float = (row["next"] - row["now"]).total_seconds()
        # What is overdue and could not be claimed is not looked at again and again without a pause.
        least = _LEAST_SLEEP if busy or left > 0 else _PAUSE
        return min(max(left, least), self._limits.poll_seconds)
