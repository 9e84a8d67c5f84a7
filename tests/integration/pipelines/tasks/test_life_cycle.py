"""Tasks from creation to their end: built, routed, claimed together, committed, and the runs they belong to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.integration.pipelines.tasks.task_testbed import DAG, Ground

from noetl.engine.dispatch.polling import Backoff
from noetl.errors import InputError, LeaseLost, NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.task import TaskGrant


@pytest.fixture
async def other(database: Database, ground: Ground) -> AsyncIterator[Ground]:
    """A second process on the same database."""
    ledger = PostgresLedger(database)
    other = Ground(database, ledger, ground.home, payloads=ground.payloads, node=2)
    yield other
    await other.engine.close()
    await ledger.close()


async def test_a_deploy_builds_every_job_in_order_and_ends(ground: Ground) -> None:
    deployed = await ground.deploy()
    worked = await ground.work()
    assert worked[0] == "orders/all"
    assert sorted(worked[1:3]) == ["clean/day=1", "clean/day=2"]
    assert worked[3:] == ["totals/all"]
    ended = await ground.engine.runs.finished(ground.scope, deployed.execution_id, 5)
    assert ended.status == "completed"
    version = await ground.dags.version(ground.scope, "shop", deployed.dag_version_id)
    assert version.status == "ready"


async def test_a_deploy_whose_starter_died_is_built_by_whoever_looks_at_its_run(ground: Ground) -> None:
    """INV-33."""
    ground.home.mkdir()
    (ground.home / "dag.yaml").write_text(DAG)
    build, ground.engine.runs.build = ground.engine.runs.build, _nobody  # type: ignore[method-assign]
    deployed = await ground.deploy()
    ground.engine.runs.build = build  # type: ignore[method-assign]
    assert await ground.work() == []
    assert (await ground.engine.runs.settle(ground.scope, deployed.execution_id)).status == "open"
    assert len(await ground.work()) == 4
    assert (await ground.engine.runs.settle(ground.scope, deployed.execution_id)).status == "completed"


async def _nobody(*_: object) -> list[str]:
    return []


async def test_an_emission_runs_its_source_and_everything_that_reads_it(ground: Ground) -> None:
    await ground.built()
    run = await ground.engine.runs.emit(ground.scope, "shop", "orders", requested_by="test")
    assert (await ground.engine.runs.settle(ground.scope, run)).status == "open"
    worked = await ground.work(("2", "3"), salt="again")
    assert worked[0] == "orders/all"
    assert sorted(worked[1:-1]) == ["clean/day=2", "clean/day=3"]
    assert worked[-1] == "totals/all"
    assert (await ground.engine.runs.finished(ground.scope, run, 5)).status == "completed"
    assert await ground.current("clean") == {"day=1": 1, "day=2": 2, "day=3": 1}


async def test_an_emission_asked_for_twice_under_one_key_is_one_run(ground: Ground) -> None:
    await ground.built()
    emit = ground.engine.runs.emit
    first, second = await asyncio.gather(
        emit(ground.scope, "shop", "orders", requested_by="test", key="nightly"),
        emit(ground.scope, "shop", "orders", requested_by="test", key="nightly"),
    )
    assert first == second == await emit(ground.scope, "shop", "orders", requested_by="test", key="nightly")
    assert len(await ground.rows("SELECT FROM noetl.task WHERE execution_id = $1", first)) == 1


async def test_only_sources_of_the_current_version_are_emitted(ground: Ground) -> None:
    with pytest.raises(NotFound):
        await ground.engine.runs.emit(ground.scope, "shop", "orders", requested_by="test")
    await ground.built()
    with pytest.raises(InputError, match="started by what it reads"):
        await ground.engine.runs.emit(ground.scope, "shop", "clean", requested_by="test")


async def test_a_claim_gives_tasks_of_one_job_the_oldest_first(ground: Ground) -> None:
    await ground.built()
    await ground.engine.runs.emit(ground.scope, "shop", "orders", requested_by="test")
    (grant,) = await ground.claim()
    await ground.tasks.complete(grant, ground.report(grant, [f"{n}" for n in range(5)], salt="x"))
    some = await ground.claim(want=3)
    assert [one.job for one in some] == ["clean"] * 3
    rest = await ground.claim(want=30)
    assert [one.job for one in rest] == ["clean"] * 2
    assert len({one.lease.task_id for one in [*some, *rest]}) == 5
    assert await ground.claim() == []


async def test_a_grant_pins_what_is_read_and_tells_what_stands(ground: Ground) -> None:
    await ground.built()
    await ground.engine.runs.emit(ground.scope, "shop", "orders", requested_by="test")
    (orders,) = await ground.claim()
    assert {part.partition_key: part.version for part in orders.targets[0].parts} == {"day=1": 1, "day=2": 1}
    await ground.tasks.complete(orders, ground.report(orders, ["2"], salt="x"))
    (clean,) = await ground.claim()
    assert (clean.partition_key, clean.inputs[0].alias) == ("day=2", "orders")
    assert [(part.partition_key, part.version) for part in clean.inputs[0].parts] == [("day=2", 2)]
    (target,) = clean.targets
    assert [(part.partition_key, part.version) for part in target.parts] == [("day=2", 1)]
    assert [column.name for column in target.schema] == ["day", "amount"]
    assert await ground.tasks.fetch(clean.lease) == clean


async def test_processes_that_claim_at_once_get_different_tasks(ground: Ground, other: Ground) -> None:
    await _with_many_waiting(ground, 40)
    lots = await asyncio.gather(
        *(one.tasks.claim(f"w{number}", ("dispatcher",), 4, 5) for number in range(5) for one in (ground, other))
    )
    claimed = [grant.lease.task_id for grants in lots for grant in grants]
    assert len(claimed) == len(set(claimed))
    assert all(lots)


async def test_no_more_tasks_of_a_job_run_than_it_allows(ground: Ground, other: Ground) -> None:
    limited = DAG.replace("inputs: [orders]", "inputs: [orders]\n    scaling: {max_concurrency: 3}")
    await _with_many_waiting(ground, 10, limited)
    lots = await asyncio.gather(*(one.tasks.claim("w", ("dispatcher",), 5, 0.2) for one in (ground, other)))
    grants = [grant for lot in lots for grant in lot]
    assert 1 <= len(grants) <= 3
    grants += await ground.claim()
    assert len(grants) == 3
    assert await other.claim() == []
    await ground.tasks.complete(grants[0], ground.report(grants[0]))
    assert len(await other.claim(job="clean")) == 1


async def test_tasks_of_another_runtime_are_left_to_others(ground: Ground) -> None:
    await ground.deploy()
    assert await ground.tasks.claim("worker", ("spark", "ecs_platform"), 10, 0) == []


async def test_whoever_waits_is_woken_by_a_new_task(ground: Ground) -> None:
    await ground.built()
    ground.engine.start()
    waiting = asyncio.create_task(ground.tasks.claim("worker", ("dispatcher",), 1, 30))
    await asyncio.sleep(0)
    await ground.engine.runs.emit(ground.scope, "shop", "orders", requested_by="test")
    (grant,) = await asyncio.wait_for(waiting, 10)
    assert grant.job == "orders"


async def test_where_an_attempt_runs_is_recorded_before_it_begins(ground: Ground) -> None:
    await ground.deploy()
    (grant,) = await ground.claim()
    tag = f"noetl-{grant.lease.task_id}-{grant.lease.attempt}"
    await ground.tasks.started(grant, "app-1", tag)
    task = await ground.task(grant.lease.task_id)
    assert (task.application_id, task.job_tag, task.worker) == ("app-1", tag, "worker")


async def test_a_lease_that_is_kept_is_not_taken_back(ground: Ground) -> None:
    await ground.deploy()
    (grant,) = await ground.claim()
    before = (await ground.task(grant.lease.task_id)).lease_until
    assert await ground.tasks.heartbeat([grant.lease]) == []
    after = (await ground.task(grant.lease.task_id)).lease_until
    assert before is not None
    assert after is not None
    assert after > before
    assert await ground.engine.reaper.sweep() == 0


async def test_a_lease_that_ran_out_cannot_be_kept(ground: Ground) -> None:
    await ground.deploy()
    (grant,) = await ground.claim()
    await ground.expire(grant.lease.task_id)
    assert await ground.tasks.heartbeat([grant.lease]) == [grant.lease]
    with pytest.raises(LeaseLost):
        await ground.tasks.complete(grant, ground.report(grant))


async def test_a_stale_attempt_commits_nothing(ground: Ground) -> None:
    """INV-52."""
    await ground.deploy()
    (stale,) = await ground.claim()
    await ground.expire(stale.lease.task_id)
    assert await ground.engine.reaper.sweep() == 1
    (fresh,) = await ground.claim()
    assert (fresh.lease.task_id, fresh.lease.attempt) == (stale.lease.task_id, 2)
    with pytest.raises(LeaseLost):
        await ground.tasks.complete(stale, ground.report(stale, ["9"]))
    with pytest.raises(LeaseLost):
        await ground.tasks.fetch(stale.lease)
    await ground.tasks.complete(fresh, ground.report(fresh))
    keys = await ground.rows("SELECT partition_key FROM noetl.partition_version ORDER BY 1")
    assert [row[0] for row in keys] == ["day=1", "day=2"]


async def test_waits_grow_up_to_the_longest_and_differ() -> None:
    waits = Backoff(30.0, 600.0)
    first = [waits.seconds(1) for _ in range(200)]
    assert 15.0 <= min(first) < max(first) <= 45.0
    assert all(300.0 <= waits.seconds(tries) <= 900.0 for tries in (6, 50, 5000))


async def _with_many_waiting(ground: Ground, days: int, text: str = DAG) -> TaskGrant:
    await ground.deploy(text)
    (grant,) = await ground.claim()
    await ground.tasks.complete(grant, ground.report(grant, [f"{number}" for number in range(days)]))
    await ground.drain()
    return grant
