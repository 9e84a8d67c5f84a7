"""Slots of loops on the engine in memory: how many losses they stand, what becomes of rows nobody tried, and handing back.

After each test the ledger's whole history folds to the rows that stand.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noetl.engine.dispatch.grants import CommandGrant, FrameGrant, FrameReport
from noetl.engine.dispatch.local import LocalDispatch
from noetl.engine.dispatch.lost_attempts import MAX_ATTEMPTS
from noetl.engine.plan.trigger import CommandEnded
from noetl.testing.engines.memory import MemoryPlaybooks, open_memory_playbooks
from noetl.testing.engines.playbook_runs import playbook

ROWS = 24


def each(slots: int = 1, frame: str = "{max_rows: 2}", mode: str = "parallel") -> str:
    return playbook(f"""
    workload: {{rows: {list(range(ROWS))}}}
    workflow:
      - step: each
        loop: {{in: "{{{{ rows }}}}", iterator: n, spec: {{mode: {mode}, max_in_flight: {slots}, frame: {frame}}}}}
        tool: {{kind: python, input: {{n: "{{{{ n }}}}"}}, code: result = n}}
    """)


@pytest.fixture
async def playbooks(tmp_path: Path) -> AsyncIterator[MemoryPlaybooks]:
    async with open_memory_playbooks(tmp_path) as playbooks:
        yield playbooks


async def kinds(playbooks: MemoryPlaybooks, execution_id: int) -> Counter[str]:
    return Counter(event["event_type"] for event in await playbooks.events(execution_id))


async def claimed(dispatch: LocalDispatch, worker: str = "w") -> CommandGrant:
    (grant,) = await dispatch.claim(worker, 1, 0.0)
    return grant


async def frame_of(dispatch: LocalDispatch, slot: CommandGrant) -> FrameGrant:
    frame = await dispatch.next_frame(slot, "w")
    assert frame is not None
    return frame


async def commit(dispatch: LocalDispatch, slot: CommandGrant, frame: FrameGrant) -> None:
    report = FrameReport(row_count=frame.row_count)
    await dispatch.commit_frame(slot, frame, report, worker="w", take_next=False)


async def lose(playbooks: MemoryPlaybooks) -> None:
    """Let every lease run out and be taken back."""
    playbooks.clock.pass_by(3600)
    assert await playbooks.engine.reaper.sweep() >= 1


async def test_a_slot_that_makes_progress_outlives_any_number_of_losses(playbooks: MemoryPlaybooks) -> None:
    """INV-179: between two losses of the slot it commits one frame, and no row is given up."""
    state = await playbooks.begin(each())
    dispatch = playbooks.engine.dispatch(playbooks.scope)
    for _ in range(ROWS // 2):
        slot = await claimed(dispatch)
        await commit(dispatch, slot, await frame_of(dispatch, slot))
        if await dispatch.next_frame(slot, "w") is None:
            break
        await lose(playbooks)
    report = CommandEnded(command_id=slot.command_id, attempt=slot.attempt, status="ok")
    await dispatch.complete(slot, report, worker="w", take_next=False)
    ended = await playbooks.finished(state.execution_id)
    assert (ended.status, ended.results["each"].data["completed"]) == ("COMPLETED", ROWS), ended.error
    assert (await kinds(playbooks, state.execution_id))["command.abandoned"] == ROWS // 2 - 1 > 2 * MAX_ATTEMPTS


@pytest.mark.parametrize("progress", [0, 1])
async def test_a_slot_that_makes_no_progress_fails_and_its_rows_are_said_to_be_untried(
    playbooks: MemoryPlaybooks, progress: int
) -> None:
    """INV-179, INV-180: rows that nobody was given are never failed rows, and the error says how many they are."""
    state = await playbooks.begin(each())
    dispatch = playbooks.engine.dispatch(playbooks.scope)
    for number in range(MAX_ATTEMPTS):
        slot = await claimed(dispatch, f"w{number}")
        if number < progress:
            await commit(dispatch, slot, await frame_of(dispatch, slot))
        await lose(playbooks)
    ended = await playbooks.finished(state.execution_id)
    untried = ROWS - 2 * progress
    assert ended.status == "FAILED"
    assert ended.error == (
        f"{untried} of {ROWS} rows were never tried: its worker was lost 5 times, the last one was w{number},"
        " and no frame was committed between"
    )
    (done,) = await playbooks.events(state.execution_id, "loop.done")
    counts = {"total": ROWS, "completed": 2 * progress, "failed": 0, "not_tried": untried}
    assert done["result"] == {"status": "error", "context": counts}
    assert ended.results["each"].data["not_tried"] == untried


async def test_the_bound_of_a_frame_is_its_own(playbooks: MemoryPlaybooks) -> None:
    """INV-179: a frame that may be tried seven times is, and the losses of its slot do not cut that short."""
    state = await playbooks.begin(each(frame="{max_rows: 2, max_attempts: 7}"))
    dispatch = playbooks.engine.dispatch(playbooks.scope)
    for attempt in range(1, 8):
        slot = await claimed(dispatch)
        frame = await frame_of(dispatch, slot)
        assert (frame.first_index, frame.attempt) == (0, attempt)
        await lose(playbooks)
    ended = await playbooks.finished(state.execution_id)
    assert (ended.error or "").startswith(f"2 of {ROWS} rows failed and {ROWS - 2} of {ROWS} rows were never tried: ")
    data = ended.results["each"].data
    assert (data["completed"], data["failed"], data["not_tried"]) == (0, 2, ROWS - 2)


async def test_rows_of_a_slot_that_gave_up_are_done_by_the_others(playbooks: MemoryPlaybooks) -> None:
    """INV-180."""
    state = await playbooks.begin(each(slots=2))
    dispatch = playbooks.engine.dispatch(playbooks.scope)
    bad, good = await dispatch.claim("w", 2, 0.0)
    for _ in range(MAX_ATTEMPTS):
        await dispatch.give_back(bad, "the database was away", delay_seconds=0.0)
        if (found := await dispatch.claim("w", 1, 0.0)) == []:
            break
        (bad,) = found
    assert (await kinds(playbooks, state.execution_id))["command.failed"] == 1
    frame: FrameGrant | None = await frame_of(dispatch, good)
    while frame is not None:
        report = FrameReport(row_count=frame.row_count)
        frame = await dispatch.commit_frame(good, frame, report, worker="w", take_next=True)
    report_of = CommandEnded(command_id=good.command_id, attempt=good.attempt, status="ok")
    await dispatch.complete(good, report_of, worker="w", take_next=False)
    ended = await playbooks.finished(state.execution_id)
    assert (ended.status, ended.results["each"].data["completed"]) == ("COMPLETED", ROWS), ended.error


async def test_what_is_handed_back_costs_no_attempt(playbooks: MemoryPlaybooks) -> None:
    """INV-181: neither the command's, however often, nor the last one of a frame that nobody began."""
    state = await playbooks.begin(each(frame="{max_rows: 2, max_attempts: 1}"))
    dispatch = playbooks.engine.dispatch(playbooks.scope)
    for number in range(3 * MAX_ATTEMPTS):
        slot = await claimed(dispatch)
        assert slot.attempt == number + 1
        await frame_of(dispatch, slot)
        await dispatch.give_back(slot, "its worker stopped", delay_seconds=0.0, counts=False)
    await playbooks.worker()
    ended = await playbooks.finished(state.execution_id)
    assert (ended.status, ended.results["each"].data["completed"]) == ("COMPLETED", ROWS), ended.error
    found = await kinds(playbooks, state.execution_id)
    assert (found["command.returned"], found["command.attempt_failed"], found["frame.failed"]) == (15, 0, 0)


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_a_worker_that_stops_hands_its_slot_back_after_its_frame(
    playbooks: MemoryPlaybooks, tmp_path: Path, mode: str
) -> None:
    """INV-181: the frame in hand is finished, the next is another worker's, and nothing counts as lost."""
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    os.mkfifo(begun)
    os.mkfifo(gate)
    state = await playbooks.begin(
        playbook(f"""
        workflow:
          - step: each
            loop: {{in: [0, 1, 2, 3, 4, 5], iterator: n, spec: {{mode: {mode}, max_in_flight: 1, frame: {{max_rows: 2}}}}}}
            tool: {{kind: shell, command: "[ {{{{ n }}}} -ne 2 ] || {{ echo > {begun}; cat {gate}; }}"}}
        """)
    )
    worker = await playbooks.worker(slots=1)
    await asyncio.to_thread(begun.read_text)
    await worker.stop()
    await asyncio.to_thread(gate.write_text, "go on")
    await playbooks.close()
    found = await kinds(playbooks, state.execution_id)
    assert (found["frame.committed"], found["command.returned"], found["command.completed"]) == (2, 1, 0)
    async with playbooks.beside() as other:
        await other.worker()
        ended = await other.finished(state.execution_id)
    assert (ended.status, ended.results["each"].data["completed"]) == ("COMPLETED", 6), ended.error
    found = await kinds(playbooks, state.execution_id)
    assert found["command.abandoned"] == found["command.attempt_failed"] == found["frame.abandoned"] == 0
    assert (found["frame.dispatched"], found["command.claimed"]) == (3, 2)


