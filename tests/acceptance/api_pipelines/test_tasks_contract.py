"""The same tasks through the engine itself and over HTTP: a worker cannot tell which one it talks to."""

from __future__ import annotations

import asyncio
import uuid

import msgspec
import pytest
from tests.integration.pipelines.tasks.task_testbed import TaskTestbed, written

from noetl.errors import LeaseLost
from noetl.model.task import CheckResult, TaskGrant, TaskReport
from noetl.pipelines.tasks.port import BaseMoved, Tasks

LINES = """
name: log
jobs:
  - name: lines
    operator: made_up
    runtime: dispatcher
    update_strategy: append
    unique_key: [id]
    max_attempts: 2
"""


async def claimed(testbed: TaskTestbed, tasks: Tasks, want: int = 100) -> list[TaskGrant]:
    """Claim what waits, after routing what is due."""
    await testbed.drain()
    return await tasks.claim("w1", ("dispatcher",), want, 0.0)


async def two_running(testbed: TaskTestbed, tasks: Tasks) -> list[TaskGrant]:
    """Return two attempts that run at once on the same partition, which stands at version 1."""
    await testbed.built(LINES)
    for _ in range(2):
        await testbed.engine.runs.emit(testbed.scope, "log", "lines", requested_by="test")
    grants = await claimed(testbed, tasks)
    assert len(grants) == 2
    return grants


async def test_a_build_is_worked_off_from_claim_to_commit(testbed: TaskTestbed, tasks: Tasks) -> None:
    deployed = await testbed.deploy()
    worked = []
    while grants := await claimed(testbed, tasks):
        for grant in grants:
            worked.append(f"{grant.job}/{grant.partition_key}")
            assert grant.execution_id == deployed.execution_id
            assert await tasks.complete(grant, testbed.report(grant)) == "Completed"
    assert (worked[0], sorted(worked[1:3]), worked[3:]) == (
        "orders/all",
        ["clean/day=1", "clean/day=2"],
        ["totals/all"],
    )
    ended = await testbed.engine.runs.finished(testbed.scope, deployed.execution_id, 5)
    assert ended.status == "completed"


async def test_a_claim_waits_for_a_task_and_gives_those_of_one_job(testbed: TaskTestbed, tasks: Tasks) -> None:
    await testbed.built()
    testbed.engine.start()
    waiting = asyncio.create_task(tasks.claim("w1", ("dispatcher",), 10, 20.0))
    await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    (grant,) = await waiting
    assert grant.job == "orders"
    assert await tasks.claim("w1", ("spark",), 10, 0.0) == []
    assert await tasks.claim("w1", ("dispatcher",), 10, 0.0, like=str(uuid.uuid4())) == []


async def test_a_grant_is_the_same_however_it_comes(testbed: TaskTestbed, tasks: Tasks) -> None:
    await testbed.built()
    await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    (orders,) = await claimed(testbed, tasks)
    assert await tasks.fetch(orders.lease) == orders == await testbed.tasks.fetch(orders.lease)
    await tasks.complete(orders, testbed.report(orders, ["2"], salt="x"))
    (clean,) = await claimed(testbed, tasks)
    assert [(part.partition_key, part.version) for part in clean.inputs[0].parts] == [("day=2", 2)]
    assert await tasks.fetch(clean.lease) == clean == await testbed.tasks.fetch(clean.lease)


async def test_where_an_attempt_runs_is_recorded_and_its_lease_is_kept(testbed: TaskTestbed, tasks: Tasks) -> None:
    await testbed.deploy()
    (grant,) = await claimed(testbed, tasks)
    tag = f"noetl-{grant.lease.task_id}-{grant.lease.attempt}"
    await tasks.started(grant, "app-1", tag)
    before = await testbed.task(grant.lease.task_id)
    assert (before.application_id, before.job_tag, before.worker) == ("app-1", tag, "w1")
    assert await tasks.heartbeat([grant.lease]) == []
    after = await testbed.task(grant.lease.task_id)
    assert before.lease_until is not None
    assert after.lease_until is not None
    assert after.lease_until > before.lease_until
    assert await tasks.heartbeat([]) == []


