"""Rows that were said to be wrong are made anew: once, whatever was done before, and all that was made of them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.integration.pipelines.changes.changing import LEVELS, Changing
from tests.integration.pipelines.tasks.task_testbed import written

from noetl.errors import InputError, NotFound
from noetl.model.dataset import Field
from noetl.model.task import TaskReport
from noetl.pipelines.plan import identity

JOIN = """
name: shop
jobs:
  - {name: left, operator: made_up, runtime: dispatcher, partition_by: [day]}
  - {name: right, operator: made_up, runtime: dispatcher, partition_by: [day]}
  - {name: both, operator: made_up, runtime: dispatcher, partition_by: [day], wait: all, inputs: [left, right]}
publish: [left, right, both]
"""
NEWS = """
name: shop
jobs:
  - {name: orders, operator: made_up, runtime: dispatcher, partition_by: [day]}
  - name: log
    operator: made_up
    runtime: dispatcher
    inputs: [orders]
    execution_strategy: PerUpdate
    update_strategy: append
    unique_key: [day]
publish: [orders, log]
"""


async def test_a_derived_partition_is_built_again_and_the_change_goes_down_three_levels(testbed: Changing) -> None:
    """INV-69."""
    await testbed.built(LEVELS)
    before = {job: await testbed.current(job) for job in ("orders", "clean", "priced", "totals")}
    wrong = await testbed.invalidate("clean", partition_key="day=1", reason="correction", note="the rate was old")
    assert (wrong.status, wrong.scope, wrong.reason, wrong.note) == (
        "open",
        "partition",
        "correction",
        "the rate was old",
    )
    assert list(wrong.dependents.values()) == [1]
    assert list(wrong.jobs.values()) == ["shop.clean"]
    assert await testbed.work(salt="x") == ["clean/day=1", "priced/day=1", "totals/all"]
    after = {job: await testbed.current(job) for job in before}
    assert after == {
        "orders": before["orders"],
        "clean": {"day=1": 2, "day=2": 1},
        "priced": {"day=1": 2, "day=2": 1},
        "totals": {"all": before["totals"]["all"] + 1},
    }
    closed = await testbed.changes.invalidations.show(testbed.scope, wrong.invalidation_id)
    assert (closed.status, closed.processed_by) == ("closed", wrong.dependents)
    end = await testbed.engine.runs.finished(testbed.scope, wrong.invalidation_id, 5)
    assert end.status == "completed"


async def test_what_is_asked_for_is_never_taken_for_done(testbed: Changing) -> None:
    """INV-69."""
    await testbed.built(LEVELS)
    for _ in range(2):
        wrong = await testbed.invalidate("clean", partition_key="day=2")
        (grant,) = await testbed.claim("clean")
        assert identity.is_again(grant.lease.task_id)
        assert grant.execution_id == wrong.invalidation_id
        assert await testbed.tasks.complete(grant, testbed.report(grant)) == "Completed"
        # The same came out of it, so that nothing else has to be done.
        await testbed.drain()
        assert await testbed.claim() == []
        assert (await testbed.changes.invalidations.show(testbed.scope, wrong.invalidation_id)).status == "closed"
    assert (await testbed.current("clean"))["day=2"] == 3


async def test_of_a_source_what_was_made_of_its_partition_is_made_again(testbed: Changing) -> None:
    await testbed.built(LEVELS)
    wrong = await testbed.invalidate("orders", partition_key="day=2", reason="reorg")
    assert list(wrong.jobs.values()) == ["shop.clean"]
    assert await testbed.work(salt="x") == ["clean/day=2", "priced/day=2", "totals/all"]


async def test_a_job_that_is_worked_whole_is_worked_whole_again(testbed: Changing) -> None:
    await testbed.built(LEVELS)
    await testbed.invalidate("totals", partition_key="all")
    assert await testbed.work(salt="x") == ["totals/all"]


async def test_a_join_is_made_again_where_both_sides_are_there(testbed: Changing) -> None:
    deployed = await testbed.deploy(JOIN)
    for job, days in (("left", ["1", "2"]), ("right", ["2", "3"])):
        (grant,) = await testbed.claim(job)
        await testbed.tasks.complete(grant, testbed.report(grant, days))
    await testbed.work()
    assert (await testbed.engine.runs.finished(testbed.scope, deployed.execution_id, 10)).status == "completed"
    await testbed.dags.activate(testbed.scope, "shop", deployed.dag_version_id, by="tests")
    nothing = await testbed.invalidate("left", partition_key="day=1")
    assert (nothing.status, nothing.dependents) == ("closed", {})
    assert (await testbed.engine.runs.finished(testbed.scope, nothing.invalidation_id, 5)).status == "completed"
    first, second = await asyncio.gather(
        testbed.invalidate("left", partition_key="day=2"), testbed.invalidate("right", partition_key="day=2")
    )
    grants = await testbed.claim("both")
    assert [grant.partition_key for grant in grants] == ["day=2", "day=2"]
    assert {grant.execution_id for grant in grants} == {first.invalidation_id, second.invalidation_id}
    for number, grant in enumerate(grants):
        await testbed.tasks.complete(grant, testbed.report(grant, salt=str(number)))
    for one in (first, second):
        assert (await testbed.changes.invalidations.show(testbed.scope, one.invalidation_id)).status == "closed"


async def test_a_task_under_way_does_not_undo_what_was_asked_for_after_it(testbed: Changing) -> None:
    await testbed.built(LEVELS)
    await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    (orders,) = await testbed.claim("orders")
    await testbed.tasks.complete(orders, testbed.report(orders, ["1"], salt="new"))
    (running,) = await testbed.claim("clean")
    wrong = await testbed.invalidate("clean", partition_key="day=1")
    (again,) = await testbed.claim("clean")
    assert await testbed.tasks.complete(again, testbed.report(again, salt="right")) == "Completed"
    assert await testbed.tasks.complete(running, testbed.report(running, salt="wrong")) == "Skipped"
    assert (await testbed.changes.invalidations.show(testbed.scope, wrong.invalidation_id)).status == "closed"
    (stands,) = await testbed.rows(
        "SELECT task_id::text FROM noetl.partition_version AS v JOIN noetl.dataset AS d USING (dataset_uuid)"
        " WHERE d.producer_job = 'clean' AND v.partition_key = 'day=1' AND v.current"
    )
    assert stands["task_id"] == again.lease.task_id


async def test_one_that_newer_inputs_overtook_counts_as_done(testbed: Changing) -> None:
    await testbed.built(LEVELS)
    wrong = await testbed.invalidate("clean", partition_key="day=1")
    (again,) = await testbed.claim("clean")
    await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    (orders,) = await testbed.claim("orders")
    await testbed.tasks.complete(orders, testbed.report(orders, ["1"], salt="new"))
    (newer,) = await testbed.claim("clean")
    await testbed.tasks.complete(newer, testbed.report(newer))
    assert await testbed.tasks.complete(again, testbed.report(again)) == "Skipped"
    assert (await testbed.changes.invalidations.show(testbed.scope, wrong.invalidation_id)).status == "closed"


async def test_it_stays_open_until_what_failed_is_done(testbed: Changing) -> None:
    """INV-69."""
    await testbed.built(LEVELS)
    wrong = await testbed.invalidate("clean", partition_key="day=1")
    (grant,) = await testbed.claim("clean")
    failed = TaskReport(status="error", error="no", retryable=False)
    assert await testbed.tasks.complete(grant, failed) == "Failed"
    assert (await testbed.engine.runs.finished(testbed.scope, wrong.invalidation_id, 5)).status == "failed"
    shown = await testbed.changes.invalidations.show(testbed.scope, wrong.invalidation_id)
    assert (shown.status, shown.processed_by) == ("open", {})
    assert [
        one.invalidation_id for one in await testbed.changes.invalidations.listed(testbed.scope, status="open")
    ] == [wrong.invalidation_id]
    await testbed.engine.by_hand.retry(testbed.scope, grant.lease.task_id, by="ann")
    await testbed.work(salt="x")
    assert (await testbed.changes.invalidations.show(testbed.scope, wrong.invalidation_id)).status == "closed"


async def test_news_that_were_read_are_read_whole_again_and_none_is_consumed_by_it(testbed: Changing) -> None:
    await testbed.built(NEWS)
    await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    (orders,) = await testbed.claim("orders")
    await testbed.tasks.complete(orders, testbed.report(orders, ["1", "2"], salt="new"))
    # Its news are not routed yet when the invalidation comes.
    await testbed.invalidate("log", partition_key="all")
    cursors = await testbed.rows("SELECT partition_key, version FROM noetl.dataset_cursor ORDER BY 1")
    grants = {identity.is_again(grant.lease.task_id): grant for grant in await testbed.claim("log")}
    assert [(part.version, part.after) for part in grants[True].inputs[0].parts] == [(2, 0), (2, 0)]
    assert [(part.version, part.after) for part in grants[False].inputs[0].parts] == [(2, 1), (2, 1)]
    await testbed.tasks.complete(grants[True], testbed.report(grants[True], salt="a"))
    assert await testbed.rows("SELECT partition_key, version FROM noetl.dataset_cursor ORDER BY 1") == cursors
    report = testbed.report(grants[False], salt="b")
    moved = tuple(msgspec.structs.replace(write, base_version=write.base_version + 1) for write in report.writes)
    await testbed.tasks.complete(grants[False], msgspec.structs.replace(report, writes=moved))
    assert [row[1] for row in await testbed.rows("SELECT 1, version FROM noetl.dataset_cursor")] == [2, 2]


async def test_a_range_of_rows_names_the_partitions_whose_statistics_meet_it(testbed: Changing) -> None:
    deployed = await testbed.deploy(LEVELS)
    (grant,) = await testbed.claim("orders")
    writes = []
    columns = (Field("day", "string"), Field("amount", "int"))
    for day, stats in (("1", {"min": 0, "max": 9}), ("2", {"min": 10, "max": 19}), ("3", {}), ("4", None)):
        write = written(grant, 0, f"day={day}", day, schema=columns)
        files = tuple(
            msgspec.structs.replace(entry, stats={} if stats is None else {"amount": {"nulls": 1, **stats}})
            for entry in write.files
        )
        writes.append(msgspec.structs.replace(write, files=files))
    await testbed.tasks.complete(grant, TaskReport(status="ok", writes=tuple(writes)))
    await testbed.work()
    assert (await testbed.engine.runs.finished(testbed.scope, deployed.execution_id, 10)).status == "completed"
    await testbed.dags.activate(testbed.scope, "shop", deployed.dag_version_id, by="tests")
    for where, days in (("amount:5..10", ["1", "4"]), ("amount:9..", ["1", "2", "4"]), ("day:2..4", ["2", "3"])):
        wrong = await testbed.invalidate("orders", where=where)
        assert wrong.scope == "row_range"
        grants = await testbed.claim("clean")
        assert sorted(grant.partition_key for grant in grants) == [f"day={day}" for day in days], where
        for one in grants:
            await testbed.tasks.complete(one, testbed.report(one))
    assert wrong.row_filter == {"day": {"gte": "2", "lt": "4"}}
    for where, told in (
        ("amount", "is no range of rows"),
        ("colour:1..2", "no column 'colour'"),
        ("amount:x..", "is no int"),
        ("amount:5..5", "there is nothing in"),
    ):
        with pytest.raises(InputError, match=told):
            await testbed.invalidate("orders", where=where)


async def test_what_is_not_there_cannot_be_wrong(testbed: Changing) -> None:
    with pytest.raises(NotFound, match="no dataset clean"):
        await testbed.invalidate("clean", partition_key="day=1")
    await testbed.built(LEVELS)
    with pytest.raises(NotFound, match="has no partition day=7"):
        await testbed.invalidate("clean", partition_key="day=7")
    with pytest.raises(InputError, match="a partition or a range of rows"):
        await testbed.invalidate("clean")
    assert await testbed.changes.invalidations.listed(testbed.scope) == []


async def test_one_whose_generation_is_gone_is_closed_by_reconciling(testbed: Changing) -> None:
    await testbed.built(LEVELS)
    wrong = await testbed.invalidate("priced", partition_key="day=1")
    (running,) = await testbed.claim("priced")
    assert running.execution_id == wrong.invalidation_id
    changed = LEVELS.replace("{name: priced,", "{name: priced, config: {deep: true},")
    await testbed.built(changed)
    await testbed.engine.by_hand.cancel_unused(testbed.scope, by="test")
    found = await testbed.changes.reconciling.reconcile(testbed.scope, by="test")
    assert found.closed == (wrong.invalidation_id,)
    shown = await testbed.changes.invalidations.show(testbed.scope, wrong.invalidation_id)
    assert (shown.status, "no longer in use" in str(shown.closed_because)) == ("closed", True)
