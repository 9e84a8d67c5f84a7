"""A worker killed in the middle of a frame: the new owner works off exactly that frame's rows, and no others again."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from tests.faults.engine.engine_testbed import EngineTestbed
from tests.faults.engine.playbooks import FRAME, ROWS, collection, cursor, effect, fanout, playbook, resumed

pytestmark = [pytest.mark.service, pytest.mark.fault]

OPEN_FRAME = "SELECT frame_id, first_index, row_count, attempt, input_ref FROM noetl.frame"


@pytest.mark.parametrize("loop", [collection, cursor])
async def test_the_new_owner_works_off_the_rows_of_the_frame_and_no_others(
    testbed: EngineTestbed, loop: Callable[..., str]
) -> None:
    """INV-36."""
    await testbed.fill_queue(ROWS)
    first = testbed.process(slots=1)
    async with testbed.shut_gate("each-4"):
        execution_id = await testbed.start(playbook("each", loop("each", None, slots=1)))
        await testbed.at_the_gate()
        (left,) = await testbed.effects.fetch(OPEN_FRAME)
        assert (left["first_index"], left["row_count"], left["attempt"]) == (3, 3, 1)
        before = await testbed.effect_runs()
        first.send(signal.SIGKILL)
        await first.killed()
    testbed.process(slots=1)
    state = await testbed.finished(execution_id)
    assert (state.status, state.results["each"].data["completed"]) == ("COMPLETED", ROWS)
    frame = {f"each-{n}" for n in range(3, 6)}
    assert await testbed.effect_runs() == {
        key: 2 if key in frame and key in before else 1 for key in (f"each-{n}" for n in range(ROWS))
    }

    told = await testbed.events(execution_id, "frame.dispatched", "frame.abandoned", "frame.committed")
    ours = [event["event_type"] for event in told if event["frame_id"] == left["frame_id"]]
    assert ours == ["frame.dispatched", "frame.abandoned", "frame.dispatched", "frame.committed"]
    assert len(told) == 2 * 4 + 2
    await testbed.assert_clean()


async def test_with_resume_the_new_owner_goes_on_behind_what_was_written_down(testbed: EngineTestbed) -> None:
    """INV-147: what rows put before that is named by an event too, though nobody works them off again."""
    first = testbed.process(slots=1)
    async with testbed.shut_gate("each-7"):
        execution_id = await testbed.start(playbook("each", resumed("each", ROWS)))
        await testbed.at_the_gate()
        first.send(signal.SIGKILL)
        await first.killed()
    done = await testbed.effects.fetchval("SELECT (checkpoint ->> 'done')::integer FROM noetl.frame")
    assert 0 < done <= 7
    testbed.process(slots=1)
    state = await testbed.finished(execution_id)
    assert (state.status, state.results["each"].data["completed"]) == ("COMPLETED", ROWS)
    assert await testbed.effect_runs() == {f"each-{n}": 2 if done <= n <= 7 else 1 for n in range(ROWS)}
    kept = await testbed.effects.fetch("SELECT payload_sha256 FROM noetl.event WHERE event_type = 'artifact.stored'")
    assert len({row["payload_sha256"] for row in kept}) == len(kept) == ROWS
    await testbed.assert_clean()


async def test_a_shard_whose_worker_was_killed_is_worked_off_by_another(testbed: EngineTestbed) -> None:
    first = testbed.process(slots=1)
    async with testbed.shut_gate("each-4"):
        execution_id = await testbed.start(playbook("each", fanout("each", rows=ROWS, slots=1)))
        await testbed.at_the_gate()
        first.send(signal.SIGKILL)
        await first.killed()
    testbed.process(slots=1)
    assert (await testbed.finished(execution_id)).status == "COMPLETED"
    assert await testbed.effect_runs() == {f"each-{n}": 2 if n == 4 else 1 for n in range(ROWS)}
    assert len(await testbed.events(execution_id, "loop.shard.abandoned")) == 1
    assert len(await testbed.events(execution_id, "loop.shard.done")) == ROWS
    (fanin,) = await testbed.events(execution_id, "loop.fanin.completed")
    assert fanin["status"] == "completed"
    await testbed.assert_clean()


async def test_the_new_owner_of_a_row_that_waits_for_a_child_finds_the_child(testbed: EngineTestbed) -> None:
    below = "  - step: below\n" + effect("below-{{ workload.n }}")
    await testbed.engine.catalog.register(testbed.scope, playbook("below", below))
    rows = "{in: [0, 1], iterator: n, spec: {mode: parallel, frame: " + FRAME + "}}"
    given = '{pg: "{{ workload.pg }}", n: "{{ iter.n }}"}'
    tool = f"{{kind: playbook, path: faults/below, input: {given}}}"
    first = testbed.process(slots=2)
    async with testbed.shut_gate("below-1"):
        execution_id = await testbed.start(playbook("rows", f"  - step: each\n    loop: {rows}\n    tool: {tool}\n"))
        await testbed.at_the_gate()
        first.send(signal.SIGKILL)
        await first.killed()
    testbed.process(slots=2)
    state = await testbed.finished(execution_id)
    assert (state.status, state.results["each"].data["completed"]) == ("COMPLETED", 2)
    assert await testbed.effect_runs() == {"below-0": 1, "below-1": 2}
    query = "SELECT count(*) FROM noetl.event WHERE event_type = 'execution.requested' AND parent_execution_id = $1"
    assert await testbed.effects.fetchval(query, execution_id) == 2
    await testbed.assert_clean()


async def test_the_new_owner_of_a_claimed_frame_gets_the_same_rows(testbed: EngineTestbed) -> None:
    """INV-37: rows claimed in the user's database are named in the ledger, so that they need not be claimed again."""
    await testbed.fill_queue(ROWS)
    first = testbed.process(slots=1)
    text = playbook("each", cursor("each", None, slots=1))
    async with testbed.shut_gate("each-4"):
        await testbed.start(text)
        await testbed.at_the_gate()
        (before,) = await testbed.effects.fetch(OPEN_FRAME)
        first.send(signal.SIGKILL)
        await first.killed()
        second = testbed.process(slots=1)
        await testbed.at_the_gate(2)
        (after,) = await testbed.effects.fetch(OPEN_FRAME)
        second.send(signal.SIGKILL)
        await second.killed()
    assert (after["frame_id"], after["attempt"]) == (before["frame_id"], 2)
    assert after["input_ref"] == before["input_ref"]
    claimed = await testbed.effects.fetch("SELECT id FROM public.queue WHERE status = 'claimed' ORDER BY id")
    assert [row["id"] for row in claimed] == list(range(6))
