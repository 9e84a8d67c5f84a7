"""A scheduler killed at any point of a slot's life is replaced by another: every moment is run, and starts one execution."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.faults.schedule.driven_scheduler import open_scheduler, plan_missed

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.services.schedule.rows import ScheduleRow
from noetl.services.schedule.scheduler import Scheduler
from noetl.testing.engines.parity import assert_parity, connect
from noetl.testing.engines.short_leases import until

pytestmark = [pytest.mark.service, pytest.mark.fault]

PROCESS = Path(__file__).with_name("process.py")
HOURS = 3
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(owner_url: str, tmp_path: Path) -> Iterator[Start]:
    """Start processes on the test's database; none is left behind."""
    running: list[subprocess.Popen[bytes]] = []

    def started(fault: str, *more: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "process.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(PROCESS), owner_url, str(tmp_path), *more],
                env={**os.environ, "NOETL_FAULT": fault},
                stdout=log,
                stderr=log,
            )
        running.append(process)
        return process

    yield started
    for process in running:
        if process.poll() is None:
            process.kill()
        process.wait()


async def killed(start: Start, tmp_path: Path, point: str, *more: str) -> None:
    """Let a process run until it is killed at a point."""
    status = await asyncio.wait_for(asyncio.to_thread(start(f"{point}=kill", *more).wait), 60)
    assert status == -signal.SIGKILL, (tmp_path / "process.log").read_text()


@pytest.mark.parametrize(
    "points",
    [
        ("slot.before_claim",),
        ("slot.after_claim",),
        ("slot.after_effect",),
        ("slot.before_end",),
        ("slot.after_end",),
        ("append.after_commit",),
        ("slot.after_claim", "slot.before_stale"),
        ("slot.after_claim", "slot.after_stale"),
    ],
    ids="+".join,
)
async def test_a_scheduler_killed_there_is_replaced_and_nothing_is_started_twice(
    points: tuple[str, ...], start: Start, tmp_path: Path, owner_url: str
) -> None:
    """INV-62, INV-64, INV-65."""
    async with open_scheduler(owner_url, tmp_path) as (driven, idle):
        row = await plan_missed(driven, idle, HOURS)
        for point in points:
            await killed(start, tmp_path, point)
        async with open_scheduler(owner_url, tmp_path, ticks=True):
            await until(lambda: _all_done(idle, row), "the end of every slot")
        await _assert_each_started_once(driven.runtime.database, idle, row)
        await _assert_parity(owner_url, driven.runtime.payloads)


@pytest.mark.parametrize(("point", "stands"), [("schedule.before_record", False), ("schedule.after_record", True)])
async def test_a_schedule_is_made_whole_or_not_at_all_and_made_again_it_is_the_same(
    point: str, stands: bool, start: Start, tmp_path: Path, owner_url: str
) -> None:
    """INV-62."""
    async with open_scheduler(owner_url, tmp_path) as (driven, idle):
        await killed(start, tmp_path, point, "make")
        listed = await idle.schedules.listed(driven.runtime.scope)
        assert [row.name for row, _ in listed] == (["nightly"] if stands else [])
        row = await plan_missed(driven, idle, 1)
        ((again, _),) = await idle.schedules.listed(driven.runtime.scope)
        assert again.schedule_id == row.schedule_id
        await _assert_parity(owner_url, driven.runtime.payloads)


async def _all_done(scheduler: Scheduler, row: ScheduleRow) -> bool:
    slots = await scheduler.schedules.slots(row.scope, row.schedule_id)
    now = await scheduler.schedules.by_id(row.scope, row.schedule_id)
    caught_up = now.last_plan is not None and bool(slots) and now.next_plan > max(slot.started_at for slot in slots)
    return caught_up and len(slots) >= HOURS and all(slot.status == "SUCCESS" for slot in slots)


async def _assert_each_started_once(database: Database, scheduler: Scheduler, row: ScheduleRow) -> None:
    slots = await scheduler.schedules.slots(row.scope, row.schedule_id)
    runs = [slot.run_id for slot in slots]
    assert len(set(runs)) == len(runs) >= HOURS
    async with database.transaction(row.scope) as connection:
        started = await connection.fetch(
            "SELECT execution_id FROM noetl.event WHERE event_type = 'execution.requested'"
        )
    assert sorted(one["execution_id"] for one in started) == sorted(run for run in runs if run is not None)


async def _assert_parity(owner_url: str, payloads: object) -> None:
    database = Database(owner_url)
    ledger = PostgresLedger(database)
    try:
        await assert_parity(database, ledger, connect(database, ledger, payloads=payloads))  # type: ignore[arg-type]
    finally:
        await ledger.close()
        await database.close()


async def test_two_schedulers_share_what_is_due(start: Start, tmp_path: Path, owner_url: str) -> None:
    """INV-62."""
    async with open_scheduler(owner_url, tmp_path) as (driven, idle):
        row = await plan_missed(driven, idle, 20)
        processes = [start(""), start("")]
        await until(lambda: _all_done(idle, row), "the end of every slot")
        for process in processes:
            process.terminate()
        for process in processes:
            assert await asyncio.wait_for(asyncio.to_thread(process.wait), 30) == 0
        await _assert_each_started_once(driven.runtime.database, idle, row)
