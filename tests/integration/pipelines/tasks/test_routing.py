"""Changes of partitions start what reads them: once, only where it is wanted, and never work that was done before."""

from __future__ import annotations

import asyncio

import msgspec
from tests.integration.pipelines.tasks.task_testbed import DAG, TaskTestbed

from noetl.model.task import TaskGrant, TaskReport

READER = """
name: reports
jobs:
  - name: report
    operator: made_up
    runtime: dispatcher
    inputs: [totals]
"""
LOOKUP = """
name: shop
jobs:
  - {name: orders, operator: made_up, runtime: dispatcher, partition_by: [day]}
  - {name: rates, operator: made_up, runtime: dispatcher}
  - name: priced
    operator: made_up
    runtime: dispatcher
    partition_by: [day]
    wait: all
    inputs:
      - from: {job: orders}
      - {from: {job: rates}, trigger: false}
"""
JOIN = """
name: shop
jobs:
  - {name: left, operator: made_up, runtime: dispatcher, partition_by: [day]}
  - {name: right, operator: made_up, runtime: dispatcher, partition_by: [day]}
  - {name: both, operator: made_up, runtime: dispatcher, partition_by: [day], wait: all, inputs: [left, right]}
"""


async def _emit(testbed: TaskTestbed, job: str, days: list[str], salt: str, dag: str = "shop") -> TaskGrant:
    await testbed.engine.runs.emit(testbed.scope, dag, job, requested_by="test")
    (grant,) = await testbed.claim(job)
    await testbed.tasks.complete(grant, testbed.report(grant, days, salt=salt))
    return grant


async def test_a_change_routed_twice_makes_nothing_twice(testbed: TaskTestbed) -> None:
    """INV-53."""
    await testbed.built()
    await _emit(testbed, "orders", ["1", "2"], "x")
    rows = await testbed.rows("SELECT payload FROM noetl.outbox WHERE kind = 'route_event' AND status = 'Pending'")
    assert len(rows) == 2
    await testbed.drain()
    before = await testbed.rows("SELECT task_id FROM noetl.task ORDER BY 1")
    async with testbed.database.transaction(testbed.scope) as connection:
        await connection.execute("UPDATE noetl.outbox SET status = 'Pending', lease_until = NULL")
    await testbed.drain()
    assert await testbed.rows("SELECT task_id FROM noetl.task ORDER BY 1") == before


async def test_many_changes_at_once_start_a_job_that_reads_them_all_once(testbed: TaskTestbed) -> None:
    await testbed.built()
    await _emit(testbed, "orders", [f"{number}" for number in range(10)], "x")
    grants = await testbed.claim("clean")
    await asyncio.gather(*(testbed.tasks.complete(grant, testbed.report(grant)) for grant in grants))
    await testbed.drain()
    waiting = await testbed.engine.by_hand.listed(testbed.scope, job="totals", status="Queued")
    assert len(waiting) == 1


async def test_equal_inputs_are_not_worked_again(testbed: TaskTestbed) -> None:
    await testbed.built()
    await _emit(testbed, "orders", ["1", "2"], "")
    await testbed.drain()
    statuses = await testbed.statuses()
    assert {statuses["clean/day=1"], statuses["clean/day=2"]} == {"Skipped"}
    (skipped, _) = await testbed.engine.by_hand.listed(testbed.scope, job="clean", status="Skipped")
    assert skipped.skipped_as is not None
    assert (await testbed.task(skipped.skipped_as)).status == "Completed"
    assert await testbed.claim() == []


async def test_equal_inputs_are_worked_again_once_their_outcome_was_replaced(testbed: TaskTestbed) -> None:
    await testbed.built()
    for salt in ("x", ""):
        await _emit(testbed, "orders", ["1"], salt)
        grants = await testbed.claim("clean")
        assert [grant.partition_key for grant in grants] == ["day=1"], salt
        await testbed.tasks.complete(grants[0], testbed.report(grants[0]))


async def test_an_input_that_is_only_read_starts_nothing(testbed: TaskTestbed) -> None:
    await testbed.built(LOOKUP)
    await _emit(testbed, "rates", [], "x")
    assert await testbed.claim() == []
    await _emit(testbed, "orders", ["1"], "x")
    (priced,) = await testbed.claim()
    assert {one.alias: [part.version for part in one.parts] for one in priced.inputs} == {"orders": [2], "rates": [2]}


async def test_what_the_same_versions_started_is_not_started_again_by_a_lookup(testbed: TaskTestbed) -> None:
    deployed = await testbed.built(LOOKUP)
    await _emit(testbed, "rates", [], "x")
    await testbed.drain()
    assert await testbed.engine.routing.missing(testbed.scope, deployed.dag_version_id) == []


