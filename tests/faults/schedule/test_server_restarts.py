"""PostgreSQL goes away and comes back under a scheduler: it goes on by itself, and no moment is run twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.faults.schedule.driven_scheduler import open_scheduler, plan_missed

from noetl.errors import Unavailable
from noetl.runtime.postgres import migrations
from noetl.runtime.postgres.embedded import EmbeddedServer
from noetl.services.schedule.rows import ScheduleRow
from noetl.services.schedule.scheduler import Scheduler
from noetl.testing.engines.short_leases import until

pytestmark = [pytest.mark.service, pytest.mark.fault, pytest.mark.xdist_group("own_server")]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    """A server of the test's own, with the schema in it."""
    server = EmbeddedServer(tmp_path / "server")
    await asyncio.to_thread(server.start)
    await asyncio.to_thread(migrations.upgrade, server.url())
    yield server
    await asyncio.to_thread(server.destroy)


async def test_a_scheduler_lives_through_a_restart_of_the_server(server: EmbeddedServer, tmp_path: Path) -> None:
    """INV-62, INV-65."""
    home = tmp_path / "home"
    home.mkdir()
    async with open_scheduler(server.url(), home, ticks=True) as (driven, scheduler):
        row = await plan_missed(driven, scheduler, 12)
        await until(lambda: _succeeded(scheduler, row, 1), "the first slot")
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        await until(lambda: _succeeded(scheduler, row, 12), "the last slot")
        slots = await scheduler.schedules.slots(row.scope, row.schedule_id)
        runs = [slot.run_id for slot in slots]
        async with driven.runtime.database.transaction(row.scope) as connection:
            started = await connection.fetchval(
                "SELECT count(*) FROM noetl.event WHERE event_type = 'execution.requested'"
            )
    assert len(set(runs)) == len(runs) == started


async def _succeeded(scheduler: Scheduler, row: ScheduleRow, count: int) -> bool:
    try:
        slots = await scheduler.schedules.slots(row.scope, row.schedule_id)
    except Unavailable:
        return False
    return sum(slot.status == "SUCCESS" for slot in slots) >= count and all(s.status == "SUCCESS" for s in slots)
