"""Attempts that come to nothing, and what people do about them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.integration.pipelines.tasks.task_testbed import DAG, Ground

from noetl.engine.dispatch.polling import Backoff
from noetl.errors import Conflict, Corrupt, LeaseLost, NoetlError, NotFound, Unavailable
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.stream import Scope
from noetl.model.task import TaskGrant, TaskReport
from noetl.pipelines.tasks import grants as granting

BROKEN = TaskReport(status="error", error="no such table", error_kind="analysis")


async def _running(ground: Ground) -> TaskGrant:
    await ground.deploy()
    (grant,) = await ground.claim()
    return grant


async def test_a_failed_attempt_is_tried_again_and_the_last_one_fails_the_task_and_its_run(ground: Ground) -> None:
    deployed = await ground.deploy()
    for attempt in (1, 2, 3):
        (grant,) = await ground.claim()
        assert grant.lease.attempt == attempt
        assert await ground.tasks.fail(grant, BROKEN) == "Failed"
    task = await ground.task(grant.lease.task_id)
    assert (task.status, task.open, task.error) == ("Failed", False, "no such table")
    assert await ground.claim() == []
    ended = await ground.engine.runs.finished(ground.scope, deployed.execution_id, 5)
    assert (ended.status, ended.error) == ("failed", "job orders, partition all: no such table")
    assert (await ground.dags.version(ground.scope, "shop", deployed.dag_version_id)).status == "failed"


async def test_a_version_whose_build_failed_is_built_when_deployed_again(ground: Ground) -> None:
    first = await ground.deploy()
    (grant,) = await ground.claim()
    await ground.tasks.fail(grant, TaskReport(status="error", error="away", retryable=False))
    assert (await ground.engine.runs.finished(ground.scope, first.execution_id, 5)).status == "failed"
    again = await ground.deploy()
    assert again.execution_id != first.execution_id
    # Whether totals are made once for both days or once for each depends on who looks when.
    assert set(await ground.work()) == {"orders/all", "clean/day=1", "clean/day=2", "totals/all"}
    assert (await ground.engine.runs.finished(ground.scope, again.execution_id, 5)).status == "completed"


async def test_the_next_attempt_waits_longer_than_a_worker_asks(
    database: Database, ledger: PostgresLedger, ground: Ground
) -> None:
    patient = Ground(database, ledger, ground.home, node=3, payloads=ground.payloads, retry=Backoff(30.0, 600.0))
    grant = await _running(patient)
    await patient.tasks.fail(grant, BROKEN)
    assert await patient.claim() == []
    (row,) = await patient.rows(
        "SELECT extract(epoch FROM available_at - created_at)::float8 AS wait FROM noetl.outbox"
        " WHERE kind = 'enqueue_task' AND status = 'Pending'"
    )
    assert 15.0 <= row["wait"] <= 45.0
    await patient.engine.close()


async def test_an_error_that_will_not_go_away_is_not_tried_again(ground: Ground) -> None:
    grant = await _running(ground)
    await ground.tasks.fail(grant, TaskReport(status="error", error="syntax", retryable=False))
    task = await ground.task(grant.lease.task_id)
    assert (task.status, task.attempt, task.open) == ("Failed", 1, False)


async def test_an_attempt_its_worker_had_to_stop_is_no_cancelled_task(ground: Ground) -> None:
    grant = await _running(ground)
    await ground.tasks.fail(grant, TaskReport(status="canceled"))
    (again,) = await ground.claim()
    assert (again.lease.task_id, again.lease.attempt) == (grant.lease.task_id, 2)


async def test_a_lost_worker_costs_attempts_and_the_last_one_fails_the_task(ground: Ground) -> None:
    await ground.deploy()
    for _ in range(3):
        (grant,) = await ground.claim()
        await ground.expire(grant.lease.task_id)
        assert await ground.engine.reaper.sweep() == 1
    task = await ground.task(grant.lease.task_id)
    assert (task.status, task.open) == ("Failed", False)
    assert task.error == "its worker worker was lost in the last of 3 attempts"
    assert await ground.engine.reaper.sweep() == 0


async def test_a_completion_and_a_reaper_at_the_same_moment_do_not_both_win(ground: Ground) -> None:
    grant = await _running(ground)
    await ground.expire(grant.lease.task_id)
    outcomes = await asyncio.gather(
        ground.tasks.complete(grant, ground.report(grant)), ground.engine.reaper.sweep(), return_exceptions=True
    )
    assert isinstance(outcomes[0], LeaseLost)
    assert outcomes[1] == 1


async def test_a_waiting_task_is_cancelled_at_once(ground: Ground) -> None:
    deployed = await ground.deploy()
    (task,) = await ground.engine.by_hand.listed(ground.scope, status="Queued")
    assert await ground.engine.by_hand.cancel(ground.scope, task.task_id, reason="wrong file", by="test") == "Canceled"
    assert await ground.claim() == []
    with pytest.raises(Conflict, match="has ended already"):
        await ground.engine.by_hand.cancel(ground.scope, task.task_id, reason="again", by="test")
    assert (await ground.task(task.task_id)).error == "wrong file"
    ended = await ground.engine.runs.finished(ground.scope, deployed.execution_id, 5)
    assert ended.status == "failed"


async def test_a_running_task_is_cancelled_when_its_worker_hears_of_it(ground: Ground) -> None:
    grant = await _running(ground)
    cancel = ground.engine.by_hand.cancel
    assert await cancel(ground.scope, grant.lease.task_id, reason="late", by="test") == "Running"
    assert await cancel(ground.scope, grant.lease.task_id, reason="late", by="test") == "Running"
    assert await ground.tasks.heartbeat([grant.lease]) == [grant.lease]
    assert (await ground.task(grant.lease.task_id)).status == "Canceled"
    with pytest.raises(LeaseLost):
        await ground.tasks.complete(grant, ground.report(grant))


async def test_a_cancelled_task_whose_worker_is_gone_is_not_tried_again(ground: Ground) -> None:
    grant = await _running(ground)
    await ground.engine.by_hand.cancel(ground.scope, grant.lease.task_id, reason="late", by="test")
    await ground.expire(grant.lease.task_id)
    await ground.engine.reaper.sweep()
    assert (await ground.task(grant.lease.task_id)).status == "Canceled"


async def test_a_claim_and_a_cancellation_at_the_same_moment_agree(ground: Ground) -> None:
    await ground.deploy()
    (task,) = await ground.engine.by_hand.listed(ground.scope)
    status, grants = await asyncio.gather(
        ground.engine.by_hand.cancel(ground.scope, task.task_id, reason="x", by="test"), ground.claim()
    )
    now = await ground.task(task.task_id)
    assert (status, now.status, len(grants)) in {("Canceled", "Canceled", 0), ("Running", "Running", 1)}


async def test_a_task_that_failed_for_good_is_tried_again_by_hand(ground: Ground) -> None:
    await ground.deploy()
    for _ in range(3):
        (grant,) = await ground.claim()
        await ground.tasks.fail(grant, BROKEN)
    await ground.engine.by_hand.retry(ground.scope, grant.lease.task_id, by="test")
    with pytest.raises(Conflict, match="is Queued"):
        await ground.engine.by_hand.retry(ground.scope, grant.lease.task_id, by="test")
    (again,) = await ground.claim()
    assert again.lease.attempt == 4
    await ground.tasks.complete(again, ground.report(again))
    assert (await ground.task(grant.lease.task_id)).status == "Completed"
    with pytest.raises(NotFound):
        await ground.engine.by_hand.retry(ground.scope, "00000000-0000-0000-0000-000000000000", by="test")


async def test_the_history_of_a_task_tells_each_attempt(ground: Ground) -> None:
    grant = await _running(ground)
    await ground.tasks.started(grant, "app-1", f"noetl-{grant.lease.task_id}-{grant.lease.attempt}")
    await ground.tasks.fail(grant, BROKEN)
    (second,) = await ground.claim()
    await ground.expire(second.lease.task_id)
    await ground.engine.reaper.sweep()
    (third,) = await ground.claim()
    await ground.tasks.complete(third, ground.report(third))
    stories = await ground.engine.by_hand.history(ground.scope, grant.lease.task_id)
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


async def test_tasks_of_a_version_that_was_rolled_back_are_cancelled_and_come_back_with_it(ground: Ground) -> None:
    first = await ground.built()
    second = await ground.built(DAG.replace("name: clean\n", "name: clean\n    config: {deep: true}\n"))
    await ground.engine.runs.emit(ground.scope, "shop", "orders", requested_by="test")
    (orders,) = await ground.claim("orders")
    await ground.tasks.complete(orders, ground.report(orders, salt="new"))
    (running,) = await ground.claim("clean", want=1)
    await ground.dags.rollback(ground.scope, "shop", by="tests")
    assert await ground.claim() == [], "a generation that is not in use is not worked"
    cancelled = await ground.engine.by_hand.cancel_unused(ground.scope, by="test")
    assert len(cancelled) == 2
    assert await ground.tasks.heartbeat([running.lease]) == [running.lease]
    caught = await ground.engine.runs.catch_up(ground.scope, "shop", first.dag_version_id, requested_by="test")
    assert caught is not None, "the old version has not seen what was emitted meanwhile"
    assert sorted(await ground.work())[:2] == ["clean/day=1", "clean/day=2"]
    await ground.dags.activate(ground.scope, "shop", second.dag_version_id, by="tests")
    assert await ground.engine.runs.catch_up(ground.scope, "shop", second.dag_version_id, requested_by="test")
    worked = await ground.work()
    assert sorted(set(worked)) == ["clean/day=1", "clean/day=2", "totals/all"]


async def test_two_organizations_with_equal_names_never_meet(
    database: Database, ledger: PostgresLedger, ground: Ground
) -> None:
    other = Ground(database, ledger, ground.home, scope=Scope("default", "other"), node=4)
    await ground.deploy()
    await other.deploy()
    mine, theirs = await ground.claim(), await other.claim()
    assert [len(mine), len(theirs)] == [1, 1]
    assert mine[0].lease.task_id != theirs[0].lease.task_id
    with pytest.raises(LeaseLost):
        await other.tasks.fetch(mine[0].lease)
    with pytest.raises(LeaseLost):
        await other.tasks.fail(mine[0], BROKEN)
    await ground.tasks.complete(mine[0], ground.report(mine[0]))
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
    ground: Ground, problems: list[NoetlError]
) -> None:
    """INV-182: a lease is recorded once its grant is ready."""
    await ground.deploy()
    for _ in range(4):
        problems.append(Unavailable("the store does not answer"))
        with pytest.raises(Unavailable):
            await ground.claim()
    (grant,) = await ground.claim()
    assert grant.lease.attempt == 1


async def test_a_task_whose_inputs_can_never_be_read_fails_alone(ground: Ground, problems: list[NoetlError]) -> None:
    """INV-33: others that are claimed with it are granted."""
    await ground.deploy()
    (orders,) = await ground.claim()
    await ground.tasks.complete(orders, ground.report(orders))
    await ground.drain()
    # All at once first, then one by one: the first of them is broken, and the other is not.
    problems += [Corrupt("the bytes are others"), Corrupt("the bytes are others")]
    (sound,) = await ground.claim()
    assert (sound.job, sound.lease.attempt) == ("clean", 1)
    rows = await ground.rows("SELECT partition_key, status, error FROM noetl.task WHERE job = 'clean'")
    states = {row["partition_key"]: (row["status"], row["error"]) for row in rows}
    assert states.pop(sound.partition_key) == ("Running", None)
    assert list(states.values()) == [("Failed", "the bytes are others")]


async def test_attempts_that_were_interrupted_are_not_counted(ground: Ground) -> None:
    """INV-182: a worker that had to stop fails no task, whichever attempt it was at, and takes none from the others."""
    await ground.deploy()
    for attempt in (1, 2, 3, 4):
        (grant,) = await ground.claim()
        assert grant.lease.attempt == attempt
        await ground.tasks.fail(grant, TaskReport(status="canceled"))
    for left in (2, 1, 0):
        (grant,) = await ground.claim()
        assert (await ground.task(grant.lease.task_id)).open
        if left == 1:
            await ground.expire(grant.lease.task_id)
            assert await ground.engine.reaper.sweep() == 1
            (grant,) = await ground.claim()
            await ground.tasks.fail(grant, TaskReport(status="canceled"))
        else:
            await ground.tasks.fail(grant, BROKEN)
    task = await ground.task(grant.lease.task_id)
    assert (task.status, task.open, task.attempt, task.error) == ("Failed", False, 8, "no such table")
