"""A process killed at any point of a task's life is replaced by another: the pipeline is built whole, and nothing twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.faults.tasks.driven_tasks import DAYS, Driven, open_engine

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.testing.engines.parity import assert_parity, connect
from noetl.testing.engines.short_leases import until

pytestmark = [pytest.mark.service, pytest.mark.fault]

PROCESS = Path(__file__).with_name("process.py")
SCOPED = {"noetl.tenant": "default", "noetl.organization": "default"}
POINTS = (
    "task.before_create",
    "task.after_create",
    "task.before_claim",
    "task.after_claim",
    "task.before_commit",
    "task.after_manifest",
    "task.after_commit",
    "outbox.before_deliver",
    "outbox.after_deliver",
    "outbox.after_mark",
    "run.before_end",
    "run.after_end",
)
Start = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def start(owner_url: str, tmp_path: Path) -> Iterator[Start]:
    """Start processes on the test's database; none is left behind."""
    running: list[subprocess.Popen[bytes]] = []

    def started(fault: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "process.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(PROCESS), owner_url, str(tmp_path)],
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


@pytest.fixture
async def driven(owner_url: str, tmp_path: Path) -> AsyncIterator[Driven]:
    """The test's own engine, which only asks."""
    async with open_engine(owner_url, tmp_path) as driven:
        yield driven


@pytest.fixture
async def rows(owner_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A look at the rows of the organization."""
    connection = await asyncpg.connect(owner_url, server_settings=SCOPED)
    yield connection
    await connection.close()


async def _ended(rows: asyncpg.Connection, execution_id: int) -> Any:
    async def look() -> Any:
        return await rows.fetchval(
            "SELECT event_type FROM noetl.event WHERE execution_id = $1"
            " AND event_type IN ('execution.completed', 'execution.failed')",
            execution_id,
        )

    return await until(look, f"an end of run {execution_id}")


@pytest.mark.parametrize("point", POINTS)
async def test_a_process_killed_there_is_replaced_and_nothing_is_done_twice(
    point: str, driven: Driven, start: Start, rows: asyncpg.Connection, tmp_path: Path, owner_url: str
) -> None:
    """INV-52, INV-48."""
    deployed = await driven.deploy(tmp_path)
    await driven.engine.runs.build(driven.runtime.scope, deployed.execution_id, deployed.dag_version_id)
    first = start(f"{point}=kill")
    status = await asyncio.wait_for(asyncio.to_thread(first.wait), 60)
    assert status == -signal.SIGKILL, (tmp_path / "process.log").read_text()
    async with open_engine(owner_url, tmp_path, works=True):
        assert await _ended(rows, deployed.execution_id) == "execution.completed"
    await assert_whole(rows, owner_url, driven)


async def assert_whole(rows: asyncpg.Connection, owner_url: str, driven: Driven) -> None:
    """Every partition was committed once by one attempt, all news were consumed, and replay tells the same."""
    stands = await rows.fetch(
        "SELECT d.producer_job AS job, v.partition_key, v.version FROM noetl.partition_version AS v"
        " JOIN noetl.dataset AS d USING (dataset_uuid) WHERE v.current"
    )
    versions = {(row["job"], row["partition_key"]): row["version"] for row in stands}
    for day in DAYS:
        assert (versions["orders", f"day={day}"], versions["clean", f"day={day}"]) == (1, 1)
    tasks = await rows.fetch("SELECT job, status FROM noetl.task")
    assert {row["status"] for row in tasks} == {"Completed"}
    assert versions["log", "all"] == sum(row["job"] == "log" for row in tasks)
    cursors = await rows.fetch("SELECT partition_key, version FROM noetl.dataset_cursor")
    assert {row["partition_key"]: row["version"] for row in cursors} == {f"day={day}": 1 for day in DAYS}
    consumed = await rows.fetch(
        "SELECT i.input_partition_key FROM noetl.task_input AS i JOIN noetl.task AS t USING (task_id) WHERE t.job = 'log'"
    )
    assert sorted(row[0] for row in consumed) == [f"day={day}" for day in DAYS], "each news is read by one task"
    left = await rows.fetch("SELECT kind, payload FROM noetl.outbox WHERE status <> 'Done'")
    assert not left
    database = Database(owner_url)
    ledger = PostgresLedger(database)
    try:
        await assert_parity(database, ledger, connect(database, ledger, payloads=driven.runtime.payloads))
    finally:
        await ledger.close()
        await database.close()


async def test_a_process_killed_while_it_takes_a_task_back_is_replaced(
    driven: Driven, start: Start, rows: asyncpg.Connection, tmp_path: Path, owner_url: str
) -> None:
    deployed = await driven.deploy(tmp_path)
    await driven.engine.runs.build(driven.runtime.scope, deployed.execution_id, deployed.dag_version_id)
    for point in ("task.after_claim", "task.before_reap", "task.after_reap"):
        process = start(f"{point}=kill")
        status = await asyncio.wait_for(asyncio.to_thread(process.wait), 60)
        assert status == -signal.SIGKILL, (tmp_path / "process.log").read_text()
    async with open_engine(owner_url, tmp_path, works=True):
        assert await _ended(rows, deployed.execution_id) == "execution.completed"
    await assert_whole(rows, owner_url, driven)
