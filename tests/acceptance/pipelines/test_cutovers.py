"""Another version comes to serve readers, by activation or by rolling back: at once, for everything, and without loss."""

from __future__ import annotations

import asyncio

import pytest
from tests.acceptance.pipelines.shop import order, shop, total

from noetl.pipelines.catalog.dags.registry import Deployed
from noetl.testing.engines.pipelines import TestedPipelines
from noetl.testing.engines.short_leases import until

pytestmark = pytest.mark.service


async def test_a_reader_that_began_before_a_cutover_sees_one_generation_during_and_after(
    pipelines: TestedPipelines,
) -> None:
    pipelines.give("orders", order(1, 5), order(2, 7))
    await pipelines.deploy(shop())
    pinned = await pipelines.view("clean")
    before = await pipelines.rows(pinned)
    candidate = await pipelines.begin(shop(10))
    await pipelines.built(candidate)
    switching = asyncio.create_task(pipelines.activate(candidate))
    while not switching.done():
        assert await pipelines.rows(pinned) == before
        factors = {row["factor"] for row in await pipelines.rows("clean")}
        assert factors in ({1}, {10}), "a reader sees rows of one generation only"
    await switching
    pipelines.give("orders", order(1, 6))
    await pipelines.emit("shop", "orders")
    assert await pipelines.rows(pinned) == before
    assert await pipelines.rows("clean") == [{"day": "1", "amount": 60, "factor": 10}]


async def test_versions_flip_while_sources_go_on_and_nothing_is_lost(pipelines: TestedPipelines) -> None:
    """INV-55."""
    pipelines.give("orders", order(1, 0), order(2, 0))
    old, new = await pipelines.deploy(shop(1)), await pipelines.deploy(shop(10))
    flips = asyncio.create_task(_flipped(pipelines, old, new))
    amount = 0
    while not flips.done():
        amount += 1
        pipelines.give("orders", order(1, amount), order(2, 2 * amount))
        await pipelines.start("shop", "orders")
        seen = await pipelines.rows("clean")
        assert {row["factor"] for row in seen} in ({1}, {10}), "a reader sees rows of one generation only"
        assert [row["day"] for row in seen] == ["1", "2"], "a reader never misses a partition"
    await flips
    await _settled(pipelines)
    assert await pipelines.rows("totals") == total(3 * amount, 2, 1)
    await pipelines.activate(new)
    await _settled(pipelines)
    assert await pipelines.rows("totals") == total(30 * amount, 2, 10)


async def _flipped(pipelines: TestedPipelines, old: Deployed, new: Deployed) -> None:
    """Go back and forth, ending with the old version."""
    for _ in range(3):
        await pipelines.pipelines.rollback("shop", old.dag_version_id, by="tests")
        await pipelines.pipelines.activate("shop", new.dag_version_id, by="tests")
    await pipelines.pipelines.rollback("shop", old.dag_version_id, by="tests")


async def test_tasks_of_a_version_that_goes_are_cancelled_and_come_back_with_it(pipelines: TestedPipelines) -> None:
    pipelines.give("orders", order(1, 1), order(2, 2))
    await pipelines.deploy(shop(1))
    new = await pipelines.deploy(shop(10, clean="scaling: {max_concurrency: 1}"))
    gate = pipelines.gate("clean", factor=10)
    pipelines.give("orders", order(1, 3), order(2, 4))
    run = await pipelines.start("shop", "orders")
    await gate.arrived()

    async def other_waits() -> bool:
        return sum(one.status != "Completed" for one in await pipelines.tasks("clean")) == 2

    # Each partition is routed by itself: the second task may come after the first one has begun.
    await until(other_waits, "a task for each of the two partitions")
    cutover = await pipelines.rollback("shop")
    assert len(cutover.cancelled) == 2
    assert (await pipelines.finished(run)).status == "completed"
    ended = {one.task_id: one for one in await pipelines.tasks("clean")}
    assert [ended[one].status for one in cutover.cancelled] == ["Canceled", "Canceled"]
    assert sorted(ended[one].attempt for one in cutover.cancelled) == [0, 1], "one waited, one ran and was stopped"
    assert await pipelines.rows("totals") == total(7, 2)
    gate.open()
    # The run that catches up ends after the tasks that came back, and what follows from them.
    await pipelines.activate(new)
    assert await pipelines.rows("totals") == total(70, 2, 10)
    again = {one.task_id: one.status for one in await pipelines.tasks("clean")}
    assert [again[one] for one in cutover.cancelled] == ["Completed", "Completed"]


async def test_what_came_in_while_another_version_served_is_taken_up_after_the_cutover(
    pipelines: TestedPipelines,
) -> None:
    pipelines.give("orders", order(1, 1))
    await pipelines.deploy(shop(1))
    await pipelines.deploy(shop(10))
    pipelines.give("orders", order(1, 2), order(2, 3))
    await pipelines.emit("shop", "orders")
    before = len(pipelines.asked("orders"))
    cutover = await pipelines.rollback("shop")
    assert cutover.caught_up is not None
    assert await pipelines.rows("totals") == total(5, 2, 1)
    assert len(pipelines.asked("orders")) == before, "what both versions have is not worked again"


async def _settled(pipelines: TestedPipelines) -> None:
    async def quiet() -> bool:
        left = await pipelines.fetch(
            "SELECT FROM noetl.task WHERE available_at IS NOT NULL"
            " UNION ALL SELECT FROM noetl.outbox WHERE status = 'Pending'"
        )
        return not left

    await until(quiet, "an end of all tasks")
