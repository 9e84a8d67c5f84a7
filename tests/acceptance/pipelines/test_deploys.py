"""A deploy builds what changed beside what serves, and nothing else."""

from __future__ import annotations

import pytest
from tests.acceptance.pipelines.shop import order, shop, total

from noetl.testing.engines.pipelines import TestedPipelines
from noetl.testing.engines.short_leases import until

pytestmark = [pytest.mark.service, pytest.mark.timeout(300)]

COUNT_EVENTS = "SELECT count(*) FROM noetl.event"


async def test_the_same_files_deploy_to_nothing(pipelines: TestedPipelines) -> None:
    """INV-54."""
    pipelines.give("orders", order(1, 5))
    first = await pipelines.deploy(shop())
    events = await pipelines.fetch(COUNT_EVENTS)
    again = await pipelines.begin(shop())
    assert (again.created, again.dag_version_id) == (False, first.dag_version_id)
    assert await pipelines.fetch(COUNT_EVENTS) == events
    commented = await pipelines.pipelines.plan(pipelines.bundle(f"# a comment decides nothing\n{shop()}"))
    assert {job.action for job in commented.jobs} == {"keep"}
    assert [one.job for one in pipelines.made.asked] == ["orders", "clean", "totals"]


async def test_an_edited_job_and_all_below_it_are_built_anew_while_the_old_ones_serve(
    pipelines: TestedPipelines,
) -> None:
    pipelines.give("orders", order(1, 5), order(2, 7))
    await pipelines.deploy(shop())
    gate = pipelines.gate("clean", factor=10)
    candidate = await pipelines.begin(shop(10))
    assert {job.name: job.action for job in candidate.plan.jobs} == {
        "orders": "keep",
        "clean": "rebuild",
        "totals": "rebuild",
    }
    await gate.arrived()
    pipelines.give("orders", order(1, 6), order(2, 7))
    await pipelines.start("shop", "orders")

    async def served_anew() -> bool:
        return await pipelines.rows("totals") == total(13, 2)

    await until(served_anew, "new totals of the old version")
    gate.open()
    await pipelines.built(candidate)
    assert await pipelines.rows("totals") == total(13, 2)
    await pipelines.activate(candidate)
    assert await pipelines.rows("totals") == total(130, 2, 10)


async def test_outputs_that_start_anew_do_so_once_in_each_version(pipelines: TestedPipelines) -> None:
    fields = ", unique_key: [amount], bootstrap: {reset_outputs: true}"
    pipelines.give("orders", order(1, 1))
    await pipelines.deploy(shop(orders=fields))
    pipelines.give("orders", order(1, 2))
    await pipelines.emit("shop", "orders")
    assert await pipelines.rows("totals") == total(3, 2)
    pipelines.give("orders", order(1, 4))
    candidate = await pipelines.begin(shop(10, orders=fields))
    await pipelines.built(candidate)
    assert await pipelines.rows("totals") == total(3, 2)
    await pipelines.activate(candidate)
    assert await pipelines.rows("totals") == total(40, 1, 10)
    pipelines.give("orders", order(1, 8))
    await pipelines.emit("shop", "orders")
    assert await pipelines.rows("totals") == total(120, 2, 10)
    assert not (await pipelines.begin(shop(10, orders=fields))).created
    await pipelines.emit("shop", "orders")
    assert await pipelines.rows("totals") == total(120, 2, 10)


async def test_two_versions_of_one_module_build_side_by_side(spark_pipelines: TestedPipelines) -> None:
    """INV-60."""
    dag = """
    name: two_versions
    jobs: [{name: numbers, function: "numbering:make"}]
    publish: {two_versions_numbers: numbers}
    """
    module = """
    from more import FACTOR

    def make(spark):
        return spark.range(3).selectExpr("id * {} AS n".format(FACTOR))
    """
    old = await spark_pipelines.begin(dag, numbering__py=module, more__py="FACTOR = 1\n")
    new = await spark_pipelines.begin(dag, numbering__py=module, more__py="FACTOR = 100\n")
    assert old.plan.jobs[0].generation != new.plan.jobs[0].generation
    await spark_pipelines.built(new)
    await spark_pipelines.built(old)
    for deployed, factor in ((old, 1), (new, 100), (old, 1)):
        await spark_pipelines.activate(deployed)
        assert await spark_pipelines.rows("two_versions_numbers") == [{"n": n * factor} for n in range(3)]
