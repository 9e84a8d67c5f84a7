"""What starts a job, what it reads, and what is not done twice."""

from __future__ import annotations

import pytest
from tests.acceptance.pipelines.shop import order, shop, total

from noetl.runtime.assembly.pipelines import RUNTIMES
from noetl.testing.engines.pipelines import TestedPipelines

pytestmark = pytest.mark.service


async def test_equal_inputs_are_not_worked_again_and_the_task_says_so(pipelines: TestedPipelines) -> None:
    pipelines.give("orders", order(1, 1), order(2, 2))
    await pipelines.deploy(shop())
    pipelines.give("orders", order(1, 1), order(2, 5))
    await pipelines.emit("shop", "orders")
    first, _ = sorted(await pipelines.tasks("clean"), key=lambda task: task.partition_key)[:2]
    (skipped,) = [task for task in await pipelines.tasks("clean") if task.status == "Skipped"]
    assert (skipped.partition_key, skipped.skipped_as, skipped.attempt) == ("day=1", first.task_id, 0)
    assert [one.partition_key for one in pipelines.asked("clean")].count("day=1") == 1
    assert await pipelines.rows("totals") == total(6, 2)


async def test_a_task_on_older_inputs_that_ends_last_replaces_nothing(pipelines: TestedPipelines) -> None:
    """INV-61."""
    pipelines.give("orders", order(1, 1))
    await pipelines.deploy(shop())
    gate = pipelines.gate("clean")
    pipelines.give("orders", order(1, 2))
    slow = await pipelines.start("shop", "orders")
    held = await gate.arrived()
    pipelines.made.gates.clear()
    pipelines.give("orders", order(1, 3))
    assert (await pipelines.emit("shop", "orders")).status == "completed"
    gate.open()
    assert (await pipelines.finished(slow)).status == "completed"
    assert await pipelines.rows("totals") == total(3, 1)
    tasks = {task.task_id: task for task in await pipelines.tasks("clean")}
    overtaken = tasks[held.lease.task_id]
    assert overtaken.status == "Skipped"
    assert tasks[overtaken.skipped_as or ""].created_event_id > overtaken.created_event_id


async def test_inputs_that_are_as_before_are_worked_if_others_are_under_way(pipelines: TestedPipelines) -> None:
    pipelines.give("orders", order(1, 1))
    await pipelines.deploy(shop())
    gate = pipelines.gate("clean")
    pipelines.give("orders", order(1, 2))
    slow = await pipelines.start("shop", "orders")
    await gate.arrived()
    pipelines.give("orders", order(1, 1))
    back = await pipelines.start("shop", "orders")
    await gate.arrived()
    gate.open()
    for run in (slow, back):
        assert (await pipelines.finished(run)).status == "completed"
    assert await pipelines.rows("totals") == total(1, 1)


async def test_a_partition_that_goes_takes_its_rows_with_it(pipelines: TestedPipelines) -> None:
    pipelines.give("orders", order(1, 1), order(2, 2))
    await pipelines.deploy(shop())
    pipelines.give("orders", order(2, 2))
    assert (await pipelines.emit("shop", "orders")).status == "completed"
    assert await pipelines.rows("clean") == [{"day": "2", "amount": 2, "factor": 1}]
    assert await pipelines.rows("totals") == total(2, 1)


async def test_a_join_waits_for_the_same_partition_of_all_its_inputs(pipelines: TestedPipelines) -> None:
    pipelines.give("orders", order(1, 1), order(2, 2))
    pipelines.give("prices", {"day": "1", "price": 10})
    await pipelines.deploy("""
        name: joined
        jobs:
          - {name: orders, operator: made, runtime: dispatcher, partition_by: [day]}
          - {name: prices, operator: made, runtime: dispatcher, partition_by: [day]}
          - name: sold
            operator: made
            runtime: dispatcher
            wait: all
            partition_by: [day]
            inputs: [orders, prices]
            config: {query: "SELECT day, amount * price AS sold FROM orders JOIN prices USING (day)"}
        publish: [sold]
        """)
    assert await pipelines.rows("sold") == [{"day": "1", "sold": 10}]
    assert {one.partition_key for one in pipelines.asked("sold")} == {"day=1"}
    pipelines.give("prices", {"day": "1", "price": 10}, {"day": "2", "price": 20})
    await pipelines.emit("joined", "prices")
    assert await pipelines.rows("sold") == [{"day": "1", "sold": 10}, {"day": "2", "sold": 40}]


async def test_a_condition_on_an_input_lets_only_its_rows_through(pipelines: TestedPipelines) -> None:
    pipelines.give("orders", order(1, 1, region="eu"), order(1, 2, region="us"), order(2, 4, region="ap"))
    await pipelines.deploy("""
        name: regions
        jobs:
          - {name: orders, operator: made, runtime: dispatcher, partition_by: [day]}
          - name: kept
            operator: made
            runtime: dispatcher
            partition_by: [day]
            inputs: {o: {from: orders, where: {region: [eu, ap]}}}
            config: {query: "SELECT * FROM o"}
        publish: [kept]
        """)
    assert [row["region"] for row in await pipelines.rows("kept")] == ["eu", "ap"]
    read = [row["region"] for one in pipelines.asked("kept") for row in one.read["o"]]
    assert sorted(read) == ["ap", "eu"]


async def test_a_job_that_reads_news_reads_each_row_once(pipelines: TestedPipelines) -> None:
    pipelines.give("orders", order(1, 1), order(2, 2))
    await pipelines.deploy("""
        name: news
        jobs:
          - {name: orders, operator: made, runtime: dispatcher, partition_by: [day], unique_key: [amount]}
          - name: log
            operator: made
            runtime: dispatcher
            inputs: [orders]
            execution_strategy: PerUpdate
            unique_key: [amount]
            config: {query: "SELECT amount FROM orders"}
        publish: [log]
        """)
    for amount in (3, 4):
        pipelines.give("orders", order(1, amount), order(2, 2))
        assert (await pipelines.emit("news", "orders")).status == "completed"
    assert await pipelines.rows("log") == [{"amount": amount} for amount in (1, 2, 3, 4)]
    read = [row["amount"] for one in pipelines.asked("log") for row in one.read["orders"]]
    assert sorted(read) == [1, 2, 3, 4]


async def test_no_more_tasks_of_a_job_run_at_once_than_it_allows(pipelines: TestedPipelines) -> None:
    """INV-51."""
    pipelines.give("orders", *(order(day, day) for day in range(5)))
    gate = pipelines.gate("clean")
    deployed = await pipelines.begin(shop(clean="scaling: {max_concurrency: 2}"))
    held = [await gate.arrived(), await gate.arrived()]
    assert len({one.lease.task_id for one in held}) == 2
    assert await pipelines.engine.tasks(pipelines.scope).claim("another", RUNTIMES, 10, 0) == []
    statuses = [task.status for task in await pipelines.tasks("clean")]
    assert sorted(statuses) == ["Queued"] * 3 + ["Running"] * 2
    gate.open()
    await pipelines.built(deployed)
    assert {task.status for task in await pipelines.tasks("clean")} == {"Completed"}
