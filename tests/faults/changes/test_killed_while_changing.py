"""A process killed at any point of an invalidation or a backfill is replaced: nothing is lost, nothing is built twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest
from tests.faults.changes.changing_engine import FIRST, LAST, Changing, open_changing
from tests.faults.tasks.driven_tasks import DAYS

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.testing.engines.parity import assert_parity, connect
from noetl.testing.engines.short_leases import until

pytestmark = [pytest.mark.service, pytest.mark.fault]

PROCESS = Path(__file__).with_name("process.py")
SCOPED = {"noetl.tenant": "default", "noetl.organization": "default"}
Killed = Callable[[str, str], Awaitable[None]]
FILLED = {f"day={day}" for day in range(FIRST, LAST)}


@pytest.fixture
async def killed(owner_url: str, tmp_path: Path) -> AsyncIterator[Killed]:
    """Run a process that does something until it kills itself at a point."""
    running: list[subprocess.Popen[bytes]] = []

    def started(point: str, what: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "process.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(PROCESS), owner_url, str(tmp_path), what],
                env={**os.environ, "NOETL_FAULT": f"{point}=kill"},
                stdout=log,
                stderr=log,
            )

    async def run(point: str, what: str) -> None:
        process = started(point, what)
        running.append(process)
        status = await asyncio.wait_for(asyncio.to_thread(process.wait), 60)
        assert status == -signal.SIGKILL, (tmp_path / "process.log").read_text()

    yield run
    for process in running:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.fixture
async def rows(owner_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A look at the rows of the organization."""
    connection = await asyncpg.connect(owner_url, server_settings=SCOPED)
    yield connection
    await connection.close()


async def _built(url: str, home: Path, rows: asyncpg.Connection) -> None:
    async with open_changing(url, home, works=True) as changing:
        deployed = await changing.driven.deploy(home)
        await changing.driven.engine.runs.build(changing.scope, deployed.execution_id, deployed.dag_version_id)
        await _ended(rows, deployed.execution_id)
        await changing.driven.dags.activate(changing.scope, "shop", deployed.dag_version_id, by="tests")


async def _ended(rows: asyncpg.Connection, execution_id: int) -> str:
    async def look() -> str | None:
        found: str | None = await rows.fetchval(
            "SELECT event_type FROM noetl.event WHERE execution_id = $1"
            " AND event_type IN ('execution.completed', 'execution.failed')",
            execution_id,
        )
        return found

    return str(await until(look, f"an end of run {execution_id}"))


async def _versions(rows: asyncpg.Connection, job: str) -> dict[str, int]:
    found = await rows.fetch(
        "SELECT v.partition_key, v.version FROM noetl.partition_version AS v JOIN noetl.dataset AS d USING (dataset_uuid)"
        " WHERE v.current AND d.producer_job = $1",
        job,
    )
    return {row["partition_key"]: row["version"] for row in found}


async def _whole(url: str, rows: asyncpg.Connection, changing: Changing) -> None:
    left = await rows.fetch(
        "SELECT task_id::text FROM noetl.task WHERE available_at IS NOT NULL"
        " UNION ALL SELECT outbox_id::text FROM noetl.outbox WHERE status <> 'Done'"
        " UNION ALL SELECT backfill_id::text FROM noetl.backfill_partition"
    )
    assert not left
    database = Database(url)
    ledger = PostgresLedger(database)
    try:
        await assert_parity(database, ledger, connect(database, ledger, payloads=changing.driven.runtime.payloads))
    finally:
        await ledger.close()
        await database.close()


