"""Tasks from creation to their end: built, routed, claimed together, committed, and the runs they belong to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.integration.pipelines.tasks.task_testbed import DAG, TaskTestbed

from noetl.engine.dispatch.polling import Backoff
from noetl.errors import InputError, LeaseLost, NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.task import TaskGrant


@pytest.fixture
async def other(database: Database, testbed: TaskTestbed) -> AsyncIterator[TaskTestbed]:
    """A second process on the same database."""
    ledger = PostgresLedger(database)
    other = TaskTestbed(database, ledger, testbed.home, payloads=testbed.payloads, node=2)
    yield other
    await other.engine.close()
    await ledger.close()


async def test_a_deploy_builds_every_job_in_order_and_ends(testbed: TaskTestbed) -> None:
    deployed = await testbed.deploy()
    worked = await testbed.work()
    assert worked[0] == "orders/all"
    assert sorted(worked[1:3]) == ["clean/day=1", "clean/day=2"]
    assert worked[3:] == ["totals/all"]
    ended = await testbed.engine.runs.finished(testbed.scope, deployed.execution_id, 5)
    assert ended.status == "completed"
    version = await testbed.dags.version(testbed.scope, "shop", deployed.dag_version_id)
    assert version.status == "ready"


async def test_a_deploy_whose_starter_died_is_built_by_whoever_looks_at_its_run(testbed: TaskTestbed) -> None:
    """INV-33."""
    testbed.home.mkdir()
    (testbed.home / "dag.yaml").write_text(DAG)
    build, testbed.engine.runs.build = testbed.engine.runs.build, _nobody  # type: ignore[method-assign]
    deployed = await testbed.deploy()
    testbed.engine.runs.build = build  # type: ignore[method-assign]
    assert await testbed.work() == []
    assert (await testbed.engine.runs.settle(testbed.scope, deployed.execution_id)).status == "open"
    assert len(await testbed.work()) == 4
    assert (await testbed.engine.runs.settle(testbed.scope, deployed.execution_id)).status == "completed"


async def _nobody(*_: object) -> list[str]:
    return []


async def test_an_emission_runs_its_source_and_everything_that_reads_it(testbed: TaskTestbed) -> None:
    await testbed.built()
    run = await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    assert (await testbed.engine.runs.settle(testbed.scope, run)).status == "open"
    worked = await testbed.work(("2", "3"), salt="again")
    assert worked[0] == "orders/all"
    assert sorted(worked[1:-1]) == ["clean/day=2", "clean/day=3"]
    assert worked[-1] == "totals/all"
    assert (await testbed.engine.runs.finished(testbed.scope, run, 5)).status == "completed"
    assert await testbed.current("clean") == {"day=1": 1, "day=2": 2, "day=3": 1}


async def test_an_emission_asked_for_twice_under_one_key_is_one_run(testbed: TaskTestbed) -> None:
    await testbed.built()
    emit = testbed.engine.runs.emit
    first, second = await asyncio.gather(
        emit(testbed.scope, "shop", "orders", requested_by="test", key="nightly"),
        emit(testbed.scope, "shop", "orders", requested_by="test", key="nightly"),
    )
    assert first == second == await emit(testbed.scope, "shop", "orders", requested_by="test", key="nightly")
    assert len(await testbed.rows("SELECT FROM noetl.task WHERE execution_id = $1", first)) == 1


async def test_only_sources_of_the_current_version_are_emitted(testbed: TaskTestbed) -> None:
    with pytest.raises(NotFound):
        await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    await testbed.built()
    with pytest.raises(InputError, match="started by what it reads"):
        await testbed.engine.runs.emit(testbed.scope, "shop", "clean", requested_by="test")


async def test_a_claim_gives_tasks_of_one_job_the_oldest_first(testbed: TaskTestbed) -> None:
    await testbed.built()
    await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    (grant,) = await testbed.claim()
    await testbed.tasks.complete(grant, testbed.report(grant, [f"{n}" for n in range(5)], salt="x"))
    some = await testbed.claim(want=3)
    assert [one.job for one in some] == ["clean"] * 3
    rest = await testbed.claim(want=30)
    assert [one.job for one in rest] == ["clean"] * 2
    assert len({one.lease.task_id for one in [*some, *rest]}) == 5
    assert await testbed.claim() == []


async def test_a_grant_pins_what_is_read_and_tells_what_stands(testbed: TaskTestbed) -> None:
    await testbed.built()
    await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    (orders,) = await testbed.claim()
    assert {part.partition_key: part.version for part in orders.targets[0].parts} == {"day=1": 1, "day=2": 1}
    await testbed.tasks.complete(orders, testbed.report(orders, ["2"], salt="x"))
    (clean,) = await testbed.claim()
    assert (clean.partition_key, clean.inputs[0].alias) == ("day=2", "orders")
    assert [(part.partition_key, part.version) for part in clean.inputs[0].parts] == [("day=2", 2)]
    (target,) = clean.targets
    assert [(part.partition_key, part.version) for part in target.parts] == [("day=2", 1)]
    assert [column.name for column in target.schema] == ["day", "amount"]
    assert await testbed.tasks.fetch(clean.lease) == clean


async def test_processes_that_claim_at_once_get_different_tasks(testbed: TaskTestbed, other: TaskTestbed) -> None:
    await _with_many_waiting(testbed, 40)
    lots = await asyncio.gather(
        *(one.tasks.claim(f"w{number}", ("dispatcher",), 4, 5) for number in range(5) for one in (testbed, other))
    )
    claimed = [grant.lease.task_id for grants in lots for grant in grants]
    assert len(claimed) == len(set(claimed))
    assert all(lots)


async def test_no_more_tasks_of_a_job_run_than_it_allows(testbed: TaskTestbed, other: TaskTestbed) -> None:
    limited = DAG.replace("inputs: [orders]", "inputs: [orders]\n    scaling: {max_concurrency: 3}")
    await _with_many_waiting(testbed, 10, limited)
    lots = await asyncio.gather(*(one.tasks.claim("w", ("dispatcher",), 5, 0.2) for one in (testbed, other)))
    grants = [grant for lot in lots for grant in lot]
    assert 1 <= len(grants) <= 3
    grants += await testbed.claim()
    assert len(grants) == 3
    assert await other.claim() == []
    await testbed.tasks.complete(grants[0], testbed.report(grants[0]))
    assert len(await other.claim(job="clean")) == 1


async def test_tasks_of_another_runtime_are_left_to_others(testbed: TaskTestbed) -> None:
    await testbed.deploy()
    assert await testbed.tasks.claim("worker", ("spark", "ecs_platform"), 10, 0) == []


async def test_whoever_waits_is_woken_by_a_new_task(testbed: TaskTestbed) -> None:
    await testbed.built()
    testbed.engine.start()
    waiting = asyncio.create_task(testbed.tasks.claim("worker", ("dispatcher",), 1, 30))
    await asyncio.sleep(0)
    await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    (grant,) = await asyncio.wait_for(waiting, 10)
    assert grant.job == "orders"


async def test_where_an_attempt_runs_is_recorded_before_it_begins(testbed: TaskTestbed) -> None:
    await testbed.deploy()
    (grant,) = await testbed.claim()
    tag = f"noetl-{grant.lease.task_id}-{grant.lease.attempt}"
    await testbed.tasks.started(grant, "app-1", tag)
    task = await testbed.task(grant.lease.task_id)
    assert (task.application_id, task.job_tag, task.worker) == ("app-1", tag, "worker")


async def test_a_lease_that_is_kept_is_not_taken_back(testbed: TaskTestbed) -> None:
    await testbed.deploy()
    (grant,) = await testbed.claim()
    before = (await testbed.task(grant.lease.task_id)).lease_until
    assert await testbed.tasks.heartbeat([grant.lease]) == []
    after = (await testbed.task(grant.lease.task_id)).lease_until
    assert before is not None
    assert after is not None
    assert after > before
    assert await testbed.engine.reaper.sweep() == 0


async def test_a_lease_that_ran_out_cannot_be_kept(testbed: TaskTestbed) -> None:
    await testbed.deploy()
    (grant,) = await testbed.claim()
    await testbed.expire(grant.lease.task_id)
    assert await testbed.tasks.heartbeat([grant.lease]) == [grant.lease]
    with pytest.raises(LeaseLost):
        await testbed.tasks.complete(grant, testbed.report(grant))


async def test_a_stale_attempt_commits_nothing(testbed: TaskTestbed) -> None:
    """INV-52."""
    await testbed.deploy()
    (stale,) = await testbed.claim()
    await testbed.expire(stale.lease.task_id)
    assert await testbed.engine.reaper.sweep() == 1
    (fresh,) = await testbed.claim()
    assert (fresh.lease.task_id, fresh.lease.attempt) == (stale.lease.task_id, 2)
    with pytest.raises(LeaseLost):
        await testbed.tasks.complete(stale, testbed.report(stale, ["9"]))
    with pytest.raises(LeaseLost):
        await testbed.tasks.fetch(stale.lease)
    await testbed.tasks.complete(fresh, testbed.report(fresh))
    keys = await testbed.rows("SELECT partition_key FROM noetl.partition_version ORDER BY 1")
    assert [row[0] for row in keys] == ["day=1", "day=2"]


async def test_waits_grow_up_to_the_longest_and_differ() -> None:
    waits = Backoff(30.0, 600.0)
    first = [waits.seconds(1) for _ in range(200)]
    assert 15.0 <= min(first) < max(first) <= 45.0
    assert all(300.0 <= waits.seconds(tries) <= 900.0 for tries in (6, 50, 5000))


async def _with_many_waiting(testbed: TaskTestbed, days: int, text: str = DAG) -> TaskGrant:
    await testbed.deploy(text)
    (grant,) = await testbed.claim()
    await testbed.tasks.complete(grant, testbed.report(grant, [f"{number}" for number in range(days)]))
    await testbed.drain()
    return grant
