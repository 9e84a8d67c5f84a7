"""A worker that stands still past its lease and comes back: the ledger takes nothing from it any more."""

from __future__ import annotations

import signal

import pytest
from tests.faults.engine.engine_testbed import EngineTestbed, Process
from tests.faults.engine.playbooks import ROWS, collection, playbook, single

pytestmark = [pytest.mark.service, pytest.mark.fault]

LOOP = playbook("paused", collection("each", "last", slots=1), single("last", None))


async def count_events(testbed: EngineTestbed) -> int:
    return int(await testbed.effects.fetchval("SELECT count(*) FROM noetl.event"))


async def assert_comes_back_in_vain(testbed: EngineTestbed, execution_id: int, paused: Process) -> None:
    """Another process finishes the execution, and what the paused one says afterwards changes nothing."""
    testbed.process(slots=1)
    assert (await testbed.finished(execution_id)).status == "COMPLETED"
    before = await count_events(testbed)
    paused.send(signal.SIGCONT)
    paused.send(signal.SIGTERM)
    assert await paused.ended() == 0
    assert await count_events(testbed) == before
    for kind, column, count in (("frame.committed", "frame_id", 4), ("command.completed", "command_id", 2)):
        ids = [event[column] for event in await testbed.events(execution_id, kind)]
        assert len(ids) == len(set(ids)) == count
    assert (await testbed.effect_runs()).keys() == {"last", *(f"each-{n}" for n in range(ROWS))}
    await testbed.assert_clean()


@pytest.mark.parametrize("point", ["frame.before_commit", "complete.before_record"])
async def test_a_report_that_comes_after_the_lease_ran_out_is_refused(testbed: EngineTestbed, point: str) -> None:
    execution_id = await testbed.start(LOOP)
    paused = testbed.process(fault=f"{point}=pause", slots=1, reaps=False)
    await paused.stopped()
    await assert_comes_back_in_vain(testbed, execution_id, paused)


async def test_work_that_was_stopped_in_the_middle_is_not_reported(testbed: EngineTestbed) -> None:
    paused = testbed.process(slots=1, reaps=False)
    async with testbed.shut_gate("each-4"):
        execution_id = await testbed.start(LOOP)
        await testbed.at_the_gate()
        paused.send(signal.SIGSTOP)
        await paused.stopped()
    await assert_comes_back_in_vain(testbed, execution_id, paused)