@pytest.mark.parametrize("point", ["invalidation.before_record", "invalidation.after_record"])
async def test_an_invalidation_stands_whole_or_not_at_all(
    point: str, killed: Killed, rows: asyncpg.Connection, tmp_path: Path, owner_url: str
) -> None:
    """INV-69, INV-48."""
    await _built(owner_url, tmp_path, rows)
    await killed(point, "invalidate")
    found = await rows.fetch("SELECT invalidation_id, status FROM noetl.data_invalidation")
    assert len(found) == (point == "invalidation.after_record")
    async with open_changing(owner_url, tmp_path, works=True) as changing:
        if not found:
            await changing.act("invalidate")
            found = await rows.fetch("SELECT invalidation_id, status FROM noetl.data_invalidation")
        assert await _ended(rows, found[0]["invalidation_id"]) == "execution.completed"
    (closed,) = await rows.fetch("SELECT status, dependents, processed_by FROM noetl.data_invalidation")
    assert (closed["status"], closed["dependents"]) == ("closed", closed["processed_by"])
    assert await _versions(rows, "clean") == {f"day={day}": 1 + (day == "2") for day in DAYS}
    await _whole(owner_url, rows, changing)


@pytest.mark.parametrize(
    "point", ["task.before_commit", "task.after_manifest", "append.after_commit", "task.after_commit"]
)
async def test_a_worker_killed_over_an_invalidation_marks_it_once(
    point: str, killed: Killed, rows: asyncpg.Connection, tmp_path: Path, owner_url: str
) -> None:
    """INV-69."""
    await _built(owner_url, tmp_path, rows)
    async with open_changing(owner_url, tmp_path) as changing:
        await changing.act("invalidate")
    await killed(point, "work")
    (run,) = await rows.fetch("SELECT invalidation_id FROM noetl.data_invalidation")
    async with open_changing(owner_url, tmp_path, works=True) as changing:
        assert await _ended(rows, run["invalidation_id"]) == "execution.completed"
    told = await rows.fetch(
        "SELECT event_type FROM noetl.event WHERE stream_id LIKE 'invalidation/%' ORDER BY stream_version"
    )
    assert [row["event_type"] for row in told] == ["dataset.invalidated", "invalidation.processed"]
    assert await _versions(rows, "clean") == {f"day={day}": 1 + (day == "2") for day in DAYS}
    await _whole(owner_url, rows, changing)


@pytest.mark.parametrize(
    ("point", "what"),
    [
        ("backfill.before_request", "backfill"),
        ("backfill.after_request", "backfill"),
        ("backfill.before_queue", "backfill"),
        ("backfill.after_queue", "backfill"),
        ("backfill.before_advance", "work"),
        ("backfill.after_advance", "work"),
        ("task.after_commit", "work"),
        ("outbox.after_deliver", "work"),
        ("backfill.before_end", "work"),
        ("backfill.after_end", "work"),
        ("backfill.before_change", "pause"),
        ("backfill.after_change", "pause"),
    ],
)
async def test_every_partition_of_a_backfill_is_built_once(
    point: str, what: str, killed: Killed, rows: asyncpg.Connection, tmp_path: Path, owner_url: str
) -> None:
    """INV-70, INV-48."""
    await _built(owner_url, tmp_path, rows)
    if what != "backfill":
        async with open_changing(owner_url, tmp_path) as changing:
            await changing.act("backfill")
    await killed(point, what)
    found = await rows.fetch("SELECT backfill_id, status FROM noetl.backfill")
    assert len(found) == (point != "backfill.before_request")
    async with open_changing(owner_url, tmp_path, works=True) as changing:
        if not found:
            await changing.act("backfill")
            found = await rows.fetch("SELECT backfill_id, status FROM noetl.backfill")
        if found[0]["status"] == "paused":
            await changing.act("resume")
        assert await _ended(rows, found[0]["backfill_id"]) == "execution.completed"
    (done,) = await rows.fetch("SELECT status, total, queued, made, tasks FROM noetl.backfill")
    assert tuple(done) == ("completed", LAST - FIRST, LAST - FIRST, LAST - FIRST, LAST - FIRST)
    versions = await _versions(rows, "orders")
    assert {key: version for key, version in versions.items() if key in FILLED} == dict.fromkeys(FILLED, 1)
    assert set(await _versions(rows, "clean")) == FILLED | {f"day={day}" for day in DAYS}
    tasks = await rows.fetch(
        "SELECT partition_key, status FROM noetl.task WHERE job = 'orders' AND partition_key <> 'all'"
    )
    assert sorted(tuple(row) for row in tasks) == sorted((key, "Completed") for key in FILLED)
    await _whole(owner_url, rows, changing)
