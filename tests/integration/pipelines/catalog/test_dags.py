"""Versions of DAGs: deployed once, built beside the old, switched all at once, and back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.integration.pipelines.catalog.shop import SCOPE, Shop

from noetl.errors import InputError, NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.model.stream import Scope
from noetl.pipelines.plan import identity

OTHER = "SELECT id + 1 AS id, region FROM raw"


@pytest.fixture
def shop(database: Database, ledger: PostgresLedger, tmp_path: Path) -> Shop:
    return Shop(database, ledger, MemoryPayloadStore(), tmp_path)


async def test_a_deploy_makes_a_version_with_its_jobs_and_datasets(shop: Shop) -> None:
    deployed = await shop.deploy()
    assert deployed.created
    (version,) = await shop.dags.versions(SCOPE, "shop")
    assert (version.status, version.built) == ("building", ("raw", "clean"))
    assert version.pointers == deployed.plan.pointers
    assert version.deploy_execution_id == deployed.execution_id
    jobs = await shop.dags.jobs(SCOPE, version.dag_version_id)
    assert [job.name for job in jobs] == ["clean", "raw"]
    assert jobs[0].definition == shop.bundle().dag.job("clean")
    assert jobs[0].inputs[0].dataset_uuid == jobs[1].outputs[0]
    assert jobs[0].view.inputs[0].partition_by == ("region",)
    assert [one.name for one in await shop.datasets.registered(SCOPE)] == ["orders", "shop.raw.0"]
    assert await shop.dags.current(SCOPE, "shop") is None
    assert await shop.dags.names(SCOPE) == ["shop"]


async def test_the_same_files_deploy_to_nothing(shop: Shop) -> None:
    """INV-54."""
    first = await shop.deploy()
    before = await shop.ledger.head()
    again = await shop.deploy()
    assert (again.created, again.dag_version_id, again.execution_id) == (
        False,
        first.dag_version_id,
        first.execution_id,
    )
    assert await shop.ledger.head() == before


async def test_of_equal_deploys_at_once_one_makes_the_version(shop: Shop) -> None:
    bundle = shop.bundle()
    found = await asyncio.gather(*(shop.deploy(bundle) for _ in range(5)))
    assert sum(one.created for one in found) == 1
    assert len({one.execution_id for one in found}) == 1


async def test_different_deploys_at_once_each_make_their_version(shop: Shop) -> None:
    bundles = [shop.bundle(clean=f"SELECT {number} AS id FROM raw") for number in range(4)]
    found = await asyncio.gather(*map(shop.deploy, bundles))
    assert len({one.dag_version_id for one in found}) == 4
    assert len(await shop.dags.versions(SCOPE, "shop")) == 4


async def test_a_changed_job_is_built_beside_what_serves(shop: Shop) -> None:
    first = await shop.serve()
    second = await shop.deploy(clean=OTHER)
    assert second.plan.built == ("clean",)
    assert [job.action for job in second.plan.jobs] == ["keep", "rebuild"]
    current = await shop.dags.current(SCOPE, "shop")
    assert current is not None
    assert current.dag_version_id == first.dag_version_id
    shared = {one.job: (one.old, one.new) for one in second.plan.datasets}
    assert shared["raw"][0] == shared["raw"][1]
    assert shared["clean"][0] != shared["clean"][1]


async def test_a_changed_module_is_told_by_its_name(shop: Shop) -> None:
    text = "name: shop\njobs: [{name: raw, function: 'made:rows'}]\n"
    await shop.serve(shop.bundle(text, {"made.py": "def rows(spark): return 1\n"}))
    plan = await shop.dags.plan(SCOPE, shop.bundle(text, {"made.py": "def rows(spark): return 2\n"}))
    assert [(job.action, job.reasons) for job in plan.jobs] == [("rebuild", ("file made.py changed",))]


async def test_a_plan_without_the_old_files_says_less_but_the_same(shop: Shop) -> None:
    text = "name: shop\njobs: [{name: raw, function: 'made:rows'}]\n"
    first = await shop.serve(shop.bundle(text, {"made.py": "def rows(spark): return 1\n"}))
    version = await shop.dags.version(SCOPE, "shop", first.dag_version_id)
    await shop.payloads.delete(SCOPE, version.bundle_ref.sha256)
    plan = await shop.dags.plan(SCOPE, shop.bundle(text, {"made.py": "def rows(spark): return 2\n"}))
    assert plan.built == ("raw",)


async def test_a_deploy_with_problems_writes_nothing(shop: Shop) -> None:
    text = "name: shop\njobs: [{name: a, inputs: [{from: {dataset: nowhere}}], sql: SELECT id FROM nowhere}]\n"
    before = await shop.ledger.head()
    with pytest.raises(InputError, match="reads the dataset nowhere, which no DAG publishes"):
        await shop.deploy(shop.bundle(text))
    assert await shop.ledger.head() == before


async def test_a_version_is_not_activated_before_it_is_ready(shop: Shop) -> None:
    deployed = await shop.deploy()
    await shop.task(deployed, "raw", "one")
    with pytest.raises(InputError, match="not ready to be activated: 1 queued task of job raw"):
        await shop.dags.activate(SCOPE, "shop", deployed.dag_version_id, by="tests")
    with pytest.raises(InputError, match="is not ready: 1 queued task of job raw"):
        await shop.dags.mark_ready(SCOPE, "shop", deployed.dag_version_id, by="tests")
    assert await shop.dags.current(SCOPE, "shop") is None


async def test_a_source_that_never_ran_stands_in_the_way(shop: Shop) -> None:
    deployed = await shop.deploy()
    with pytest.raises(InputError, match="is not ready: job raw has not run yet"):
        await shop.dags.mark_ready(SCOPE, "shop", deployed.dag_version_id, by="tests")


async def test_only_the_newest_task_of_a_partition_stands_in_the_way(shop: Shop) -> None:
    deployed = await shop.deploy()
    await shop.task(deployed, "raw", "one", "task.failed")
    with pytest.raises(InputError, match=r"1 failed task of job raw \(it broke\)"):
        await shop.dags.mark_ready(SCOPE, "shop", deployed.dag_version_id, by="tests")
    await shop.task(deployed, "raw", "two", "task.completed")
    version = await shop.dags.mark_ready(SCOPE, "shop", deployed.dag_version_id, by="tests")
    assert version.status == "ready"
    assert version.ready_at is not None


async def test_a_change_that_is_not_routed_yet_stands_in_the_way(shop: Shop) -> None:
    deployed = await shop.deploy()
    await shop.commit(deployed, "raw", "region=eu")
    with pytest.raises(InputError, match="1 changes are not routed yet"):
        await shop.dags.mark_ready(SCOPE, "shop", deployed.dag_version_id, by="tests")


async def test_a_cutover_is_one_event_that_switches_every_dataset(shop: Shop) -> None:
    """INV-55."""
    first, second = await shop.serve(), await shop.ready(raw="SELECT 2 AS id, 'us' AS region")
    stream = identity.dag_stream(SCOPE, "shop")
    before = [event async for event in shop.ledger.read(stream)]
    done = await shop.dags.activate(SCOPE, "shop", second.dag_version_id, by="tests")
    told = [event async for event in shop.ledger.read(stream, len(before) + 1)]
    assert [event.event_type for event in told] == ["dag.activated"]
    assert (done.previous, done.changed) == (first.dag_version_id, True)
    assert set(done.released) == {job.generation for job in first.plan.jobs}
    statuses = {one.dag_version_id: one.status for one in await shop.dags.versions(SCOPE, "shop")}
    assert statuses == {first.dag_version_id: "retired", second.dag_version_id: "active"}
    again = await shop.dags.activate(SCOPE, "shop", second.dag_version_id, by="tests")
    assert not again.changed
    assert len([event async for event in shop.ledger.read(stream)]) == len(before) + 1


async def test_every_event_of_a_dag_names_who_it_is_by(shop: Shop) -> None:
    first = await shop.ready()
    await shop.dags.activate(SCOPE, "shop", first.dag_version_id, by="bob")
    second = await shop.serve(publish="sales")
    await shop.dags.rollback(SCOPE, "shop", by="cat")
    failing = await shop.deploy(clean=OTHER)
    await shop.dags.mark_failed(SCOPE, "shop", failing.dag_version_id, "no", by="dan")
    told = [event async for event in shop.ledger.read(identity.dag_stream(SCOPE, "shop"))]
    by = {(one.event_type, one.meta.get("dag_version_id")): one.meta["by"] for one in told}
    assert by["dag.version_created", first.dag_version_id] == "ann"
    assert by["dag.activated", first.dag_version_id] == "bob"
    assert by["dag.activated", second.dag_version_id] == "tests"
    assert by["dag.rolled_back", first.dag_version_id] == "cat"
    assert by["dag.build_failed", failing.dag_version_id] == "dan"
    assert {one.meta["by"] for one in told if one.event_type == "dataset.registered"} == {"ann", "tests", "cat"}


async def test_activations_at_once_leave_one_version_current(shop: Shop) -> None:
    """INV-55."""
    deployed = [await shop.ready(clean=f"SELECT {number} AS id FROM raw") for number in range(3)]
    await asyncio.gather(*(shop.dags.activate(SCOPE, "shop", one.dag_version_id, by="tests") for one in deployed))
    statuses = sorted(one.status for one in await shop.dags.versions(SCOPE, "shop"))
    assert statuses == ["active", "retired", "retired"]


async def test_going_back_leads_to_what_served_before_and_not_forth_again(shop: Shop) -> None:
    versions = [(await shop.serve(clean=f"SELECT {number} AS id FROM raw")).dag_version_id for number in range(3)]
    assert (await shop.dags.rollback(SCOPE, "shop", by="tests")).dag_version_id == versions[1]
    assert (await shop.dags.rollback(SCOPE, "shop", by="tests")).dag_version_id == versions[0]
    with pytest.raises(InputError, match="no earlier version"):
        await shop.dags.rollback(SCOPE, "shop", by="tests")
    assert (await shop.dags.rollback(SCOPE, "shop", versions[2], by="tests")).previous == versions[0]


async def test_going_back_to_what_never_served_is_refused(shop: Shop) -> None:
    await shop.serve()
    other = await shop.ready(clean=OTHER)
    with pytest.raises(InputError, match="never served readers"):
        await shop.dags.rollback(SCOPE, "shop", other.dag_version_id, by="tests")


async def test_old_files_deployed_again_are_their_old_version_and_need_no_build(shop: Shop) -> None:
    first = await shop.serve()
    await shop.serve(clean=OTHER)
    again = await shop.deploy()
    assert (again.created, again.dag_version_id) == (False, first.dag_version_id)
    assert [job.action for job in again.plan.jobs] == ["keep", "reuse"]
    assert (await shop.dags.activate(SCOPE, "shop", first.dag_version_id, by="tests")).changed


async def test_a_build_that_failed_may_be_begun_again(shop: Shop) -> None:
    first = await shop.deploy()
    await shop.dags.mark_failed(SCOPE, "shop", first.dag_version_id, "task x of raw failed", by="tests")
    with pytest.raises(InputError, match="its build failed: task x of raw failed"):
        await shop.dags.activate(SCOPE, "shop", first.dag_version_id, by="tests")
    again = await shop.deploy()
    assert again.created
    assert again.dag_version_id == first.dag_version_id
    assert again.execution_id != first.execution_id
    assert (await shop.dags.version(SCOPE, "shop", first.dag_version_id)).status == "building"


async def test_a_version_that_serves_is_not_marked_again(shop: Shop) -> None:
    first = await shop.serve()
    before = await shop.ledger.head()
    await shop.dags.mark_ready(SCOPE, "shop", first.dag_version_id, by="tests")
    await shop.dags.mark_failed(SCOPE, "shop", first.dag_version_id, "no", by="tests")
    assert await shop.ledger.head() == before


async def test_a_version_is_found_by_the_beginning_of_its_id(shop: Shop) -> None:
    first = await shop.deploy()
    assert (await shop.dags.version(SCOPE, "shop", first.dag_version_id[:8])).dag_version_id == first.dag_version_id
    with pytest.raises(NotFound, match="DAG shop has no version nope"):
        await shop.dags.version(SCOPE, "shop", "nope")
    with pytest.raises(NotFound, match="there is no DAG shopping"):
        await shop.dags.status(SCOPE, "shopping")


async def test_the_files_of_a_version_can_be_had_again(shop: Shop) -> None:
    bundle = shop.bundle()
    deployed = await shop.deploy(bundle)
    assert await shop.dags.load_bundle(SCOPE, deployed.dag_version_id) == bundle
    with pytest.raises(NotFound):
        await shop.dags.load_bundle(SCOPE, "nope")


async def test_the_status_counts_tasks_partitions_and_rows_of_each_job(shop: Shop) -> None:
    deployed = await shop.deploy()
    await shop.task(deployed, "raw", "one", "task.completed")
    await shop.task(deployed, "raw", "two", "task.attempt_failed", partition="region=eu")
    await shop.task(deployed, "clean", "three")
    await shop.commit(deployed, "raw", "region=eu", rows=7)
    await shop.commit(deployed, "raw", "region=us", rows=5)
    status = await shop.dags.status(SCOPE, "shop")
    clean, raw = status.jobs
    assert (raw.tasks, raw.partitions, raw.rows, raw.last_error) == ({"Completed": 1, "Retrying": 1}, 2, 12, "it broke")
    assert (clean.tasks, clean.partitions, clean.last_error) == ({"Queued": 1}, 0, None)
    assert "1 retrying task of job raw (it broke)" in status.obstacles
    assert status.current is None


async def test_a_change_is_told_to_those_who_read_that_generation(shop: Shop) -> None:
    first = await shop.serve()
    raw = first.plan.datasets[0]

    async def readers(generation: str) -> list[tuple[str, str]]:
        jobs = await shop.dags.jobs_reading(SCOPE, raw.dataset_uuid, generation)
        return sorted((job.name, job.generation) for job in jobs)

    old = ("clean", first.plan.jobs[1].generation)
    assert await readers(raw.new) == [old]
    second = await shop.deploy(clean=OTHER)
    new = ("clean", second.plan.jobs[1].generation)
    assert await readers(raw.new) == sorted([old, new])
    third = await shop.deploy(raw="SELECT 3 AS id, 'us' AS region")
    assert await readers(third.plan.datasets[0].new) == [("clean", third.plan.jobs[1].generation)]
    await shop.task(third, "raw", "one", "task.completed")
    await shop.dags.mark_ready(SCOPE, "shop", third.dag_version_id, by="tests")
    await shop.dags.activate(SCOPE, "shop", third.dag_version_id, by="tests")
    assert await readers(raw.new) == [new]
    assert await readers(raw.dataset_uuid) == []


async def test_another_dag_reads_what_is_served_under_a_published_name(shop: Shop) -> None:
    first = await shop.serve()
    text = (
        "name: report\njobs:\n  - {name: sum, inputs: [orders], sql: SELECT count(*) AS n FROM orders}\n"
        "  - {name: peek, inputs: [{from: {dataset: orders}, trigger: false}, sum], sql: 'SELECT n FROM orders, sum'}\n"
    )
    report = await shop.serve(shop.bundle(text))
    orders = first.plan.datasets[1]
    assert [job.name for job in await shop.dags.jobs_reading(SCOPE, orders.dataset_uuid, orders.new)] == ["sum"]
    second = await shop.deploy(clean=OTHER)
    changed = second.plan.datasets[1].new
    assert await shop.dags.jobs_reading(SCOPE, orders.dataset_uuid, changed) == []
    await shop.dags.mark_ready(SCOPE, "shop", second.dag_version_id, by="tests")
    await shop.dags.activate(SCOPE, "shop", second.dag_version_id, by="tests")
    assert len(await shop.dags.jobs_reading(SCOPE, orders.dataset_uuid, changed)) == 1
    assert report.plan.jobs[0].inputs[0].dataset_uuid == orders.dataset_uuid
    with pytest.raises(InputError, match=r"orders is read by report\.peek, report\.sum"):
        await shop.deploy(publish="other")


async def test_a_name_is_had_by_the_first_dag_that_publishes_it(shop: Shop) -> None:
    bundles = [shop.bundle(name=name) for name in ("shop", "store")]
    found = await asyncio.gather(*map(shop.deploy, bundles), return_exceptions=True)
    refused = [one for one in found if isinstance(one, Exception)]
    assert len(refused) == 1
    assert "the name orders belongs to job clean of DAG" in str(refused[0])


async def test_a_name_moves_with_the_cutover_and_back_with_the_rollback(shop: Shop) -> None:
    await shop.serve()
    moved = shop.bundle(publish="orders: raw\n  cleaned")
    await shop.serve(moved)

    async def names() -> dict[str, str]:
        return {one.name: one.job for one in await shop.datasets.registered(SCOPE, published_only=True)}

    assert await names() == {"orders": "raw", "cleaned": "clean"}
    await shop.dags.rollback(SCOPE, "shop", by="tests")
    assert await names() == {"orders": "clean"}


async def test_equal_dags_of_two_organizations_never_meet(
    database: Database, ledger: PostgresLedger, tmp_path: Path
) -> None:
    """INV-22."""
    payloads = MemoryPayloadStore()
    ours = Shop(database, ledger, payloads, tmp_path)
    theirs = Shop(database, ledger, payloads, tmp_path, Scope("acme", "support"))
    mine = await ours.serve()
    assert await theirs.dags.names(theirs.scope) == []
    other = await theirs.deploy()
    assert other.dag_version_id != mine.dag_version_id
    assert other.plan.built == ("raw", "clean")
    assert await theirs.dags.current(theirs.scope, "shop") is None
    with pytest.raises(NotFound):
        await theirs.dags.activate(theirs.scope, "shop", mine.dag_version_id, by="tests")
    raw = mine.plan.datasets[0]
    assert await theirs.dags.jobs_reading(theirs.scope, raw.dataset_uuid, raw.new) == []
