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


async def test_a_derived_partition_is_built_again_and_the_change_goes_down_three_levels(ground: Changing) -> None:
    """INV-69."""
    await ground.built(LEVELS)
    before = {job: await ground.current(job) for job in ("orders", "clean", "priced", "totals")}
    wrong = await ground.invalidate("clean", partition_key="day=1", reason="correction", note="the rate was old")
    assert (wrong.status, wrong.scope, wrong.reason, wrong.note) == (
        "open",
        "partition",
        "correction",
        "the rate was old",
    )
    assert list(wrong.dependents.values()) == [1]
    assert list(wrong.jobs.values()) == ["shop.clean"]
    assert await ground.work(salt="x") == ["clean/day=1", "priced/day=1", "totals/all"]
    after = {job: await ground.current(job) for job in before}
    assert after == {
        "orders": before["orders"],
        "clean": {"day=1": 2, "day=2": 1},
        "priced": {"day=1": 2, "day=2": 1},
        "totals": {"all": before["totals"]["all"] + 1},
    }
    closed = await ground.changes.invalidations.show(ground.scope, wrong.invalidation_id)
    assert (closed.status, closed.processed_by) == ("closed", wrong.dependents)
    end = await ground.engine.runs.finished(ground.scope, wrong.invalidation_id, 5)
    assert end.status == "completed"


async def test_what_is_asked_for_is_never_taken_for_done(ground: Changing) -> None:
    """INV-69."""
    await ground.built(LEVELS)
    for _ in range(2):
        wrong = await ground.invalidate("clean", partition_key="day=2")
        (grant,) = await ground.claim("clean")
        assert identity.is_again(grant.lease.task_id)
        assert grant.execution_id == wrong.invalidation_id
        assert await ground.tasks.complete(grant, ground.report(grant)) == "Completed"
        # The same came out of it, so that nothing else has to be done.
        await ground.drain()
        assert await ground.claim() == []
        assert (await ground.changes.invalidations.show(ground.scope, wrong.invalidation_id)).status == "closed"
    assert (await ground.current("clean"))["day=2"] == 3


async def test_of_a_source_what_was_made_of_its_partition_is_made_again(ground: Changing) -> None:
    await ground.built(LEVELS)
    wrong = await ground.invalidate("orders", partition_key="day=2", reason="reorg")
    assert list(wrong.jobs.values()) == ["shop.clean"]
    assert await ground.work(salt="x") == ["clean/day=2", "priced/day=2", "totals/all"]


async def test_a_job_that_is_worked_whole_is_worked_whole_again(ground: Changing) -> None:
    await ground.built(LEVELS)
    await ground.invalidate("totals", partition_key="all")
    assert await ground.work(salt="x") == ["totals/all"]


async def test_a_join_is_made_again_where_both_sides_are_there(ground: Changing) -> None:
    deployed = await ground.deploy(JOIN)
    for job, days in (("left", ["1", "2"]), ("right", ["2", "3"])):
        (grant,) = await ground.claim(job)
        await ground.tasks.complete(grant, ground.report(grant, days))
    await ground.work()
    assert (await ground.engine.runs.finished(ground.scope, deployed.execution_id, 10)).status == "completed"
    await ground.dags.activate(ground.scope, "shop", deployed.dag_version_id, by="tests")
    nothing = await ground.invalidate("left", partition_key="day=1")
    assert (nothing.status, nothing.dependents) == ("closed", {})
    assert (await ground.engine.runs.finished(ground.scope, nothing.invalidation_id, 5)).status == "completed"
    first, second = await asyncio.gather(
        ground.invalidate("left", partition_key="day=2"), ground.invalidate("right", partition_key="day=2")
    )
    grants = await ground.claim("both")
    assert [grant.partition_key for grant in grants] == ["day=2", "day=2"]
    assert {grant.execution_id for grant in grants} == {first.invalidation_id, second.invalidation_id}
    for number, grant in enumerate(grants):
        await ground.tasks.complete(grant, ground.report(grant, salt=str(number)))
    for one in (first, second):
        assert (await ground.changes.invalidations.show(ground.scope, one.invalidation_id)).status == "closed"


