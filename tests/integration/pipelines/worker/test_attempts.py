"""Attempts at tasks with real leases: committed once, stopped when lost, late or cancelled, never half done."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.integration.pipelines.tasks.task_testbed import TaskTestbed
from tests.unit.pipelines.works import lake_of

from noetl.errors import NotFound, Unavailable
from noetl.kernel.leases.heartbeats import Heartbeats
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.task import TaskGrant, TaskLease
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.datasets.manifests import Manifests
from noetl.pipelines.tables.column_types import schema_of
from noetl.pipelines.tables.partitions import TableWriter
from noetl.pipelines.tasks.rows import TaskRow
from noetl.pipelines.worker.attempts import Attempts
from noetl.pipelines.worker.in_process import InProcess, OperatorFailed, Produced
from noetl.spark.drivers.protocol import Work

pytestmark = pytest.mark.service

APPENDING = """
name: shop
jobs:
  - {name: orders, operator: made_up, runtime: dispatcher, unique_key: [id], secrets: [api]}
"""


class Secrets:
    """Credentials by name."""

    async def values(self, names: Sequence[str]) -> dict[str, Any]:
        if "lost" in names:
            raise NotFound("there is no credential lost")
        return {name: {"token": name} for name in names}


class Operator:
    """Makes up rows, holding each attempt until it is let go."""

    def __init__(self) -> None:
        self.rows: dict[str, list[int]] = {}
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()
        self.stopped = 0
        self.problem: Exception | None = None
        self.secrets: dict[str, Any] = {}

    async def operate(self, work: Work, bundle: bytes) -> Produced:
        self.secrets = work.secrets
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        if self.problem is not None:
            raise self.problem
        return Produced(tables={0: pa.table({"id": self.rows.get(work.grant.lease.task_id, [1])})}, log="made up\n")


class Bench:
    """A worker's attempts on a testbed of the test's own."""

    def __init__(self, testbed: TaskTestbed, lake: Path) -> None:
        self.testbed = testbed
        self.operator = Operator()
        self.told: list[tuple[str, str | None]] = []
        self.files = lake_of(lake)
        runner = InProcess({"made_up": self.operator}, TableWriter(self.files))
        clock = asyncio.get_running_loop().time
        self.heartbeats: Heartbeats[TaskLease] = Heartbeats(testbed.tasks, every_seconds=0.02, clock=clock)
        self.attempts = Attempts(
            testbed.scope,
            testbed.tasks,
            testbed.payloads,
            Manifests(testbed.scope, testbed.payloads),
            {"dispatcher": runner},
            Secrets(),
            self.heartbeats,
            lambda grant, status, error: self.told.append((status, error)),
        )
        self.heartbeats.start()

    async def granted(self) -> TaskGrant:
        """Deploy a DAG of one job and claim its task."""
        await self.testbed.deploy(APPENDING)
        (grant,) = await self.testbed.claim()
        return grant

    async def begin(self, *grants: TaskGrant) -> asyncio.Task[None]:
        """Start to work and wait until the operator does."""
        self.operator.go.clear()
        working = asyncio.create_task(self.attempts.work(grants))
        await self.operator.begun.wait()
        return working

    async def task(self, grant: TaskGrant) -> TaskRow:
        return await self.testbed.task(grant.lease.task_id)

    async def ids(self) -> list[int]:
        """Return the ids that a reader of the only generation finds, partition by partition."""
        datasets = Datasets(self.testbed.database, self.testbed.payloads, self.testbed.ledger)
        dataset = await datasets.find(self.testbed.scope, "shop.orders.0")
        (generation,) = await datasets.generations(self.testbed.scope, dataset.dataset_uuid)
        parts = await datasets.partitions(self.testbed.scope, generation.dataset_version)
        manifests = await datasets.manifests(self.testbed.scope, parts)
        found: list[int] = []
        for one in manifests:
            found += (await self.files.read(one.files, schema_of(one.schema))).column("id").to_pylist()
        return found


@pytest.fixture
async def bench(database: Database, ledger: PostgresLedger, tmp_path: Path) -> AsyncIterator[Bench]:
    testbed = TaskTestbed(database, ledger, tmp_path / "dag")
    bench = Bench(testbed, tmp_path / "lake")
    yield bench
    await bench.heartbeats.stop()
    await testbed.engine.close()


async def test_what_an_attempt_made_is_committed_with_its_log(bench: Bench) -> None:
    grant = await bench.granted()
    await bench.attempts.work([grant])
    task = await bench.task(grant)
    assert task.status == "Completed"
    assert task.logs_ref is not None
    assert await bench.testbed.payloads.fetch(bench.testbed.scope, task.logs_ref) == b"made up\n"
    assert bench.told == [("Running", None), ("Completed", None)]
    assert bench.operator.secrets == {"api": {"token": "api"}}
    assert (await bench.ids(), bench.heartbeats.count) == ([1], 0)


async def test_a_lost_lease_stops_the_work_and_nothing_of_it_is_committed(bench: Bench) -> None:
    grant = await bench.granted()
    working = await bench.begin(grant)
    await bench.testbed.expire(grant.lease.task_id)
    await bench.testbed.engine.reaper.sweep()
    await working
    assert bench.operator.stopped == 1
    (again,) = await bench.testbed.claim()
    assert again.lease.attempt == 2
    assert await bench.ids() == []


async def test_a_cancelled_task_is_stopped_and_stays_cancelled(bench: Bench) -> None:
    grant = await bench.granted()
    working = await bench.begin(grant)
    said = await bench.testbed.engine.by_hand.cancel(
        bench.testbed.scope, grant.lease.task_id, reason="wrong input", by="test"
    )
    assert said == "Running"
    await working
    task = await bench.task(grant)
    assert (bench.operator.stopped, task.status, task.error) == (1, "Canceled", "wrong input")
    assert await bench.ids() == []


async def test_an_attempt_that_takes_too_long_is_stopped_and_fails_as_late(bench: Bench) -> None:
    grant = msgspec.structs.replace(await bench.granted(), timeout_seconds=0.05)
    await (await bench.begin(grant))
    (story,) = await bench.testbed.engine.by_hand.history(bench.testbed.scope, grant.lease.task_id)
    assert (story.outcome, story.error, story.error_kind) == (
        "attempt_failed",
        "it took longer than its 0.05 s",
        "timeout",
    )
    assert bench.operator.stopped == 1


async def test_two_appends_at_once_bring_each_key_once(bench: Bench) -> None:
    await bench.attempts.work([await bench.granted()])
    testbed = bench.testbed
    await testbed.drain()
    (version,) = await testbed.dags.versions(testbed.scope, "shop")
    assert (await testbed.engine.runs.finished(testbed.scope, version.deploy_execution_id, 10)).status == "completed"
    await testbed.dags.activate(testbed.scope, "shop", version.dag_version_id, by="tests")
    for _ in "ab":
        await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    grants = await testbed.claim()
    # Both build on the same version of the partition, so that the second to come finds another.
    assert [part.version for grant in grants for target in grant.targets for part in target.parts] == [1, 1]
    for grant, rows in zip(grants, ([1, 2, 3], [3, 4]), strict=True):
        bench.operator.rows[grant.lease.task_id] = rows
    await bench.attempts.work(grants)
    assert [(await bench.task(grant)).status for grant in grants] == ["Completed", "Completed"]
    assert sorted(await bench.ids()) == [1, 2, 3, 4]


async def test_a_worker_that_is_told_to_go_hands_its_tasks_back_at_once(bench: Bench) -> None:
    grant = await bench.granted()
    working = await bench.begin(grant)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    (again,) = await bench.testbed.claim()
    assert (again.lease.task_id, again.lease.attempt) == (grant.lease.task_id, 2)
    assert bench.heartbeats.count == 0


async def test_errors_are_recorded_as_what_they_are(bench: Bench) -> None:
    grant = await bench.granted()
    bench.operator.problem = OperatorFailed("no such playbook", retryable=False, log="looked everywhere\n")
    await bench.attempts.work([grant])
    task = await bench.task(grant)
    assert (task.status, task.open, task.error) == ("Failed", False, "no such playbook")
    assert bench.told[-1] == ("Failed", "no such playbook")


async def test_a_secret_that_is_not_there_fails_the_attempt_before_it_begins(bench: Bench) -> None:
    grant = msgspec.structs.replace(await bench.granted(), secrets=("lost",))
    await bench.attempts.work([grant])
    task = await bench.task(grant)
    assert (task.status, task.error) == ("Failed", "there is no credential lost")
    assert bench.told[-1] == ("Failed", "there is no credential lost")
    assert not bench.operator.begun.is_set()


async def test_a_store_that_is_away_when_the_task_ends_is_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-182: what was made is committed in the first attempt, once the store takes it."""
    grant = await bench.granted()
    working = await bench.begin(grant)
    refused, back, real = asyncio.Event(), asyncio.Event(), bench.testbed.payloads.store

    async def store(*given: Any, **named: Any) -> Any:
        if not back.is_set():
            refused.set()
            raise Unavailable("the payload store does not answer")
        return await real(*given, **named)

    monkeypatch.setattr(bench.testbed.payloads, "store", store)
    bench.operator.go.set()
    await refused.wait()
    back.set()
    await working
    task = await bench.task(grant)
    assert (task.status, task.attempt) == ("Completed", 1)
    assert task.logs_ref is not None, "what was printed is kept, too"


async def test_a_ledger_that_is_away_before_and_after_the_work_is_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-182: neither a lookup of secrets nor the report of a failure is given up for it."""
    grant = await bench.granted()
    away = Counter[str]()

    def first_away(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        async def asked(*given: Any) -> Any:
            away[name] += 1
            if away[name] == 1:
                raise Unavailable("the database does not answer")
            return await real(*given)

        monkeypatch.setattr(owner, name, asked)

    first_away(bench.attempts._secrets, "values")
    first_away(bench.testbed.tasks, "fail")
    grant = msgspec.structs.replace(grant, secrets=("lost",))
    await bench.attempts.work([grant])
    assert away == {"values": 2, "fail": 2}
    assert bench.told[-1] == ("Failed", "there is no credential lost")
    task = await bench.task(grant)
    assert (task.status, task.attempt) == ("Failed", 1)
