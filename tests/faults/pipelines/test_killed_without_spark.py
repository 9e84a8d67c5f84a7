"""A process killed where an attempt fails or a run begins is replaced by another, and nothing is done twice."""

from __future__ import annotations

import signal

import pytest
from tests.faults.pipelines.pipeline_testbed import PipelineTestbed

pytestmark = [pytest.mark.service, pytest.mark.fault]

FAILING = "  - {name: failing, operator: made, runtime: dispatcher}"
DAG = """
name: shop
defaults: {heartbeat_timeout_seconds: 2, max_attempts: 9}
publish: [steady, kept]
jobs:
  - name: steady
    operator: made
    runtime: dispatcher
    unique_key: [id]
    config: {query: "SELECT 1 AS id"}
  - name: kept
    operator: made
    runtime: dispatcher
    inputs: [steady]
    config: {query: "SELECT * FROM steady"}
"""


@pytest.mark.parametrize("point", ["task.before_end", "task.after_end"])
async def test_a_process_killed_where_an_attempt_fails_is_replaced(testbed: PipelineTestbed, point: str) -> None:
    """INV-52."""
    pipelines = testbed.pipelines
    pipelines.give("failing", {"id": 1})
    deployed = await pipelines.begin(DAG + FAILING)
    await testbed.process(f"{point}=kill").killed()
    async with testbed.recovering():
        await pipelines.built(deployed)
        await pipelines.activate(deployed)
    assert await pipelines.rows("shop.failing.0") == await pipelines.rows("kept") == [{"id": 1}]
    (task,) = await pipelines.tasks("failing")
    told = [one.outcome for one in await testbed.engine.by_hand.history(pipelines.scope, task.task_id)]
    assert told == ["abandoned" if point == "task.before_end" else "attempt_failed", "completed"]
    await testbed.assert_whole()


@pytest.mark.parametrize("point", ["run.before_request", "run.after_request"])
async def test_a_process_killed_where_a_run_begins_is_asked_again_and_there_is_one_run(
    testbed: PipelineTestbed, point: str
) -> None:
    """INV-52."""
    pipelines = testbed.pipelines
    pipelines.give("failing", {"id": 1})
    async with testbed.recovering():
        await pipelines.deploy(DAG + FAILING)
        await testbed.process(f"{point}=kill", emits=("shop", "failing", "once")).killed()
        run = await testbed.engine.runs.emit(pipelines.scope, "shop", "failing", requested_by="tests", key="once")
        assert (await pipelines.finished(run)).status == "completed"
    tasks = await pipelines.tasks("failing")
    assert [task.dedupe_key.partition(":")[0] for task in tasks] == ["build", "emission"]
    assert tasks[1].execution_id == run
    await testbed.assert_whole()


async def test_an_attempt_that_stood_still_past_its_lease_commits_nothing(testbed: PipelineTestbed) -> None:
    """INV-52."""
    pipelines = testbed.pipelines
    deployed = await pipelines.begin(DAG)
    paused = testbed.process("task.before_commit=pause")
    await paused.stopped()
    async with testbed.recovering():
        await pipelines.built(deployed)
        await pipelines.activate(deployed)
        events = await pipelines.fetch("SELECT count(*) FROM noetl.event")
        paused.send(signal.SIGCONT)
        await paused.said("steady Lost")
        paused.send(signal.SIGTERM)
        assert await paused.ended() == 0
        assert await pipelines.fetch("SELECT count(*) FROM noetl.event") == events
    (task,) = await pipelines.tasks("steady")
    told = [one.outcome for one in await testbed.engine.by_hand.history(pipelines.scope, task.task_id)]
    assert told == ["abandoned", "completed"]
    assert await pipelines.rows("kept") == [{"id": 1}]
    await testbed.assert_whole()