async def test_what_is_left_of_a_full_frame_is_handed_back_with_the_slot(
    playbooks: MemoryPlaybooks, tmp_path: Path
) -> None:
    """INV-181: a frame that is full before its last row leaves the rest, which another worker goes on with."""
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    os.mkfifo(begun)
    os.mkfifo(gate)
    state = await playbooks.begin(
        playbook(f"""
        workflow:
          - step: each
            loop: {{in: [0, 1, 2, 3], iterator: n, spec: {{mode: parallel, max_in_flight: 1, frame: {{max_rows: 4, max_bytes: 1, max_attempts: 1}}}}}}
            tool: {{kind: shell, command: "[ {{{{ n }}}} -ne 0 ] || {{ echo > {begun}; cat {gate}; }}; echo {{{{ n }}}}"}}
        """)
    )
    worker = await playbooks.worker(slots=1)
    await asyncio.to_thread(begun.read_text)
    await worker.stop()
    await asyncio.to_thread(gate.write_text, "go on")
    await playbooks.close()
    found = await kinds(playbooks, state.execution_id)
    assert (found["frame.committed"], found["command.returned"], found["frame.failed"]) == (1, 1, 0)
    async with playbooks.beside() as other:
        await other.worker()
        ended = await other.finished(state.execution_id)
    assert (ended.status, ended.results["each"].data["completed"]) == ("COMPLETED", 4), ended.error


async def test_a_slot_whose_frames_fail_of_their_work_makes_progress(playbooks: MemoryPlaybooks) -> None:
    """INV-179: a loop whose every frame fails tries them all, however often its worker is lost between."""
    state = await playbooks.begin(each(frame="{max_rows: 2, max_attempts: 1}"))
    dispatch = playbooks.engine.dispatch(playbooks.scope)
    for _ in range(ROWS // 2):
        slot = await claimed(dispatch)
        frame = await frame_of(dispatch, slot)
        await dispatch.fail_frame(frame, {"kind": "runtime", "message": "it broke"}, max_attempts=1, worker="w")
        await lose(playbooks)
    slot = await claimed(dispatch)
    assert await dispatch.next_frame(slot, "w") is None
    report = CommandEnded(command_id=slot.command_id, attempt=slot.attempt, status="ok")
    await dispatch.complete(slot, report, worker="w", take_next=False)
    ended = await playbooks.finished(state.execution_id)
    assert (ended.status, f"{ROWS} of {ROWS} rows failed" in (ended.error or "")) == ("FAILED", True), ended.error
    assert "never tried" not in (ended.error or "")
