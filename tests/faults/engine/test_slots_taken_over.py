"""A slot that changes hands takes its frame with it: whoever gets the slot gets the rows its former holder left undone."""

from __future__ import annotations

import pytest
from tests.faults.engine.engine_testbed import EngineTestbed
from tests.faults.engine.playbooks import FRAME_ROWS, ROWS, collection, playbook

from noetl.engine.dispatch.grants import CommandGrant, FrameGrant, FrameReport
from noetl.engine.dispatch.local import LocalDispatch
from noetl.engine.plan.trigger import CommandEnded
from noetl.errors import LeaseLost, NoetlError
from noetl.testing.engines.short_leases import until

pytestmark = [pytest.mark.service, pytest.mark.fault]

SLOT = playbook("slot", collection("each", None, slots=1))
LONG = playbook("long", collection("each", None, slots=1, frame=f"{{max_rows: {FRAME_ROWS}, lease_seconds: 600}}"))


async def slot_of(testbed: EngineTestbed, playbook_text: str) -> tuple[LocalDispatch, CommandGrant, FrameGrant]:
    """Start a loop of one slot, claim it and its first frame."""
    await testbed.start(playbook_text)
    dispatch = testbed.engine.dispatch(testbed.scope)
    (grant,) = await dispatch.claim("first", 1, 0)
    frame = await dispatch.next_frame(grant, "first")
    assert frame is not None
    return dispatch, grant, frame


async def work_off(dispatch: LocalDispatch, grant: CommandGrant, worker: str) -> list[tuple[int, int]]:
    """Work off all frames of a slot, end it, and return where each began and its attempt."""
    seen = []
    frame = await dispatch.next_frame(grant, worker)
    while frame is not None:
        seen.append((frame.first_index, frame.attempt))
        report = FrameReport(row_count=frame.row_count)
        frame = await dispatch.commit_frame(grant, frame, report, worker=worker, take_next=True)
    report = CommandEnded(command_id=grant.command_id, attempt=grant.attempt, status="ok")
    await dispatch.complete(grant, report, worker=worker, take_next=False)
    return seen


async def assert_all_rows(testbed: EngineTestbed, execution_id: int) -> None:
    state = await testbed.finished(execution_id)
    assert (state.status, state.results["each"].data["completed"]) == ("COMPLETED", ROWS)
    await testbed.assert_clean()


async def test_a_slot_whose_lease_ran_out_before_its_frames_did_gives_the_frame_up_with_it(
    testbed: EngineTestbed,
) -> None:
    dispatch, grant, frame = await slot_of(testbed, SLOT)

    async def taken_back() -> int:
        # The frame's lease goes on, as if it had been granted long after the slot's.
        await dispatch.heartbeat([frame.lease])
        return await testbed.engine.reaper.sweep()

    await until(taken_back, "a slot taken back")
    assert (testbed.engine.reaper.commands_republished, testbed.engine.reaper.frames_republished) == (1, 1)
    (again,) = await dispatch.claim("second", 1, 0)
    every = list(range(0, ROWS, FRAME_ROWS))
    assert await work_off(dispatch, again, "second") == [(0, 2), *((first, 1) for first in every[1:])]
    with pytest.raises(LeaseLost):
        await dispatch.commit_frame(grant, frame, FrameReport(row_count=3), worker="first", take_next=False)
    await assert_all_rows(testbed, grant.execution_id)


async def test_a_slot_that_is_given_back_gives_its_frame_back(testbed: EngineTestbed) -> None:
    dispatch, grant, _ = await slot_of(testbed, LONG)
    again = await given_back(dispatch, grant)
    assert (await work_off(dispatch, again, "second"))[0] == (0, 2)
    await assert_all_rows(testbed, grant.execution_id)


async def test_a_slot_that_was_taken_away_gets_no_frame_any_more(testbed: EngineTestbed) -> None:
    dispatch, grant, _ = await slot_of(testbed, SLOT)
    await until(testbed.engine.reaper.sweep, "a slot taken back")
    (again,) = await dispatch.claim("second", 1, 0)
    with pytest.raises(LeaseLost):
        await dispatch.next_frame(grant, "first")
    await work_off(dispatch, again, "second")
    await assert_all_rows(testbed, grant.execution_id)


async def test_a_loop_does_not_end_while_a_frame_of_it_is_open(testbed: EngineTestbed) -> None:
    """A frame that was lost while its slot was kept is nobody's for a while, and its rows are not forgotten."""
    dispatch, grant, frame = await slot_of(testbed, LONG)
    assert await work_but_the_first(dispatch, grant) == ROWS - FRAME_ROWS
    report = CommandEnded(command_id=grant.command_id, attempt=grant.attempt, status="ok")
    with pytest.raises(NoetlError) as refused:
        await dispatch.complete(grant, report, worker="first", take_next=False)
    assert refused.value.disposition == "superseded"
    (again,) = await dispatch.claim("second", 1, 0)
    assert await work_off(dispatch, again, "second") == [(frame.first_index, 2)]
    await assert_all_rows(testbed, grant.execution_id)


async def test_a_fan_out_that_failed_fast_ends_though_a_shard_is_left(testbed: EngineTestbed) -> None:
    loop = "{in: [1, 2, 3], iterator: n, spec: {mode: fanout, max_in_flight: 2, fanout: {fail_fast: true}}}"
    execution_id = await testbed.start(
        playbook("fast", f"  - step: each\n    loop: {loop}\n    tool: {{kind: noop}}\n")
    )
    dispatch = testbed.engine.dispatch(testbed.scope)
    one, other = await dispatch.claim("first", 2, 0)
    frames = [await dispatch.next_frame(grant, "first") for grant in (one, other)]
    assert frames[1] is not None
    failed = FrameReport(row_count=1, failed_count=1, errors=[{"message": "refused"}])
    assert await dispatch.commit_frame(other, frames[1], failed, worker="first", take_next=True) is None
    for grant in (other, await given_back(dispatch, one)):
        assert await dispatch.next_frame(grant, "second") is None
        report = CommandEnded(command_id=grant.command_id, attempt=grant.attempt, status="ok")
        await dispatch.complete(grant, report, worker=grant.worker, take_next=False)
    assert (await testbed.finished(execution_id)).status == "FAILED"
    await testbed.assert_clean()


async def given_back(dispatch: LocalDispatch, grant: CommandGrant) -> CommandGrant:
    """Let a slot change hands."""
    await dispatch.give_back(grant, "the database was away", delay_seconds=0)
    (again,) = await dispatch.claim("second", 1, 0)
    return again


async def work_but_the_first(dispatch: LocalDispatch, grant: CommandGrant) -> int:
    """Work off the frames a slot is given, and return how many rows they had."""
    rows = 0
    frame = await dispatch.next_frame(grant, "first")
    while frame is not None:
        rows += frame.row_count
        report = FrameReport(row_count=frame.row_count)
        frame = await dispatch.commit_frame(grant, frame, report, worker="first", take_next=True)
    return rows
