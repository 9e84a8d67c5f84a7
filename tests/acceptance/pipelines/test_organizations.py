"""Organizations whose DAGs, jobs and datasets have the same names, in one database, one lake and one process."""

from __future__ import annotations

import asyncio

import pytest
from tests.acceptance.pipelines.shop import order, shop, total

from noetl.testing.engines.pipelines import TestedPipelines

pytestmark = pytest.mark.service


async def test_two_organizations_with_equal_names_never_meet(
    pipelines: TestedPipelines, other_pipelines: TestedPipelines
) -> None:
    pipelines.give("orders", order(1, 1), order(2, 2))
    other_pipelines.give("orders", order(1, 100), order(2, 200))
    await asyncio.gather(pipelines.deploy(shop()), other_pipelines.deploy(shop()))
    await asyncio.gather(pipelines.emit("shop", "orders"), other_pipelines.emit("shop", "orders"))
    assert await pipelines.rows("totals") == total(3, 2)
    assert await other_pipelines.rows("totals") == total(300, 2)
    found = []
    for one, organization in ((pipelines, "default"), (other_pipelines, "another")):
        assert {asked.organization for asked in one.made.asked} == {organization}
        tasks = await one.fetch("SELECT task_id, generation, organization_id FROM noetl.task")
        assert {task["organization_id"] for task in tasks} == {organization}
        manifests = await one.pipelines.datasets.manifests(one.scope, (await one.view("clean")).partitions)
        paths = {entry.path for manifest in manifests for entry in manifest.files}
        assert all(path.startswith(f"default/{organization}/datasets/") for path in paths)
        found.append({*paths, *(str(task["task_id"]) for task in tasks), *(str(task["generation"]) for task in tasks)})
    assert found[0].isdisjoint(found[1])


async def test_what_one_organization_switches_moves_nothing_of_another(
    pipelines: TestedPipelines, other_pipelines: TestedPipelines
) -> None:
    for one in (pipelines, other_pipelines):
        one.give("orders", order(1, 1))
        await one.deploy(shop())
    await pipelines.deploy(shop(10))
    assert await pipelines.rows("totals") == total(10, 1, 10)
    assert await other_pipelines.rows("totals") == total(1, 1)
    await other_pipelines.deploy(shop(7))
    await pipelines.rollback("shop")
    assert await pipelines.rows("totals") == total(1, 1)
    assert await other_pipelines.rows("totals") == total(7, 1, 7)
