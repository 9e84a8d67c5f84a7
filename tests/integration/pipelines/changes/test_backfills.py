"""Ranges of partitions are built again: each once, a few at a time, behind what is new, whoever drives or dies."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from tests.integration.pipelines.changes.changing import LEVELS, Changing

from noetl.errors import Conflict, InputError, NotFound
from noetl.model.stream import Scope
from noetl.model.task import TaskReport
from noetl.pipelines.changes.backfills import requests as backfills_module
from noetl.pipelines.plan import identity
from noetl.pipelines.tasks.outbox import Outbox

STATEFUL = """
name: shop
jobs:
  - {name: blocks, operator: made_up, runtime: dispatcher}
  - {name: ranges, operator: range_aggregator, inputs: [blocks], execution_strategy: PerUpdate, partition_by: [range],
     update_strategy: append, unique_key: [range], config: {cursor_column: n, range_size: 10}}
publish: [blocks, ranges]
"""


async def test_a_source_makes_each_partition_of_the_range_once(testbed: Changing) -> None:
    """INV-70."""
    await testbed.built(LEVELS)
    one = await testbed.backfill("orders", "2", "9")
    assert (one.status, one.total, one.queued, one.made) == ("running", 7, 7, 0)
    worked = await testbed.drive(salt="x")
    of_orders = [work for work in worked if work.startswith("orders/")]
    assert of_orders == [f"orders/day={day}" for day in range(2, 9)]
    assert await testbed.current("orders") == {"day=1": 1, "day=2": 2, **{f"day={day}": 1 for day in range(3, 9)}}
    # What reads them followed.
    assert set(await testbed.current("priced")) == {f"day={day}" for day in range(1, 9)}
    done, progress = await testbed.changes.backfills.progress(testbed.scope, one.backfill_id)
    assert (done.status, done.made, done.tasks, done.error) == ("completed", 7, 7, None)
    assert (progress.built, progress.failed, progress.open) == (7, 0, 0)
    assert (await testbed.engine.runs.finished(testbed.scope, one.backfill_id, 5)).status == "completed"
    assert await testbed.rows("SELECT FROM noetl.backfill_partition") == []


async def test_a_task_of_a_source_is_told_its_partition(testbed: Changing) -> None:
    await testbed.built(LEVELS)
    await testbed.backfill("orders", "2026-01-30", "2026-02-02")
    await testbed.drain_of_backfills.drain()
    grants = await testbed.claim("orders")
    assert [grant.partition_key for grant in grants] == ["day=2026-01-30", "day=2026-01-31", "day=2026-02-01"]
    assert {identity.is_again(grant.lease.task_id) for grant in grants} == {True}


async def test_a_derived_dataset_is_built_again_where_its_inputs_have_something(testbed: Changing) -> None:
    """INV-70."""
    await testbed.built(LEVELS, days=("1", "2", "3", "30"))
    one = await testbed.backfill("clean", "2", "31")
    assert one.total == 3
    worked = await testbed.drive(salt="x")
    assert sorted(work for work in worked if work.startswith("clean/")) == [
        "clean/day=2",
        "clean/day=3",
        "clean/day=30",
    ]
    assert await testbed.current("clean") == {"day=1": 1, "day=2": 2, "day=3": 2, "day=30": 2}
    assert (await testbed.current("priced"))["day=30"] == 2
    assert (await testbed.shown(one)).status == "completed"


async def test_a_plan_tells_what_would_be_done_and_writes_nothing(testbed: Changing) -> None:
    await testbed.built(LEVELS, days=("1", "2", "3"))
    before = await testbed.rows("SELECT count(*) FROM noetl.event")
    _, plan = await testbed.changes.plan_backfill(testbed.scope, "clean", start="2", end="9", step="1")
    assert (plan.total, plan.first, plan.last, plan.standing, plan.without_input) == (2, "day=2", "day=3", 2, 5)
    assert plan.following == ("shop.priced", "shop.totals")
    assert (plan.is_source, plan.whole, plan.task_seconds is not None) == (False, False, True)
    _, source = await testbed.changes.plan_backfill(testbed.scope, "orders", start="3", end="9")
    assert (source.total, source.standing, source.is_source) == (6, 1, True)
    assert await testbed.rows("SELECT count(*) FROM noetl.event") == before
    for name, asked, told in (
        ("totals", {}, "is not partitioned"),
        ("clean", {"fixed": {"colour": "red"}}, "not partitioned by colour"),
        ("clean", {"fixed": {"day": "1"}}, "nothing left to range over"),
    ):
        with pytest.raises(InputError, match=told):
            await testbed.changes.plan_backfill(testbed.scope, name, start="1", end="2", **asked)
    with pytest.raises(InputError, match="there is no partition of clean"):
        await testbed.backfill("clean", "100", "200")
    with pytest.raises(NotFound):
        await testbed.changes.backfills.show(testbed.scope, 7)


@pytest.mark.parametrize("source", ["{kind: always_on}", "{kind: webhook, webhook_path: /orders, signature: none}"])
async def test_a_source_that_nobody_asks_cannot_be_backfilled(testbed: Changing, source: str) -> None:
    await testbed.built(LEVELS.replace("{name: orders,", f"{{name: orders, source: {source},"))
    with pytest.raises(InputError, match="cannot be asked for a partition"):
        await testbed.changes.plan_backfill(testbed.scope, "orders", start="1", end="2")


async def test_no_more_is_under_way_than_may_be(testbed: Changing) -> None:
    """INV-71."""
    await testbed.built(LEVELS)
    one = await testbed.backfill("orders", "100", "200", max_in_flight=7)
    most = 0
    while (await testbed.shown(one)).status == "running":
        while await testbed.drain_of_backfills.drain():
            pass
        (row,) = await testbed.rows(
            "SELECT count(*) FROM noetl.task WHERE execution_id = $1 AND available_at IS NOT NULL", one.backfill_id
        )
        most = max(most, row["count"])
        await testbed.drain()
        for grant in await testbed.tasks.claim("worker", ("dispatcher",), 3, 0):
            await testbed.tasks.complete(grant, testbed.report(grant))
    # What follows from a partition comes on top of it.
    assert most <= 7 + 2 * 3
    assert (await testbed.shown(one)).made == 100


async def test_what_is_new_is_not_kept_waiting(testbed: Changing) -> None:
    """INV-71."""
    await testbed.built(LEVELS)
    await testbed.backfill("orders", "100", "200", max_in_flight=16)
    await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    while await testbed.drain_of_backfills.drain():
        pass
    waiting = await testbed.engine.by_hand.listed(testbed.scope, status="Queued")
    assert len(waiting) == 1 + 2
    (first, *_) = await testbed.claim()
    assert first.partition_key == "all"
    while await testbed.drain_of_backfills.drain():
        pass
    assert len(await testbed.engine.by_hand.listed(testbed.scope, status="Queued")) == 16 - 2


async def test_a_backfill_is_paused_resumed_and_cancelled(testbed: Changing) -> None:
    await testbed.built(LEVELS)
    own = testbed.changes.backfills
    one = await testbed.backfill("orders", "100", "120")
    await testbed.drain_of_backfills.drain()
    paused = await own.pause(testbed.scope, one.backfill_id, by="ann")
    assert (paused.status, paused.made) == ("paused", 4)
    await testbed.work()
    assert await testbed.drain_of_backfills.drain() == 0
    assert (await testbed.engine.runs.settle(testbed.scope, one.backfill_id)).status == "open"
    with pytest.raises(Conflict, match="is paused and cannot be paused"):
        await own.pause(testbed.scope, one.backfill_id, by="ann")
    assert (await own.resume(testbed.scope, one.backfill_id, by="ann")).status == "running"
    await testbed.drain_of_backfills.drain()
    (running, *_) = await testbed.claim("orders", 1)
    cancelled = await own.cancel(testbed.scope, one.backfill_id, by="ann", reason="not wanted")
    assert (cancelled.status, cancelled.made, cancelled.error) == ("cancelled", 8, "not wanted")
    assert await testbed.tasks.heartbeat([running.lease]) == [running.lease]
    assert await testbed.claim() == []
    assert await testbed.drain_of_backfills.drain() == 0
    assert (await testbed.engine.runs.finished(testbed.scope, one.backfill_id, 5)).status == "completed"
    told = await testbed.events(f"backfill/{one.backfill_id}")
    assert [said.partition(".")[2] for said in told] == [
        "requested", "queued", "advanced", "paused", "resumed", "advanced", "cancelled",
    ]  # fmt: skip
    with pytest.raises(Conflict, match="is cancelled and cannot be resumed"):
        await own.resume(testbed.scope, one.backfill_id, by="ann")
    assert [found.backfill_id for found in await own.listed(testbed.scope)] == [one.backfill_id]


async def test_partitions_that_failed_are_told_at_the_end(testbed: Changing) -> None:
    await testbed.built(LEVELS)
    one = await testbed.backfill("orders", "7", "9")
    await testbed.drain_of_backfills.drain()
    bad, good = await testbed.claim("orders")
    await testbed.tasks.complete(bad, TaskReport(status="error", error="no", retryable=False))
    await testbed.tasks.complete(good, testbed.report(good))
    await testbed.drive()
    failed, progress = await testbed.changes.backfills.progress(testbed.scope, one.backfill_id)
    assert (failed.status, progress.failed, progress.built) == ("failed", 1, 1)
    assert "1 of 2 partitions failed" in str(failed.error)
    assert (await testbed.engine.runs.finished(testbed.scope, one.backfill_id, 5)).status == "failed"


async def test_whoever_finds_it_half_queued_queues_the_rest(testbed: Changing, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-70."""
    await testbed.built(LEVELS)
    monkeypatch.setattr(backfills_module, "KEYS_BYTES", 40)
    monkeypatch.setattr(backfills_module, "APPENDED_TOGETHER", 1)
    queued = testbed.changes.backfills._queue

    async def dies(*given: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(testbed.changes.backfills, "_queue", dies)
    with pytest.raises(TimeoutError):
        await testbed.backfill("orders", "100", "150")
    monkeypatch.setattr(testbed.changes.backfills, "_queue", queued)
    (one,) = await testbed.changes.backfills.listed(testbed.scope)
    assert (one.status, one.queued) == ("queueing", 0)
    other = testbed.changes.drain(patience_seconds=0)
    await asyncio.gather(testbed.drain_of_backfills.drain(), other.drain())
    one = await testbed.shown(one)
    assert (one.status, one.queued) == ("running", 50)
    await testbed.drive()
    assert set(await testbed.current("orders")) >= {f"day={day}" for day in range(100, 150)}
    tasks = await testbed.rows("SELECT partition_key FROM noetl.task WHERE job = 'orders' AND partition_key <> 'all'")
    assert len(tasks) == 50


async def test_several_that_drive_at_once_make_nothing_twice(testbed: Changing) -> None:
    """INV-70."""
    await testbed.built(LEVELS)
    one = await testbed.backfill("orders", "100", "140", max_in_flight=100)
    drains = [testbed.changes.drain(patience_seconds=0) for _ in range(4)]
    while (await testbed.shown(one)).made < 40:
        await asyncio.gather(*(drain.drain() for drain in drains))
    keys = await testbed.rows("SELECT partition_key FROM noetl.task WHERE execution_id = $1", one.backfill_id)
    assert sorted(row[0] for row in keys) == [f"day={day}" for day in range(100, 140)]


async def test_one_whose_generation_is_gone_is_cancelled(testbed: Changing) -> None:
    await testbed.built(LEVELS)
    one = await testbed.backfill("orders", "100", "120")
    await testbed.built(LEVELS.replace("{name: orders,", "{name: orders, config: {deep: true},"))
    await testbed.drain_of_backfills.drain()
    shown = await testbed.shown(one)
    assert (shown.status, shown.made) == ("cancelled", 0)
    assert "no longer in use" in str(shown.error)


async def test_one_that_a_deploy_leaves_alone_goes_on_with_the_new_version(testbed: Changing) -> None:
    await testbed.built(LEVELS)
    one = await testbed.backfill("orders", "100", "110")
    await testbed.built(LEVELS.replace("{name: totals,", "{name: totals, config: {deep: true},"))
    await testbed.drive()
    assert (await testbed.shown(one)).status == "completed"


async def test_what_an_operator_keeps_is_forgotten_when_it_begins_anew(testbed: Changing) -> None:
    deployed = await testbed.deploy(STATEFUL)
    await testbed.drain()
    for job, report in (
        ("blocks", None),
        ("ranges", {"next_start": 20, "seen": 25}),
    ):
        (grant,) = await testbed.claim(job)
        own = testbed.report(grant) if report is None else TaskReport(status="ok", operator_state=report)
        await testbed.tasks.complete(grant, own)
    await testbed.drain()
    assert (await testbed.engine.runs.finished(testbed.scope, deployed.execution_id, 10)).status == "completed"
    await testbed.dags.activate(testbed.scope, "shop", deployed.dag_version_id, by="tests")
    for number, change in enumerate(("backfill", "invalidation")):
        if change == "backfill":
            await testbed.backfill("ranges", "0", "100")
            await testbed.drain_of_backfills.drain()
        else:
            await testbed.invalidate("blocks", partition_key="all")
        (row,) = await testbed.rows("SELECT state, version FROM noetl.operator_state")
        assert (row["state"], row["version"]) == ("{}", 2 + 2 * number), change
        (grant,) = await testbed.claim("ranges")
        assert (grant.operator_state, grant.inputs[0].parts[0].after) == ({}, 0)
        report = TaskReport(status="ok", operator_state={"next_start": 20, "seen": 25})
        assert await testbed.tasks.complete(grant, report) == "Completed"
        await testbed.drive()


async def test_organizations_take_turns_and_never_meet(testbed: Changing, tmp_path: Path) -> None:
    """INV-71, INV-22."""
    other = Changing(
        testbed.database,
        testbed.ledger,
        tmp_path / "other",
        scope=Scope("default", "other"),
        payloads=testbed.payloads,
        node=2,
    )
    try:
        await testbed.built(LEVELS)
        await other.built(LEVELS)
        large = await testbed.backfill("orders", "0", "10000")
        small = await other.backfill("orders", "100", "104")
        while (await other.shown(small)).status == "running":
            await testbed.drain_of_backfills.drain()
            await other.work()
            for grant in await testbed.tasks.claim("worker", ("dispatcher",), 1, 0):
                await testbed.tasks.complete(grant, testbed.report(grant))
        assert (await other.shown(small)).status == "completed"
        mine = await testbed.shown(large)
        assert (mine.status, mine.made < 100) == ("running", True)
        await other.engine.runs.emit(other.scope, "shop", "orders", requested_by="test")
        assert "totals/all" in await other.work(salt="y")
        with pytest.raises(NotFound):
            await other.changes.backfills.show(other.scope, large.backfill_id)
        await testbed.changes.backfills.cancel(testbed.scope, large.backfill_id, by="ann")
    finally:
        await other.engine.close()


async def test_a_hundred_thousand_partitions_are_planned_and_queued_at_once(testbed: Changing) -> None:
    await testbed.built(LEVELS)
    began = time.perf_counter()
    found, plan = await testbed.changes.plan_backfill(testbed.scope, "orders", start="0", end="100000")
    assert time.perf_counter() - began < 2
    one = await testbed.changes.backfills.request(testbed.scope, found, plan, by="ann")
    assert (one.status, one.queued) == ("running", 100_000)
    told = await testbed.events(f"backfill/{one.backfill_id}")
    assert len(told) < 30
    await testbed.changes.backfills.cancel(testbed.scope, one.backfill_id, by="ann")


async def test_missed_partitions_are_found_once(testbed: Changing, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-72."""
    await testbed.built(LEVELS)
    assert (await testbed.changes.reconciling.reconcile(testbed.scope, by="test")).missed == 0
    await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    (orders,) = await testbed.claim("orders")
    await testbed.tasks.complete(orders, testbed.report(orders, ["1", "5"], salt="x"))
    # The change is on record, and what should have routed it was lost.
    async with testbed.database.transaction(testbed.scope) as connection:
        await connection.execute("UPDATE noetl.outbox SET status = 'Done' WHERE kind = 'route_event'")
    found = await testbed.changes.reconciling.reconcile(testbed.scope, "shop", by="test")
    assert found.dags[0].partitions == (("clean", "day=1"), ("clean", "day=5"))
    assert (await testbed.changes.reconciling.reconcile(testbed.scope, by="test")).missed == 0
    await testbed.work()
    run = found.dags[0].execution_id
    assert run is not None
    assert (await testbed.engine.runs.finished(testbed.scope, run, 5)).status == "completed"
    assert "day=5" in await testbed.current("priced")
    with pytest.raises(NotFound, match="no version of a DAG nope"):
        await testbed.changes.reconciling.reconcile(testbed.scope, "nope", by="test")


async def test_what_is_on_its_way_is_not_missing(testbed: Changing) -> None:
    await testbed.built(LEVELS)
    await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    (orders,) = await testbed.claim("orders")
    await testbed.tasks.complete(orders, testbed.report(orders, ["1"], salt="x"))
    assert isinstance(testbed.engine.outbox, Outbox)
    assert (await testbed.changes.reconciling.reconcile(testbed.scope, by="test")).missed == 0
    assert await testbed.work() == ["clean/day=1", "priced/day=1", "totals/all"]
