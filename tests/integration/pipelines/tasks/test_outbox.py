"""The outbox: everything is delivered, each row on its own; what cannot be is visible and comes back by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from tests.integration.pipelines.tasks.task_testbed import TaskTestbed

from noetl.engine.dispatch.polling import Backoff
from noetl.errors import NotFound, OutsideUnavailable, Unavailable
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.stream import Scope
from noetl.pipelines.tasks.outbox import Outbox, OutboxRow


class Recorder:
    """Notes what it is given, and fails on one task."""

    def __init__(self, poison: str | None = None, *, whole: bool = False) -> None:
        self.seen: list[str] = []
        self.calls = 0
        self.poison = poison
        self.whole = whole
        self.problem: Exception = OutsideUnavailable("it does not answer")

    async def __call__(self, scope: Scope, rows: Sequence[OutboxRow]) -> Mapping[str, Exception]:
        self.calls += 1
        bad = [row for row in rows if row.payload.get("partition_key") == self.poison]
        if bad and self.whole:
            raise self.problem
        self.seen += [row.payload.get("partition_key", row.payload.get("task_id")) for row in rows if row not in bad]
        return {row.outbox_id: self.problem for row in bad}


async def _with_routes(testbed: TaskTestbed) -> None:
    await testbed.deploy()
    (grant,) = await testbed.claim()
    await testbed.tasks.complete(grant, testbed.report(grant, ["1", "2", "3"]))


@pytest.mark.parametrize("whole", [False, True])
async def test_one_poisoned_row_blocks_no_other_and_ends_as_dead(testbed: TaskTestbed, *, whole: bool) -> None:
    await _with_routes(testbed)
    recorder = Recorder("day=2", whole=whole)
    outbox = Outbox(
        testbed.database, {"route_event": recorder, "enqueue_task": Recorder()}, backoff=Backoff(0.0, 0.0),
        max_attempts=3,
    )  # fmt: skip
    for _ in range(4):
        await outbox.drain()
    assert sorted(recorder.seen) == ["day=1", "day=3"]
    (dead,) = await outbox.list_dead(testbed.scope)
    assert (dead.payload["partition_key"], dead.attempts) == ("day=2", 3)
    assert dead.last_error == "OutsideUnavailable: it does not answer"
    recorder.poison = None
    assert await outbox.rearm(testbed.scope, dead.outbox_id) == 1
    await outbox.drain()
    assert sorted(recorder.seen) == ["day=1", "day=2", "day=3"]
    assert await outbox.list_dead(testbed.scope) == []
    with pytest.raises(NotFound):
        await outbox.rearm(testbed.scope, dead.outbox_id)
    assert await outbox.rearm(testbed.scope) == 0


async def test_a_row_that_failed_waits_before_it_is_tried_again(testbed: TaskTestbed) -> None:
    await _with_routes(testbed)
    recorder = Recorder("day=2")
    outbox = Outbox(
        testbed.database, {"route_event": recorder, "enqueue_task": Recorder()}, backoff=Backoff(60.0, 300.0)
    )
    await outbox.drain()
    assert await outbox.drain() == 0
    (row,) = await testbed.rows(
        "SELECT extract(epoch FROM lease_until - clock_timestamp())::float8 AS wait FROM noetl.outbox"
        " WHERE status = 'Pending'"
    )
    assert 20.0 < row["wait"] < 100.0


async def test_two_who_drain_at_once_deliver_each_row_once(testbed: TaskTestbed) -> None:
    await _with_routes(testbed)
    recorder = Recorder()
    one, two = (Outbox(testbed.database, {"route_event": recorder, "enqueue_task": recorder}) for _ in range(2))
    await asyncio.gather(*(outbox.drain_scope(testbed.scope, 1) for outbox in (one, two) for _ in range(4)))
    await one.drain()
    assert len(recorder.seen) == len(set(recorder.seen))
    assert {"day=1", "day=2", "day=3"} <= set(recorder.seen)


async def test_a_row_whose_lease_ran_out_is_delivered_by_another(testbed: TaskTestbed) -> None:
    await _with_routes(testbed)
    begun, stuck = asyncio.Event(), asyncio.Event()

    async def hang(scope: Scope, rows: Sequence[OutboxRow]) -> Mapping[str, Exception]:
        begun.set()
        await stuck.wait()
        return {}

    slow = Outbox(testbed.database, {"route_event": hang, "enqueue_task": hang}, lease_seconds=60.0)
    hanging = asyncio.create_task(slow.drain())
    await begun.wait()
    recorder = Recorder()
    other = Outbox(testbed.database, {"route_event": recorder, "enqueue_task": recorder})
    assert await other.drain() == 0
    async with testbed.database.transaction(testbed.scope) as connection:
        await connection.execute(
            "UPDATE noetl.outbox SET lease_until = clock_timestamp() - interval '1 s' WHERE lease_token IS NOT NULL"
        )
    assert await other.drain() == 3
    stuck.set()
    await hanging
    rows = await testbed.rows("SELECT status, attempts FROM noetl.outbox WHERE kind = 'route_event'")
    assert {tuple(row) for row in rows} == {("Done", 2)}, "whoever was too slow changes nothing"


async def test_a_dead_row_fails_its_run(database: Database, ledger: PostgresLedger, testbed: TaskTestbed) -> None:
    await testbed.built()
    run = await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    (grant,) = await testbed.claim()
    await testbed.tasks.complete(grant, testbed.report(grant, ["1"], salt="x"))
    broken = Outbox(
        database, {"route_event": Recorder("day=1"), "enqueue_task": Recorder()}, backoff=Backoff(0.0, 0.0),
        max_attempts=1,
    )  # fmt: skip
    await broken.drain()
    ended = await testbed.engine.runs.settle(testbed.scope, run)
    assert (ended.status, ended.error) == (
        "failed",
        "route_event could not be delivered: OutsideUnavailable: it does not answer",
    )


async def test_no_row_is_given_up_while_the_platform_is_away(testbed: TaskTestbed) -> None:
    """INV-182: it is delivered once the platform answers, after however many tries."""
    await _with_routes(testbed)
    recorder = Recorder("day=2")
    recorder.problem = Unavailable("the database does not answer")
    outbox = Outbox(
        testbed.database, {"route_event": recorder, "enqueue_task": Recorder()}, backoff=Backoff(0.0, 0.0),
        max_attempts=3,
    )  # fmt: skip
    for _ in range(5):
        await outbox.drain()
    assert await outbox.list_dead(testbed.scope) == []
    recorder.poison = None
    await outbox.drain()
    assert sorted(recorder.seen) == ["day=1", "day=2", "day=3"]
