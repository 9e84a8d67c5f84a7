"""Attempts that come to nothing, and what people do about them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.integration.pipelines.tasks.task_testbed import DAG, TaskTestbed

from noetl.engine.dispatch.polling import Backoff
from noetl.errors import Conflict, Corrupt, LeaseLost, NoetlError, NotFound, Unavailable
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.stream import Scope
from noetl.model.task import TaskGrant, TaskReport
from noetl.pipelines.tasks import grants as granting

BROKEN = TaskReport(status="error", error="no such table", error_kind="analysis")


async def _running(testbed: TaskTestbed) -> TaskGrant:
    await testbed.deploy()
    (grant,) = await testbed.claim()
    return grant


async def test_a_failed_attempt_is_tried_again_and_the_last_one_fails_the_task_and_its_run(
    testbed: TaskTestbed,
) -> None:
    deployed = await testbed.deploy()
    for attempt in (1, 2, 3):
        (grant,) = await testbed.claim()
        assert grant.lease.attempt == attempt
        assert await testbed.tasks.fail(grant, BROKEN) == "Failed"
    task = await testbed.task(grant.lease.task_id)
    assert (task.status, task.open, task.error) == ("Failed", False, "no such table")
    assert await testbed.claim() == []
    ended = await testbed.engine.runs.finished(testbed.scope, deployed.execution_id, 5)
    assert (ended.status, ended.error) == ("failed", "job orders, partition all: no such table")
    assert (await testbed.dags.version(testbed.scope, "shop", deployed.dag_version_id)).status == "failed"


async def test_a_version_whose_build_failed_is_built_when_deployed_again(testbed: TaskTestbed) -> None:
    first = await testbed.deploy()
    (grant,) = await testbed.claim()
    await testbed.tasks.fail(grant, TaskReport(status="error", error="away", retryable=False))
    assert (await testbed.engine.runs.finished(testbed.scope, first.execution_id, 5)).status == "failed"
    again = await testbed.deploy()
    assert again.execution_id != first.execution_id
    # Whether totals are made once for both days or once for each depends on who looks when.
    assert set(await testbed.work()) == {"orders/all", "clean/day=1", "clean/day=2", "totals/all"}
    assert (await testbed.engine.runs.finished(testbed.scope, again.execution_id, 5)).status == "completed"


async def test_the_next_attempt_waits_longer_than_a_worker_asks(
    database: Database, ledger: PostgresLedger, testbed: TaskTestbed
) -> None:
    patient = TaskTestbed(database, ledger, testbed.home, node=3, payloads=testbed.payloads, retry=Backoff(30.0, 600.0))
    grant = await _running(patient)
    await patient.tasks.fail(grant, BROKEN)
    assert await patient.claim() == []
    (row,) = await patient.rows(
        "SELECT extract(epoch FROM available_at - created_at)::float8 AS wait FROM noetl.outbox"
        " WHERE kind = 'enqueue_task' AND status = 'Pending'"
    )
    assert 15.0 <= row["wait"] <= 45.0
    await patient.engine.close()


async def test_an_error_that_will_not_go_away_is_not_tried_again(testbed: TaskTestbed) -> None:
    grant = await _running(testbed)
    await testbed.tasks.fail(grant, TaskReport(status="error", error="syntax", retryable=False))
    task = await testbed.task(grant.lease.task_id)
    assert (task.status, task.attempt, task.open) == ("Failed", 1, False)


async def test_an_attempt_its_worker_had_to_stop_is_no_cancelled_task(testbed: TaskTestbed) -> None:
    grant = await _running(testbed)
    await testbed.tasks.fail(grant, TaskReport(status="canceled"))
    (again,) = await testbed.claim()
    assert (again.lease.task_id, again.lease.attempt) == (grant.lease.task_id, 2)


async def test_a_lost_worker_costs_attempts_and_the_last_one_fails_the_task(testbed: TaskTestbed) -> None:
    await testbed.deploy()
    for _ in range(3):
        (grant,) = await testbed.claim()
        await testbed.expire(grant.lease.task_id)
        assert await testbed.engine.reaper.sweep() == 1
    task = await testbed.task(grant.lease.task_id)
    assert (task.status, task.open) == ("Failed", False)
    assert task.error == "its worker worker was lost in the last of 3 attempts"
    assert await testbed.engine.reaper.sweep() == 0


async def test_a_completion_and_a_reaper_at_the_same_moment_do_not_both_win(testbed: TaskTestbed) -> None:
    grant = await _running(testbed)
    await testbed.expire(grant.lease.task_id)
    outcomes = await asyncio.gather(
        testbed.tasks.complete(grant, testbed.report(grant)), testbed.engine.reaper.sweep(), return_exceptions=True
    )
    assert isinstance(outcomes[0], LeaseLost)
    assert outcomes[1] == 1


async def test_a_waiting_task_is_cancelled_at_once(testbed: TaskTestbed) -> None:
    deployed = await testbed.deploy()
    (task,) = await testbed.engine.by_hand.listed(testbed.scope, status="Queued")
    assert (
        await testbed.engine.by_hand.cancel(testbed.scope, task.task_id, reason="wrong file", by="test") == "Canceled"
    )
    assert await testbed.claim() == []
    with pytest.raises(Conflict, match="has ended already"):
        await testbed.engine.by_hand.cancel(testbed.scope, task.task_id, reason="again", by="test")
    assert (await testbed.task(task.task_id)).error == "wrong file"
    ended = await testbed.engine.runs.finished(testbed.scope, deployed.execution_id, 5)
    assert ended.status == "failed"


async def test_a_running_task_is_cancelled_when_its_worker_hears_of_it(testbed: TaskTestbed) -> None:
    grant = await _running(testbed)
    cancel = testbed.engine.by_hand.cancel
    assert await cancel(testbed.scope, grant.lease.task_id, reason="late", by="test") == "Running"
    assert await cancel(testbed.scope, grant.lease.task_id, reason="late", by="test") == "Running"
    assert await testbed.tasks.heartbeat([grant.lease]) == [grant.lease]
    assert (await testbed.task(grant.lease.task_id)).status == "Canceled"
    with pytest.raises(LeaseLost):
        await testbed.tasks.complete(grant, testbed.report(grant))


async def test_a_cancelled_task_whose_worker_is_gone_is_not_tried_again(testbed: TaskTestbed) -> None:
    grant = await _running(testbed)
    await testbed.engine.by_hand.cancel(testbed.scope, grant.lease.task_id, reason="late", by="test")
    await testbed.expire(grant.lease.task_id)
    await testbed.engine.reaper.sweep()
    assert (await testbed.task(grant.lease.task_id)).status == "Canceled"


async def test_a_claim_and_a_cancellation_at_the_same_moment_agree(testbed: TaskTestbed) -> None:
    await testbed.deploy()
    (task,) = await testbed.engine.by_hand.listed(testbed.scope)
    status, grants = await asyncio.gather(
        testbed.engine.by_hand.cancel(testbed.scope, task.task_id, reason="x", by="test"), testbed.claim()
    )
    now = await testbed.task(task.task_id)
    assert (status, now.status, len(grants)) in {("Canceled", "Canceled", 0), ("Running", "Running", 1)}


async def test_a_task_that_failed_for_good_is_tried_again_by_hand(testbed: TaskTestbed) -> None:
    await testbed.deploy()
    for _ in range(3):
        (grant,) = await testbed.claim()
        await testbed.tasks.fail(grant, BROKEN)
    await testbed.engine.by_hand.retry(testbed.scope, grant.lease.task_id, by="test")
    with pytest.raises(Conflict, match="is Queued"):
        await testbed.engine.by_hand.retry(testbed.scope, grant.lease.task_id, by="test")
    (again,) = await testbed.claim()
    assert again.lease.attempt == 4
    await testbed.tasks.complete(again, testbed.report(again))
    assert (await testbed.task(grant.lease.task_id)).status == "Completed"
    with pytest.raises(NotFound):
        await testbed.engine.by_hand.retry(testbed.scope, "00000000-0000-0000-0000-000000000000", by="test")


async def test_the_history_of_a_task_tells_each_attempt(testbed: TaskTestbed) -> None:
    grant = await _running(testbed)
    await testbed.tasks.started(grant, "app-1", f"noetl-{grant.lease.task_id}-{grant.lease.attempt}")
    await testbed.tasks.fail(grant, BROKEN)
    (second,) = await testbed.claim()
    await testbed.expire(second.lease.task_id)
    await testbed.engine.reaper.sweep()
    (third,) = await testbed.claim()
    await testbed.tasks.complete(third, testbed.report(third))
    stories = await testbed.engine.by_hand.history(testbed.scope, grant.lease.task_id)
    assert [(one.attempt, one.outcome) for one in stories] == [
        (1, "attempt_failed"),
        (2, "abandoned"),
        (3, "completed"),
    ]
    assert (stories[0].application_id, stories[0].error, stories[0].error_kind) == (
        "app-1",
        "no such table",
        "analysis",
    )
    assert len(stories[2].told["outputs"]) == 2


async def test_tasks_of_a_version_that_was_rolled_back_are_cancelled_and_come_back_with_it(
    testbed: TaskTestbed,
) -> None:
    first = await testbed.built()
    second = await testbed.built(DAG.replace("name: clean\n", "name: clean\n    config: {deep: true}\n"))
    await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    (orders,) = await testbed.claim("orders")
    await testbed.tasks.complete(orders, testbed.report(orders, salt="new"))
    (running,) = await testbed.claim("clean", want=1)
    await testbed.dags.rollback(testbed.scope, "shop", by="tests")
    assert await testbed.claim() == [], "a generation that is not in use is not worked"
    cancelled = await testbed.engine.by_hand.cancel_unused(testbed.scope, by="test")
    assert len(cancelled) == 2
    assert await testbed.tasks.heartbeat([running.lease]) == [running.lease]
    caught = await testbed.engine.runs.catch_up(testbed.scope, "shop", first.dag_version_id, requested_by="test")
    assert caught is not None, "the old version has not seen what was emitted meanwhile"
    assert sorted(await testbed.work())[:2] == ["clean/day=1", "clean/day=2"]
    await testbed.dags.activate(testbed.scope, "shop", second.dag_version_id, by="tests")
    assert await testbed.engine.runs.catch_up(testbed.scope, "shop", second.dag_version_id, requested_by="test")
    worked = await testbed.work()
    assert sorted(set(worked)) == ["clean/day=1", "clean/day=2", "totals/all"]


async def test_two_organizations_with_equal_names_never_meet(
    database: Database, ledger: PostgresLedger, testbed: TaskTestbed
) -> None:
    other = TaskTestbed(database, ledger, testbed.home, scope=Scope("default", "other"), node=4)
    await testbed.deploy()
    await other.deploy()
    mine, theirs = await testbed.claim(), await other.claim()
    assert [len(mine), len(theirs)] == [1, 1]
    assert mine[0].lease.task_id != theirs[0].lease.task_id
    with pytest.raises(LeaseLost):
        await other.tasks.fetch(mine[0].lease)
    with pytest.raises(LeaseLost):
        await other.tasks.fail(mine[0], BROKEN)
    await testbed.tasks.complete(mine[0], testbed.report(mine[0]))
    await other.drain()
    assert await other.current("orders") == {}
    assert {key.partition("/")[0] for key in await other.statuses()} == {"orders"}
    await other.engine.close()


@pytest.fixture
def problems(monkeypatch: pytest.MonkeyPatch) -> list[NoetlError]:
    """Problems that reading the inputs of tasks meets, one each."""
    found: list[NoetlError] = []
    read = granting.pinned_inputs

    async def reading(*args: Any) -> list[dict[str, Any]]:
        if found:
            raise found.pop(0)
        return await read(*args)

    monkeypatch.setattr(granting, "pinned_inputs", reading)
    return found


async def test_a_task_whose_inputs_cannot_be_read_now_loses_no_attempt(
    testbed: TaskTestbed, problems: list[NoetlError]
) -> None:
    """INV-182: a lease is recorded once its grant is ready."""
    await testbed.deploy()
    for _ in range(4):
        problems.append(Unavailable("the store does not answer"))
        with pytest.raises(Unavailable):
            await testbed.claim()
    (grant,) = await testbed.claim()
    assert grant.lease.attempt == 1


async def test_a_task_whose_inputs_can_never_be_read_fails_alone(
    testbed: TaskTestbed, problems: list[NoetlError]
) -> None:
    """INV-33: others that are claimed with it are granted."""
    await testbed.deploy()
    (orders,) = await testbed.claim()
    await testbed.tasks.complete(orders, testbed.report(orders))
    await testbed.drain()
    # All at once first, then one by one: the first of them is broken, and the other is not.
    problems += [Corrupt("the bytes are others"), Corrupt("the bytes are others")]
    (sound,) = await testbed.claim()
    assert (sound.job, sound.lease.attempt) == ("clean", 1)
    rows = await testbed.rows("SELECT partition_key, status, error FROM noetl.task WHERE job = 'clean'")
    states = {row["partition_key"]: (row["status"], row["error"]) for row in rows}
    assert states.pop(sound.partition_key) == ("Running", None)
    assert list(states.values()) == [("Failed", "the bytes are others")]


async def test_attempts_that_were_interrupted_are_not_counted(testbed: TaskTestbed) -> None:
    """INV-182: a worker that had to stop fails no task, whichever attempt it was at, and takes none from the others."""
    await testbed.deploy()
    for attempt in (1, 2, 3, 4):
        (grant,) = await testbed.claim()
        assert grant.lease.attempt == attempt
        await testbed.tasks.fail(grant, TaskReport(status="canceled"))
    for left in (2, 1, 0):
        (grant,) = await testbed.claim()
        assert (await testbed.task(grant.lease.task_id)).open
        if left == 1:
            await testbed.expire(grant.lease.task_id)
            assert await testbed.engine.reaper.sweep() == 1
            (grant,) = await testbed.claim()
            await testbed.tasks.fail(grant, TaskReport(status="canceled"))
        else:
            await testbed.tasks.fail(grant, BROKEN)
    task = await testbed.task(grant.lease.task_id)
    assert (task.status, task.open, task.attempt, task.error) == ("Failed", False, 8, "no such table")