async def test_a_task_under_way_does_not_undo_what_was_asked_for_after_it(ground: Changing) -> None:
    await ground.built(LEVELS)
    await ground.engine.runs.emit(ground.scope, "shop", "orders", requested_by="test")
    (orders,) = await ground.claim("orders")
    await ground.tasks.complete(orders, ground.report(orders, ["1"], salt="new"))
    (running,) = await ground.claim("clean")
    wrong = await ground.invalidate("clean", partition_key="day=1")
    (again,) = await ground.claim("clean")
    assert await ground.tasks.complete(again, ground.report(again, salt="right")) == "Completed"
    assert await ground.tasks.complete(running, ground.report(running, salt="wrong")) == "Skipped"
    assert (await ground.changes.invalidations.show(ground.scope, wrong.invalidation_id)).status == "closed"
    (stands,) = await ground.rows(
        "SELECT task_id::text FROM noetl.partition_version AS v JOIN noetl.dataset AS d USING (dataset_uuid)"
        " WHERE d.producer_job = 'clean' AND v.partition_key = 'day=1' AND v.current"
    )
    assert stands["task_id"] == again.lease.task_id


async def test_one_that_newer_inputs_overtook_counts_as_done(ground: Changing) -> None:
    await ground.built(LEVELS)
    wrong = await ground.invalidate("clean", partition_key="day=1")
    (again,) = await ground.claim("clean")
    await ground.engine.runs.emit(ground.scope, "shop", "orders", requested_by="test")
    (orders,) = await ground.claim("orders")
    await ground.tasks.complete(orders, ground.report(orders, ["1"], salt="new"))
    (newer,) = await ground.claim("clean")
    await ground.tasks.complete(newer, ground.report(newer))
    assert await ground.tasks.complete(again, ground.report(again)) == "Skipped"
    assert (await ground.changes.invalidations.show(ground.scope, wrong.invalidation_id)).status == "closed"


async def test_it_stays_open_until_what_failed_is_done(ground: Changing) -> None:
    """INV-69."""
    await ground.built(LEVELS)
    wrong = await ground.invalidate("clean", partition_key="day=1")
    (grant,) = await ground.claim("clean")
    failed = TaskReport(status="error", error="no", retryable=False)
    assert await ground.tasks.complete(grant, failed) == "Failed"
    assert (await ground.engine.runs.finished(ground.scope, wrong.invalidation_id, 5)).status == "failed"
    shown = await ground.changes.invalidations.show(ground.scope, wrong.invalidation_id)
    assert (shown.status, shown.processed_by) == ("open", {})
    assert [one.invalidation_id for one in await ground.changes.invalidations.listed(ground.scope, status="open")] == [
        wrong.invalidation_id
    ]
    await ground.engine.by_hand.retry(ground.scope, grant.lease.task_id, by="ann")
    await ground.work(salt="x")
    assert (await ground.changes.invalidations.show(ground.scope, wrong.invalidation_id)).status == "closed"


async def test_news_that_were_read_are_read_whole_again_and_none_is_consumed_by_it(ground: Changing) -> None:
    await ground.built(NEWS)
    await ground.engine.runs.emit(ground.scope, "shop", "orders", requested_by="test")
    (orders,) = await ground.claim("orders")
    await ground.tasks.complete(orders, ground.report(orders, ["1", "2"], salt="new"))
    # Its news are not routed yet when the invalidation comes.
    await ground.invalidate("log", partition_key="all")
    cursors = await ground.rows("SELECT partition_key, version FROM noetl.dataset_cursor ORDER BY 1")
    grants = {identity.is_again(grant.lease.task_id): grant for grant in await ground.claim("log")}
    assert [(part.version, part.after) for part in grants[True].inputs[0].parts] == [(2, 0), (2, 0)]
    assert [(part.version, part.after) for part in grants[False].inputs[0].parts] == [(2, 1), (2, 1)]
    await ground.tasks.complete(grants[True], ground.report(grants[True], salt="a"))
    assert await ground.rows("SELECT partition_key, version FROM noetl.dataset_cursor ORDER BY 1") == cursors
    report = ground.report(grants[False], salt="b")
    moved = tuple(msgspec.structs.replace(write, base_version=write.base_version + 1) for write in report.writes)
    await ground.tasks.complete(grants[False], msgspec.structs.replace(report, writes=moved))
    assert [row[1] for row in await ground.rows("SELECT 1, version FROM noetl.dataset_cursor")] == [2, 2]


