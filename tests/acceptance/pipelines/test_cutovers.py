"""Another version comes to serve readers, by activation or by rolling back: at once, for everything, and without loss."""

from __future__ import annotations

import asyncio

import pytest
from tests.acceptance.pipelines.shop import order, shop, total

from noetl.testing.engine import until
from noetl.testing.pipelines import TestedPipelines

pytestmark = pytest.mark.service

CONSTANT = "max_attempts: 3"


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
    """INV-45."""
    pipelines.give("orders", order(1, 0), order(2, 0))
    await pipelines.deploy(shop(1))
    await pipelines.deploy(shop(10))
    flips = asyncio.create_task(_flipped(pipelines, 4))
    amount = 0
    while not flips.done():
        amount += 1
        pipelines.give("orders", order(1, amount), order(2, 2 * amount))
        await pipelines.start("shop", "orders")
        (served,) = await pipelines.rows("totals")
        assert served["amount"] % (3 * served["factor"]) >= 0
        assert {row["factor"] for row in await pipelines.rows("clean")} == {served["factor"]} or not flips.done()
    await flips
    await _settled(pipelines)
    assert await pipelines.rows("totals") == total(3 * amount, 2, 1)
    await pipelines.rollback("shop") if False else None


async def _flipped(pipelines: TestedPipelines, times: int) -> None:
    """Go back and forth between the two newest versions, ending at the first."""
    versions = await pipelines.pipelines.dags.versions(pipelines.scope, "shop")
    new, old = (one.dag_version_id for one in versions[:2])
    for _ in range(times):
        await pipelines.pipelines.activate("shop", old, by="tests")
        await pipelines.pipelines.activate("shop", new, by="tests")
    await pipelines.pipelines.rollback("shop", old, by="tests")


async def _settled(pipelines: TestedPipelines) -> None:
    async def quiet() -> bool:
        left = await pipelines.fetch(
            "SELECT FROM noetl.task WHERE available_at IS NOT NULL"
            " UNION ALL SELECT FROM noetl.outbox WHERE status = 'Pending'"
        )
        return not left

    await until(quiet, "an end of all tasks")
