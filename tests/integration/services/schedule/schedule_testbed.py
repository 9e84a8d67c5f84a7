"""Schedulers on the test's database: handlers that do what a test says, moments that are due because their rows say so."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.transition import Transition
from noetl.model.event import time_text
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.services.schedule.drafts import Said, ScheduleDrafts, Told
from noetl.services.schedule.handlers.port import Outcome, PlatformJobs, SlotRun
from noetl.services.schedule.meter import Meter
from noetl.services.schedule.planning import following
from noetl.services.schedule.rows import ScheduleRow, SlotRow
from noetl.services.schedule.scheduler import Limits, Scheduler
from noetl.services.schedule.spec import Definition, Named, Spec
from noetl.testing.samples.drafts import PRODUCER

SCOPE = Scope("acme", "care")
IDS = SnowflakeGenerator(30, lambda: int(datetime.now(UTC).timestamp() * 1000))

Does = Callable[[SlotRun], Awaitable[Outcome]]


async def nothing(slot: SlotRun) -> Outcome:
    """Do nothing."""
    return Outcome()


class ScheduleTestbed:
    """The schedules of a test."""

    def __init__(self, database: Database, ledger: PostgresLedger) -> None:
        self.database = database
        self.ledger = ledger

    def scheduler(
        self, does: Does = nothing, runner: str = "s1", meter: Meter | None = None, **limits: Any
    ) -> Scheduler:
        """Return a scheduler that does not tick by itself."""
        own = Limits(**{"poll_seconds": 0.2, **limits})
        return Scheduler(
            self.database, self.ledger, IDS.mint_many, f"{PRODUCER}/{runner}", {"playbook": does}, PlatformJobs(), limits=own,
            meter=meter,
        )  # fmt: skip

    @asynccontextmanager
    async def running(self, *args: Any, **options: Any) -> AsyncIterator[Scheduler]:
        """Give a scheduler whose slots run; it ticks when the test says so."""
        scheduler = self.scheduler(*args, **options)
        scheduler.running.start()
        try:
            yield scheduler
        finally:
            await scheduler.running.stop()

    async def schedule(
        self, name: str = "nightly", expression: str = "rate(1 hour)", scope: Scope = SCOPE, **spec: Any
    ) -> ScheduleRow:
        """Make a schedule whose next moment is in the future."""
        definition = Definition(
            named=Named(name=name), kind="playbook", target={"path": "x"}, spec=Spec(expression=expression, **spec)
        )
        return (await self.scheduler().schedules.put(scope, definition, by="tests"))[0]

    async def beat(self, slot: SlotRun) -> datetime:
        """Return until when the lease of a slot that runs lasts."""
        async with self.database.transaction(slot.scope) as connection:
            found: datetime = await connection.fetchval(
                "SELECT lease_until FROM noetl.cron_slot WHERE schedule_id = $1 AND plan_time = $2",
                slot.schedule_id,
                slot.plan_time,
            )
        return found

    async def behind(self, row: ScheduleRow, behind: timedelta) -> ScheduleRow:
        """Let a schedule go on with a moment in the past, as if nobody had looked since."""
        schedules = self.scheduler().schedules
        first = following(row.spec, await self.now() - behind - timedelta(microseconds=1))
        await self.say(row, Said("schedule.resumed", {"next_plan": time_text(first)}))
        return await schedules.by_id(row.scope, row.schedule_id)

    async def say(self, row: ScheduleRow, said: Said) -> None:
        """Record something about a schedule, as it would be if it had happened."""
        told = Told(row.scope, row.schedule_id, None, (said,))
        await self.ledger.transact(Transition(tuple(ScheduleDrafts(IDS.mint_many, PRODUCER).appends([told]))))

    async def now(self) -> datetime:
        """Return the database's time."""
        async with self.database.transaction(None, "reaper") as connection:
            found: datetime = await connection.fetchval("SELECT clock_timestamp()")
            return found

    async def slots(self, row: ScheduleRow) -> list[SlotRow]:
        """Return the slots of a schedule, the oldest first."""
        return (await self.scheduler().schedules.slots(row.scope, row.schedule_id, None, 1000))[::-1]

    async def events(self, row: ScheduleRow) -> list[tuple[str, dict[str, Any], str | None]]:
        """Return what happened to a schedule."""
        stream = row.scope.stream(f"schedule/{row.schedule_id}")
        return [(one.event_type, one.meta, one.error) async for one in self.ledger.read(stream)]
