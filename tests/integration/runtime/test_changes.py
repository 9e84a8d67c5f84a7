"""Changes of data in a running process: rows come out right, backfills are driven, and what was missed is found."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.acceptance.pipelines.shop import order, shop, total

from noetl.model.stream import Scope
from noetl.runtime.assembly.changes import ReconcileJob, changes_of, open_backfills
from noetl.services.schedule.handlers.port import SlotRun
from noetl.testing.engines.pipelines import Row, TestedPipelines
from noetl.testing.engines.short_leases import until

pytestmark = [pytest.mark.service, pytest.mark.timeout(240)]


async def test_an_invalidation_brings_what_the_world_says_now(pipelines: TestedPipelines) -> None:
    """INV-69."""
    pipelines.give("orders", order(1, 10), order(2, 5))
    await pipelines.deploy(shop(orders=", update_strategy: replace"))
    changes = changes_of(pipelines.runtime, pipelines.pipelines)
    assert await pipelines.rows("totals") == total(15, 2)
    wrong = await changes.invalidations.invalidate(pipelines.scope, "shop.orders.0", where="amount:10..11", by="ann")
    assert (await pipelines.finished(wrong.invalidation_id)).status == "completed"
    assert sorted(one.partition_key for one in pipelines.asked("clean")) == ["day=1", "day=1", "day=2"]
    # The same came out, so that the sums had not to be made again.
    assert len(pipelines.asked("totals")) <= 2
    assert (await changes.invalidations.show(pipelines.scope, wrong.invalidation_id)).status == "closed"


async def test_a_backfill_gives_the_partition_to_the_source_and_its_rows_to_what_follows(
    pipelines: TestedPipelines,
) -> None:
    """INV-70."""
    pipelines.give("orders", order(1, 10))
    await pipelines.deploy(shop())
    given: list[str] = []

    def of_day(work: object) -> list[Row]:
        key = work.grant.partition_key  # type: ignore[attr-defined]
        given.append(key)
        return [order(int(key.partition("=")[2]), 100)]

    pipelines.made.given["orders"] = of_day
    changes = changes_of(pipelines.runtime, pipelines.pipelines)
    found, plan = await changes.plan_backfill(pipelines.scope, "shop.orders.0", start="3", end="8", max_in_flight=2)
    async with open_backfills(pipelines.runtime, pipelines.pipelines):
        one = await changes.backfills.request(pipelines.scope, found, plan, by="ann")
        assert (await pipelines.finished(one.backfill_id)).status == "completed"
    assert sorted(given) == [f"day={day}" for day in range(3, 8)]
    assert await pipelines.rows("totals") == total(510, 6)
    assert (await changes.backfills.show(pipelines.scope, one.backfill_id)).status == "completed"


async def test_a_source_that_gives_other_rows_than_it_was_asked_for_is_refused(pipelines: TestedPipelines) -> None:
    pipelines.give("orders", order(1, 10))
    await pipelines.deploy(shop(orders=", max_attempts: 1"))
    changes = changes_of(pipelines.runtime, pipelines.pipelines)
    found, plan = await changes.plan_backfill(pipelines.scope, "shop.orders.0", start="1", end="3")
    async with open_backfills(pipelines.runtime, pipelines.pipelines):
        one = await changes.backfills.request(pipelines.scope, found, plan, by="ann")
        assert (await pipelines.finished(one.backfill_id)).status == "failed"
    (bad,) = [task for task in await pipelines.tasks("orders") if task.status == "Failed"]
    assert bad.partition_key == "day=2"
    assert "was to be made for 'day=2', and rows have day = '1'" in str(bad.error)


async def test_a_large_backfill_of_one_organization_holds_up_nobody_else(
    pipelines: TestedPipelines, other_pipelines: TestedPipelines
) -> None:
    """INV-71, INV-22."""
    for tested in (pipelines, other_pipelines):
        tested.give("orders", order(1, 10))
        await tested.deploy(shop())
    pipelines.made.given["orders"] = lambda work: [order(int(work.grant.partition_key.partition("=")[2]), 1)]
    changes = changes_of(pipelines.runtime, pipelines.pipelines)
    found, plan = await changes.plan_backfill(pipelines.scope, "shop.orders.0", start="0", end="10000", max_in_flight=8)
    async with open_backfills(pipelines.runtime, pipelines.pipelines):
        one = await changes.backfills.request(pipelines.scope, found, plan, by="ann")

        async def given_out() -> bool:
            return (await changes.backfills.show(pipelines.scope, one.backfill_id)).made > 0

        await until(given_out, "the first partitions")
        for number in (7, 8):
            other_pipelines.give("orders", order(1, number))
            assert (await other_pipelines.emit("shop", "orders")).status == "completed"
            assert await other_pipelines.rows("totals") == total(number, 1)
        under_way, progress = await changes.backfills.progress(pipelines.scope, one.backfill_id)
        assert under_way.status == "running"
        assert under_way.made < 10_000
        assert progress.open <= 3 * under_way.max_in_flight
        assert await other_pipelines.fetch("SELECT FROM noetl.backfill") == []
        await changes.backfills.cancel(pipelines.scope, one.backfill_id, by="ann")
        assert (await pipelines.finished(one.backfill_id)).status == "completed"


async def test_the_job_of_the_platform_looks_at_every_organization(
    pipelines: TestedPipelines, other_pipelines: TestedPipelines
) -> None:
    """INV-72."""
    for tested in (pipelines, other_pipelines):
        tested.give("orders", order(1, 10))
        await tested.deploy(shop())
    job = ReconcileJob(pipelines.runtime, pipelines.pipelines)
    slot = SlotRun(
        scope=Scope("platform", "platform"),
        schedule_id="s",
        name="reconcile",
        target={"handler": "reconcile"},
        plan_time=datetime(2026, 1, 1, tzinfo=UTC),
        attempt=1,
        key="k",
        runner="tests",
    )
    outcome = await job(slot)
    assert (outcome.rows_affected, outcome.result["organizations"]) == (0, 2)
    assert (await job(slot)).result["missed"] == 0