async def test_a_join_waits_for_the_same_partition_of_both(testbed: TaskTestbed) -> None:
    await testbed.deploy(JOIN)
    for job in ("left", "right"):
        (grant,) = await testbed.claim(job)
        await testbed.tasks.complete(grant, testbed.report(grant, ["1", "2"] if job == "left" else ["2", "3"]))
        if job == "left":
            assert await testbed.claim("both") == []
    assert [grant.partition_key for grant in await testbed.claim("both")] == ["day=2"]


async def test_a_published_dataset_starts_jobs_of_other_dags(testbed: TaskTestbed) -> None:
    await testbed.built()
    await testbed.built(READER)
    await _emit(testbed, "orders", ["1"], "x")
    worked = await testbed.work()
    assert worked[-1] == "report/all"


async def test_only_generations_in_use_are_routed(testbed: TaskTestbed) -> None:
    await testbed.built()
    await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    (orders,) = await testbed.claim("orders")
    # Another version of the source takes over while the old one still runs.
    await testbed.built(DAG.replace("name: orders\n", "name: orders\n    config: {deep: true}\n"))
    await testbed.tasks.complete(orders, testbed.report(orders, ["7"]))
    await testbed.drain()
    assert "clean/day=7" not in await testbed.statuses()
    assert "day=7" not in await testbed.current("orders")


async def test_changes_while_a_version_is_built_are_taken_up_after_its_activation(testbed: TaskTestbed) -> None:
    await testbed.built()
    second = await testbed.deploy(DAG.replace("name: clean\n", "name: clean\n    config: {deep: true}\n"))
    await testbed.work()
    await _emit(testbed, "orders", ["8"], "x")
    await testbed.work()
    ended = await testbed.engine.runs.finished(testbed.scope, second.execution_id, 5)
    assert ended.status == "completed"
    await testbed.dags.activate(testbed.scope, "shop", second.dag_version_id, by="tests")
    await testbed.engine.runs.catch_up(testbed.scope, "shop", second.dag_version_id, requested_by="test")
    await testbed.work()
    assert "day=8" in await testbed.current("clean")
    assert await testbed.engine.runs.catch_up(testbed.scope, "shop", second.dag_version_id, requested_by="test") is None


async def test_inputs_too_many_for_an_event_are_kept_as_a_payload(testbed: TaskTestbed) -> None:
    await testbed.deploy()
    (orders,) = await testbed.claim()
    days = [f"{number:03d}-{'x' * 400}" for number in range(120)]
    await testbed.tasks.complete(orders, testbed.report(orders, days))
    grants = await testbed.claim("clean", want=120)
    await asyncio.gather(*(testbed.tasks.complete(grant, testbed.report(grant)) for grant in grants))
    (totals,) = await testbed.claim()
    assert (await testbed.task(totals.lease.task_id)).inputs_ref is not None
    assert len(totals.inputs[0].parts) == 120


async def test_versions_given_to_a_task_under_way_are_not_given_to_another(testbed: TaskTestbed) -> None:
    """INV-53."""
    text = """
name: shop
jobs:
  - {name: orders, operator: made_up, runtime: dispatcher, update_strategy: append, unique_key: [id]}
  - {name: copy, operator: made_up, runtime: dispatcher, execution_strategy: PerUpdate, inputs: [orders],
     update_strategy: append, unique_key: [id]}
"""
    await testbed.built(text)
    seen = []
    for salt in ("x", "y"):
        await _emit(testbed, "orders", [], salt)
        (copy,) = await testbed.claim("copy")
        seen.append([(part.version, part.after) for part in copy.inputs[0].parts])
    assert seen == [[(2, 1)], [(3, 2)]]


async def test_more_news_than_one_event_can_tell_are_worked_by_several_tasks(testbed: TaskTestbed) -> None:
    text = """
name: shop
jobs:
  - {name: orders, operator: made_up, runtime: dispatcher, partition_by: [day]}
  - {name: copy, operator: made_up, runtime: dispatcher, execution_strategy: PerUpdate, inputs: [orders],
     update_strategy: append, unique_key: [id]}
"""
    days = [f"{number:03d}-{'x' * 400}" for number in range(150)]
    await testbed.deploy(text)
    (orders,) = await testbed.claim()
    await testbed.tasks.complete(orders, testbed.report(orders, days))
    grants = await testbed.claim("copy")
    read = [part.partition_key for grant in grants for part in grant.inputs[0].parts]
    assert len(grants) > 1
    assert sorted(read) == [f"day={day}" for day in days]
    for grant in grants:
        write = testbed.report(grant).writes[0]
        version = len(await testbed.rows("SELECT FROM noetl.partition_version WHERE partition_key = 'all'"))
        told = TaskReport(status="ok", writes=(msgspec.structs.replace(write, base_version=version),))
        assert await testbed.tasks.complete(grant, told) == "Completed"
    assert len(await testbed.rows("SELECT FROM noetl.dataset_cursor WHERE version = 1")) == 150
    assert await testbed.claim() == []