async def test_a_range_of_rows_names_the_partitions_whose_statistics_meet_it(ground: Changing) -> None:
    deployed = await ground.deploy(LEVELS)
    (grant,) = await ground.claim("orders")
    writes = []
    columns = (Field("day", "string"), Field("amount", "int"))
    for day, stats in (("1", {"min": 0, "max": 9}), ("2", {"min": 10, "max": 19}), ("3", {}), ("4", None)):
        write = written(grant, 0, f"day={day}", day, schema=columns)
        files = tuple(
            msgspec.structs.replace(entry, stats={} if stats is None else {"amount": {"nulls": 1, **stats}})
            for entry in write.files
        )
        writes.append(msgspec.structs.replace(write, files=files))
    await ground.tasks.complete(grant, TaskReport(status="ok", writes=tuple(writes)))
    await ground.work()
    assert (await ground.engine.runs.finished(ground.scope, deployed.execution_id, 10)).status == "completed"
    await ground.dags.activate(ground.scope, "shop", deployed.dag_version_id, by="tests")
    for where, days in (("amount:5..10", ["1", "4"]), ("amount:9..", ["1", "2", "4"]), ("day:2..4", ["2", "3"])):
        wrong = await ground.invalidate("orders", where=where)
        assert wrong.scope == "row_range"
        grants = await ground.claim("clean")
        assert sorted(grant.partition_key for grant in grants) == [f"day={day}" for day in days], where
        for one in grants:
            await ground.tasks.complete(one, ground.report(one))
    assert wrong.row_filter == {"day": {"gte": "2", "lt": "4"}}
    for where, told in (
        ("amount", "is no range of rows"),
        ("colour:1..2", "no column 'colour'"),
        ("amount:x..", "is no int"),
        ("amount:5..5", "there is nothing in"),
    ):
        with pytest.raises(InputError, match=told):
            await ground.invalidate("orders", where=where)


async def test_what_is_not_there_cannot_be_wrong(ground: Changing) -> None:
    with pytest.raises(NotFound, match="no dataset clean"):
        await ground.invalidate("clean", partition_key="day=1")
    await ground.built(LEVELS)
    with pytest.raises(NotFound, match="has no partition day=7"):
        await ground.invalidate("clean", partition_key="day=7")
    with pytest.raises(InputError, match="a partition or a range of rows"):
        await ground.invalidate("clean")
    assert await ground.changes.invalidations.listed(ground.scope) == []


async def test_one_whose_generation_is_gone_is_closed_by_reconciling(ground: Changing) -> None:
    await ground.built(LEVELS)
    wrong = await ground.invalidate("priced", partition_key="day=1")
    (running,) = await ground.claim("priced")
    assert running.execution_id == wrong.invalidation_id
    changed = LEVELS.replace("{name: priced,", "{name: priced, config: {deep: true},")
    await ground.built(changed)
    await ground.engine.by_hand.cancel_unused(ground.scope, by="test")
    found = await ground.changes.reconciling.reconcile(ground.scope, by="test")
    assert found.closed == (wrong.invalidation_id,)
    shown = await ground.changes.invalidations.show(ground.scope, wrong.invalidation_id)
    assert (shown.status, "no longer in use" in str(shown.closed_because)) == ("closed", True)
