"""Changes of partitions start what reads them: once, only where it is wanted, and never work that was done before."""

from __future__ import annotations

import asyncio

import msgspec
from tests.integration.pipelines.tasks.task_testbed import DAG, Ground

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


async def _emit(ground: Ground, job: str, days: list[str], salt: str, dag: str = "shop") -> TaskGrant:
    await ground.engine.runs.emit(ground.scope, dag, job, requested_by="test")
    (grant,) = await ground.claim(job)
    await ground.tasks.complete(grant, ground.report(grant, days, salt=salt))
    return grant


async def test_a_change_routed_twice_makes_nothing_twice(ground: Ground) -> None:
    """INV-53."""
    await ground.built()
    await _emit(ground, "orders", ["1", "2"], "x")
    rows = await ground.rows("SELECT payload FROM noetl.outbox WHERE kind = 'route_event' AND status = 'Pending'")
    assert len(rows) == 2
    await ground.drain()
    before = await ground.rows("SELECT task_id FROM noetl.task ORDER BY 1")
    async with ground.database.transaction(ground.scope) as connection:
        await connection.execute("UPDATE noetl.outbox SET status = 'Pending', lease_until = NULL")
    await ground.drain()
    assert await ground.rows("SELECT task_id FROM noetl.task ORDER BY 1") == before


async def test_many_changes_at_once_start_a_job_that_reads_them_all_once(ground: Ground) -> None:
    await ground.built()
    await _emit(ground, "orders", [f"{number}" for number in range(10)], "x")
    grants = await ground.claim("clean")
    await asyncio.gather(*(ground.tasks.complete(grant, ground.report(grant)) for grant in grants))
    await ground.drain()
    waiting = await ground.engine.by_hand.listed(ground.scope, job="totals", status="Queued")
    assert len(waiting) == 1


async def test_equal_inputs_are_not_worked_again(ground: Ground) -> None:
    await ground.built()
    await _emit(ground, "orders", ["1", "2"], "")
    await ground.drain()
    statuses = await ground.statuses()
    assert {statuses["clean/day=1"], statuses["clean/day=2"]} == {"Skipped"}
    (skipped, _) = await ground.engine.by_hand.listed(ground.scope, job="clean", status="Skipped")
    assert skipped.skipped_as is not None
    assert (await ground.task(skipped.skipped_as)).status == "Completed"
    assert await ground.claim() == []


async def test_equal_inputs_are_worked_again_once_their_outcome_was_replaced(ground: Ground) -> None:
    await ground.built()
    for salt in ("x", ""):
        await _emit(ground, "orders", ["1"], salt)
        grants = await ground.claim("clean")
        assert [grant.partition_key for grant in grants] == ["day=1"], salt
        await ground.tasks.complete(grants[0], ground.report(grants[0]))


async def test_an_input_that_is_only_read_starts_nothing(ground: Ground) -> None:
    await ground.built(LOOKUP)
    await _emit(ground, "rates", [], "x")
    assert await ground.claim() == []
    await _emit(ground, "orders", ["1"], "x")
    (priced,) = await ground.claim()
    assert {one.alias: [part.version for part in one.parts] for one in priced.inputs} == {"orders": [2], "rates": [2]}


async def test_what_the_same_versions_started_is_not_started_again_by_a_lookup(ground: Ground) -> None:
    deployed = await ground.built(LOOKUP)
    await _emit(ground, "rates", [], "x")
    await ground.drain()
    assert await ground.engine.routing.missing(ground.scope, deployed.dag_version_id) == []


async def test_a_join_waits_for_the_same_partition_of_both(ground: Ground) -> None:
    await ground.deploy(JOIN)
    for job in ("left", "right"):
        (grant,) = await ground.claim(job)
        await ground.tasks.complete(grant, ground.report(grant, ["1", "2"] if job == "left" else ["2", "3"]))
        if job == "left":
            assert await ground.claim("both") == []
    assert [grant.partition_key for grant in await ground.claim("both")] == ["day=2"]


async def test_a_published_dataset_starts_jobs_of_other_dags(ground: Ground) -> None:
    await ground.built()
    await ground.built(READER)
    await _emit(ground, "orders", ["1"], "x")
    worked = await ground.work()
    assert worked[-1] == "report/all"