async def test_a_lost_lease_is_told_and_nothing_is_committed(testbed: TaskTestbed, tasks: Tasks) -> None:
    await testbed.deploy()
    (stale,) = await claimed(testbed, tasks)
    await testbed.expire(stale.lease.task_id)
    assert await testbed.engine.reaper.sweep() == 1
    (fresh,) = await claimed(testbed, tasks)
    assert (fresh.lease.task_id, fresh.lease.attempt) == (stale.lease.task_id, 2)
    assert await tasks.heartbeat([stale.lease, fresh.lease]) == [stale.lease]
    for refused in (
        tasks.complete(stale, testbed.report(stale, ["9"])),
        tasks.fail(stale, TaskReport(status="error", error="broke")),
        tasks.started(stale, "app", f"noetl-{stale.lease.task_id}-{stale.lease.attempt}"),
    ):
        with pytest.raises(LeaseLost):
            await refused
    with pytest.raises(LeaseLost):
        await tasks.fetch(stale.lease)
    stolen = msgspec.structs.replace(fresh, lease=msgspec.structs.replace(fresh.lease, token=str(uuid.uuid4())))
    with pytest.raises(LeaseLost):
        await tasks.complete(stolen, testbed.report(fresh))
    assert await testbed.rows("SELECT FROM noetl.partition_version") == []


async def test_an_ended_attempt_cannot_be_ended_under_another_lease(testbed: TaskTestbed, tasks: Tasks) -> None:
    await testbed.deploy()
    (grant,) = await claimed(testbed, tasks)
    assert await tasks.complete(grant, testbed.report(grant)) == "Completed"
    other = msgspec.structs.replace(grant, lease=msgspec.structs.replace(grant.lease, token=str(uuid.uuid4())))
    with pytest.raises(LeaseLost):
        await tasks.fail(other, TaskReport(status="error", error="broke"))
    assert (await testbed.task(grant.lease.task_id)).status == "Completed"


async def test_a_failed_attempt_is_tried_again_until_there_is_none_left(testbed: TaskTestbed, tasks: Tasks) -> None:
    await testbed.deploy(LINES)
    for attempt, is_open in ((1, True), (2, False)):
        (grant,) = await claimed(testbed, tasks)
        assert grant.lease.attempt == attempt
        assert await tasks.complete(grant, TaskReport(status="error", error=f"broke {attempt}")) == "Failed"
        task = await testbed.task(grant.lease.task_id)
        assert (task.status, task.open, task.error) == ("Failed", is_open, f"broke {attempt}")
    assert await claimed(testbed, tasks) == []


async def test_an_append_that_another_overtook_is_told_what_landed(testbed: TaskTestbed, tasks: Tasks) -> None:
    first, second = await two_running(testbed, tasks)
    await tasks.complete(first, TaskReport(status="ok", writes=(written(first, 0, "all", "first"),)))
    write = written(second, 0, "all", "second")
    with pytest.raises(BaseMoved) as moved:
        await tasks.complete(second, TaskReport(status="ok", writes=(write,)))
    assert moved.value.parts[0, "all"].version == 2
    landed = moved.value.landed[0, "all"]
    assert (landed.version, [entry.rows for entry in landed.files]) == (2, [1, 1])
    again = msgspec.structs.replace(write, base_version=2)
    assert await tasks.complete(second, TaskReport(status="ok", writes=(again,))) == "Completed"
    (row,) = await testbed.rows("SELECT version, files FROM noetl.partition_version WHERE current")
    assert tuple(row) == (3, 3)


async def test_a_state_that_another_changed_meanwhile_is_not_overwritten(testbed: TaskTestbed, tasks: Tasks) -> None:
    first, second = await two_running(testbed, tasks)
    assert await tasks.complete(first, TaskReport(status="ok", operator_state={"seen": 5})) == "Completed"
    assert await tasks.complete(second, TaskReport(status="ok", operator_state={"seen": 7})) == "Failed"
    (row,) = await testbed.rows("SELECT state ->> 'seen' FROM noetl.operator_state")
    assert row[0] == "5"


async def test_a_broken_check_fails_the_task_for_good(testbed: TaskTestbed, tasks: Tasks) -> None:
    await testbed.deploy(LINES)
    (grant,) = await claimed(testbed, tasks)
    broken = CheckResult(label="id is unique", passed=False, severity="block", violations=3)
    assert await tasks.complete(grant, TaskReport(status="ok", checks=(broken,))) == "Failed"
    task = await testbed.task(grant.lease.task_id)
    assert not task.open
    assert "id is unique: 3 violations" in (task.error or "")


async def test_a_cancellation_is_heard_with_the_next_heartbeat(testbed: TaskTestbed, tasks: Tasks) -> None:
    await testbed.deploy(LINES)
    (grant,) = await claimed(testbed, tasks)
    await testbed.engine.by_hand.cancel(testbed.scope, grant.lease.task_id, reason="not wanted", by="test")
    assert await tasks.heartbeat([grant.lease]) == [grant.lease]
    assert (await testbed.task(grant.lease.task_id)).status == "Canceled"
    with pytest.raises(LeaseLost):
        await tasks.complete(grant, TaskReport(status="ok"))
