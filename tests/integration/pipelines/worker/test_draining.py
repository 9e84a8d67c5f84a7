"""Turns of sources end by themselves when their worker is to stop, and are given back when they do not listen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.pipelines.tasks.task_testbed import TaskTestbed
from tests.unit.pipelines.works import lake_of

from noetl.errors import NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.pipelines.tables.partitions import TableWriter
from noetl.pipelines.worker.in_process import InProcess, Produced, stop_asked
from noetl.pipelines.worker.worker import TaskWorker
from noetl.spark.drivers.protocol import Work

pytestmark = pytest.mark.service

DAG = """
name: feed
jobs:
  - name: ticks
    operator: made_up
    runtime: dispatcher
    source: {kind: always_on}
    config: {listens: LISTENS}
  - {name: other, operator: made_up, runtime: dispatcher}
"""


class Turning:
    """Works until it is asked to stop; what does not listen works for ever."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.others = asyncio.Event()

    async def operate(self, work: Work, bundle: bytes) -> Produced:
        if work.grant.job == "other":
            self.others.set()
            return Produced(tables={0: pa.table({"id": [1]})})
        self.begun.set()
        await (stop_asked() if work.grant.config["listens"] else asyncio.Event()).wait()
        return Produced(tables={0: pa.table({"id": [1]})}, state={"stopped": True})


class NoSecrets:
    async def values(self, names: Any) -> dict[str, Any]:
        raise NotFound(f"no secrets {names}")


@pytest.fixture
async def testbed(database: Database, ledger: PostgresLedger, tmp_path: Path) -> AsyncIterator[TaskTestbed]:
    testbed = TaskTestbed(database, ledger, tmp_path / "dag")
    yield testbed
    await testbed.engine.close()


def worker(testbed: TaskTestbed, operator: Turning, lake: Path, drain_seconds: float) -> TaskWorker:
    """Return a worker with a single slot."""
    runner = InProcess({"made_up": operator}, TableWriter(lake_of(lake)))
    return TaskWorker(
        "tests", testbed.scope, testbed.tasks, testbed.payloads, {"dispatcher": runner}, NoSecrets(),
        slots=1, drain_seconds=drain_seconds, poll_seconds=0.2,
    )  # fmt: skip


@pytest.mark.parametrize("listens", [True, False])
async def test_a_worker_that_is_to_stop_asks_its_turns_to_end(
    testbed: TaskTestbed, tmp_path: Path, listens: bool
) -> None:
    """INV-67."""
    await testbed.deploy(DAG.replace("LISTENS", str(listens).lower()))
    operator = Turning()
    working = worker(testbed, operator, tmp_path, 100.0 if listens else 0.1)
    running = asyncio.create_task(working.run())
    async with asyncio.timeout(30):
        await operator.begun.wait()
        await operator.others.wait()  # a turn takes no slot from the others
        await working.stop()
        await running
    (task,) = await testbed.rows(
        "SELECT task_id::text, status, available_at, error FROM noetl.task WHERE job = 'ticks'"
    )
    if listens:
        assert (task["status"], task["available_at"]) == ("Completed", None)
        assert (await testbed.rows("SELECT state FROM noetl.operator_state"))[0][0] == '{"stopped": true}'
    else:
        assert (task["status"], task["error"]) == ("Failed", "it was stopped")
        assert task["available_at"] is not None, "another worker takes it up at once"


async def test_a_turn_that_begins_while_its_worker_stops_is_asked_at_once(testbed: TaskTestbed, tmp_path: Path) -> None:
    await testbed.deploy(DAG.replace("LISTENS", "true"))
    operator = Turning()
    working = worker(testbed, operator, tmp_path, 100.0)
    running = asyncio.create_task(working.run())
    fetch = testbed.payloads.fetch
    fetching, go = asyncio.Event(), asyncio.Event()

    async def slowly(*told: Any) -> bytes:
        fetching.set()
        await go.wait()
        return await fetch(*told)

    testbed.payloads.fetch = slowly  # type: ignore[method-assign]
    async with asyncio.timeout(30):
        await fetching.wait()
        await working.stop()
        go.set()
        await running