async def test_only_generations_in_use_are_routed(ground: Ground) -> None:
    await ground.built()
    await ground.engine.runs.emit(ground.scope, "shop", "orders", requested_by="test")
    (orders,) = await ground.claim("orders")
    # Another version of the source takes over while the old one still runs.
    await ground.built(DAG.replace("name: orders\n", "name: orders\n    config: {deep: true}\n"))
    await ground.tasks.complete(orders, ground.report(orders, ["7"]))
    await ground.drain()
    assert "clean/day=7" not in await ground.statuses()
    assert "day=7" not in await ground.current("orders")


async def test_changes_while_a_version_is_built_are_taken_up_after_its_activation(ground: Ground) -> None:
    await ground.built()
    second = await ground.deploy(DAG.replace("name: clean\n", "name: clean\n    config: {deep: true}\n"))
    await ground.work()
    await _emit(ground, "orders", ["8"], "x")
    await ground.work()
    ended = await ground.engine.runs.finished(ground.scope, second.execution_id, 5)
    assert ended.status == "completed"
    await ground.dags.activate(ground.scope, "shop", second.dag_version_id, by="tests")
    await ground.engine.runs.catch_up(ground.scope, "shop", second.dag_version_id, requested_by="test")
    await ground.work()
    assert "day=8" in await ground.current("clean")
    assert await ground.engine.runs.catch_up(ground.scope, "shop", second.dag_version_id, requested_by="test") is None


async def test_inputs_too_many_for_an_event_are_kept_as_a_payload(ground: Ground) -> None:
    await ground.deploy()
    (orders,) = await ground.claim()
    days = [f"{number:03d}-{'x' * 400}" for number in range(120)]
    await ground.tasks.complete(orders, ground.report(orders, days))
    grants = await ground.claim("clean", want=120)
    await asyncio.gather(*(ground.tasks.complete(grant, ground.report(grant)) for grant in grants))
    (totals,) = await ground.claim()
    assert (await ground.task(totals.lease.task_id)).inputs_ref is not None
    assert len(totals.inputs[0].parts) == 120


async def test_versions_given_to_a_task_under_way_are_not_given_to_another(ground: Ground) -> None:
    """INV-53."""
    text = """
name: shop
jobs:
  - {name: orders, operator: made_up, runtime: dispatcher, update_strategy: append, unique_key: [id]}
  - {name: copy, operator: made_up, runtime: dispatcher, execution_strategy: PerUpdate, inputs: [orders],
     update_strategy: append, unique_key: [id]}
"""
    await ground.built(text)
    seen = []
    for salt in ("x", "y"):
        await _emit(ground, "orders", [], salt)
        (copy,) = await ground.claim("copy")
        seen.append([(part.version, part.after) for part in copy.inputs[0].parts])
    assert seen == [[(2, 1)], [(3, 2)]]


async def test_more_news_than_one_event_can_tell_are_worked_by_several_tasks(ground: Ground) -> None:
    text = """
name: shop
jobs:
  - {name: orders, operator: made_up, runtime: dispatcher, partition_by: [day]}
  - {name: copy, operator: made_up, runtime: dispatcher, execution_strategy: PerUpdate, inputs: [orders],
     update_strategy: append, unique_key: [id]}
"""
    days = [f"{number:03d}-{'x' * 400}" for number in range(150)]
    await ground.deploy(text)
    (orders,) = await ground.claim()
    await ground.tasks.complete(orders, ground.report(orders, days))
    grants = await ground.claim("copy")
    read = [part.partition_key for grant in grants for part in grant.inputs[0].parts]
    assert len(grants) > 1
    assert sorted(read) == [f"day={day}" for day in days]
    for grant in grants:
        write = ground.report(grant).writes[0]
        version = len(await ground.rows("SELECT FROM noetl.partition_version WHERE partition_key = 'all'"))
        told = TaskReport(status="ok", writes=(msgspec.structs.replace(write, base_version=version),))
        assert await ground.tasks.complete(grant, told) == "Completed"
    assert len(await ground.rows("SELECT FROM noetl.dataset_cursor WHERE version = 1")) == 150
    assert await ground.claim() == []
