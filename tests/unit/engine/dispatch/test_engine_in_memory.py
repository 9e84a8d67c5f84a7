"""The whole engine in memory, without any server: lost workers, cancelled families, forgotten children, and two engines.

After each test the ledger's whole history folds to the rows that stand.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noetl.engine.dispatch.grants import CommandGrant
from noetl.engine.dispatch.lost_attempts import MAX_ATTEMPTS
from noetl.engine.plan.decide import COMMAND_LEASE_SECONDS
from noetl.engine.plan.trigger import CommandEnded
from noetl.errors import LeaseLost
from noetl.testing.engines.memory import MemoryPlaybooks, open_memory_playbooks
from noetl.testing.engines.playbook_runs import playbook

ONE = playbook("workflow: [{step: only, tool: {kind: python, code: 'result = 7'}}]")
EACH = playbook("""
workload: {rows: [0, 1, 2, 3, 4, 5, 6]}
workflow:
  - step: each
    loop: {in: "{{ rows }}", iterator: n, spec: {mode: parallel, max_in_flight: 1, frame: {max_rows: 3}}}
    tool: {kind: python, input: {n: "{{ n }}"}, code: result = n * n}
""")
CHILD = playbook(
    "workload: {n: 1}\nworkflow: [{step: work, tool: {kind: python, input: {n: '{{ n }}'}, code: \"result = {'n': n + 1}\"}}]",
    "tests/child",
)
PARENT = playbook("""
workflow:
  - step: ask
    tool: {kind: playbook, path: tests/child, input: {n: 5}, wait: true}
    next: {arcs: [{step: after}]}
  - step: after
    tool: {kind: python, input: {n: "{{ ask.n }}"}, code: result = n * 10}
""")


@pytest.fixture
async def playbooks(tmp_path: Path) -> AsyncIterator[MemoryPlaybooks]:
    async with open_memory_playbooks(tmp_path) as playbooks:
        yield playbooks


async def kinds(playbooks: MemoryPlaybooks, execution_id: int) -> Counter[str]:
    return Counter(event["event_type"] for event in await playbooks.events(execution_id))


async def taken(playbooks: MemoryPlaybooks, worker: str = "gone") -> CommandGrant:
    """Lease the one command that waits, for a worker that is never heard of again."""
    (grant,) = await playbooks.engine.dispatch(playbooks.scope).claim(worker, 1, 0.0)
    return grant


def open_rows(playbooks: MemoryPlaybooks) -> list[int]:
    tables = ("execution_head", "command", "stage", "frame")
    return [len(playbooks.ledger.work.rows(playbooks.scope, table)) for table in tables]


async def test_steps_branches_and_loops_run_to_their_end(playbooks: MemoryPlaybooks) -> None:
    state = await playbooks.run(
        playbook("""
        workload: {rows: [1, 2, 3, 4, 5]}
        workflow:
          - step: first
            tool: {kind: python, input: {rows: "{{ rows }}"}, code: "result = {'many': len(rows)}"}
            next:
              spec: {mode: inclusive}
              arcs:
                - {step: few, when: "{{ first.many < 3 }}"}
                - {step: each, when: "{{ first.many >= 3 }}"}
                - {step: beside, when: "{{ first.many == 5 }}"}
          - step: few
            tool: {kind: noop}
          - step: beside
            tool: {kind: python, code: result = 'beside'}
          - step: each
            loop: {in: "{{ rows }}", iterator: n, spec: {mode: fanout, max_in_flight: 3}}
            tool: {kind: python, input: {n: "{{ n }}"}, code: result = n + 1}
        """)
    )

    assert state.status == "COMPLETED", state.error
    assert state.results["each"].data["results"] == [2, 3, 4, 5, 6]
    assert state.results["beside"].data == "beside"
    assert "few" not in state.results
    assert open_rows(playbooks) == [0, 0, 0, 0]


async def test_a_task_that_fails_is_tried_again(playbooks: MemoryPlaybooks, tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    state = await playbooks.run(
        playbook("""
        workload: {tries: ""}
        workflow:
          - step: shaky
            tool:
              kind: shell
              command: "echo again >> {{ tries }}; test $(wc -l < {{ tries }}) -eq 3"
              spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 5, backoff: none}}]}}
        """),
        {"tries": str(tries)},
    )
    assert state.status == "COMPLETED", state.error
    assert tries.read_text() == "again\n" * 3


async def test_a_command_whose_worker_was_lost_is_taken_back(playbooks: MemoryPlaybooks) -> None:
    """INV-27."""
    state = await playbooks.begin(ONE)
    lost = await taken(playbooks)
    reaper = playbooks.engine.reaper
    playbooks.clock.pass_by(COMMAND_LEASE_SECONDS - 1)
    assert await reaper.sweep() == 0, "the lease still lasts"
    playbooks.clock.pass_by(2)
    assert (await reaper.sweep(), reaper.commands_republished) == (1, 1)
    assert await reaper.sweep() == 0

    await playbooks.worker()
    assert (await playbooks.finished(state.execution_id)).status == "COMPLETED"
    found = await kinds(playbooks, state.execution_id)
    assert (found["command.abandoned"], found["command.claimed"], found["command.completed"]) == (1, 2, 1)
    late = CommandEnded(command_id=lost.command_id, attempt=lost.attempt, status="ok", data=1)
    with pytest.raises(LeaseLost):
        await playbooks.engine.dispatch(playbooks.scope).complete(lost, late, worker="gone", take_next=False)
    assert await kinds(playbooks, state.execution_id) == found, "a late report changes nothing"


async def test_a_report_under_a_lease_that_ran_out_is_refused(playbooks: MemoryPlaybooks) -> None:
    """INV-27."""
    state = await playbooks.begin(ONE)
    lost = await taken(playbooks)
    playbooks.clock.pass_by(COMMAND_LEASE_SECONDS + 1)
    late = CommandEnded(command_id=lost.command_id, attempt=lost.attempt, status="ok", data=1)
    with pytest.raises(LeaseLost):
        await playbooks.engine.dispatch(playbooks.scope).complete(lost, late, worker="gone", take_next=False)
    assert "command.completed" not in await kinds(playbooks, state.execution_id)


async def test_heartbeats_keep_a_lease_from_the_reaper(playbooks: MemoryPlaybooks) -> None:
    await playbooks.begin(ONE)
    grant = await taken(playbooks, "busy")
    dispatch = playbooks.engine.dispatch(playbooks.scope)
    for _ in range(5):
        playbooks.clock.pass_by(COMMAND_LEASE_SECONDS * 0.9)
        assert await dispatch.heartbeat([grant.lease]) == []
        assert await playbooks.engine.reaper.sweep() == 0
    playbooks.clock.pass_by(COMMAND_LEASE_SECONDS + 1)
    assert await dispatch.heartbeat([grant.lease]) == [grant.lease]
    assert await dispatch.lost([grant.lease]) == [], "it ran out, and nobody has it yet"
    assert await playbooks.engine.reaper.sweep() == 1
    assert await dispatch.lost([grant.lease]) == [grant.lease]


async def test_a_command_that_is_lost_again_and_again_fails(playbooks: MemoryPlaybooks) -> None:
    state = await playbooks.begin(ONE)
    for number in range(MAX_ATTEMPTS):
        assert (await taken(playbooks, f"w{number}")).attempt == number + 1
        playbooks.clock.pass_by(COMMAND_LEASE_SECONDS + 1)
        assert await playbooks.engine.reaper.sweep() == 1
    ended = await playbooks.finished(state.execution_id)
    assert ended.status == "FAILED"
    assert f"its worker was lost {MAX_ATTEMPTS} times, the last one was w4" in (ended.error or "")
    assert open_rows(playbooks) == [0, 0, 0, 0]


async def test_a_command_that_was_given_back_waits_its_time(playbooks: MemoryPlaybooks) -> None:
    state = await playbooks.begin(ONE)
    dispatch = playbooks.engine.dispatch(playbooks.scope)
    await dispatch.give_back(await taken(playbooks), "not now", delay_seconds=600.0)
    assert await dispatch.claim("w", 1, 0.0) == []
    playbooks.clock.pass_by(601)
    await playbooks.worker()
    assert (await playbooks.finished(state.execution_id)).status == "COMPLETED"


async def test_frames_of_a_lost_slot_are_worked_off_by_the_next(playbooks: MemoryPlaybooks) -> None:
    """INV-27, INV-36: rows of the frame in hand are done again, those that are committed are not."""
    state = await playbooks.begin(EACH)
    slot, dispatch = await taken(playbooks), playbooks.engine.dispatch(playbooks.scope)
    frame = await dispatch.next_frame(slot, "gone")
    assert frame is not None
    assert (frame.first_index, frame.row_count) == (0, 3)
    await dispatch.checkpoint(frame, {"done": 0})
    playbooks.clock.pass_by(3600)
    assert await playbooks.engine.reaper.sweep() >= 1
    assert playbooks.engine.reaper.frames_republished == 1

    await playbooks.worker()
    ended = await playbooks.finished(state.execution_id)
    assert ended.status == "COMPLETED", ended.error
    assert ended.results["each"].data["results"] == [n * n for n in range(7)]
    found = await kinds(playbooks, state.execution_id)
    assert (found["frame.dispatched"], found["frame.abandoned"], found["frame.committed"]) == (4, 1, 3)
    with pytest.raises(LeaseLost):
        await dispatch.checkpoint(frame, {"done": 1})


async def test_cancelling_a_parent_cancels_what_it_waits_for(playbooks: MemoryPlaybooks) -> None:
    await playbooks.register(CHILD)
    parent = await playbooks.begin(PARENT)
    await playbooks.engine.children.settled()
    assert open_rows(playbooks) == [2, 2, 0, 0]
    cancelled = await playbooks.engine.cancel(playbooks.scope, parent.execution_id, reason="enough", by="tests")
    assert cancelled[0] == parent.execution_id
    assert len(cancelled) == 2
    child = await playbooks.finished(cancelled[1])
    assert (child.status, child.parent_execution_id) == ("CANCELLED", parent.execution_id)
    assert open_rows(playbooks) == [0, 0, 0, 0]
    assert await playbooks.engine.dispatch(playbooks.scope).claim("w", 8, 0.0) == []


@pytest.mark.parametrize("lost", ["start", "end"])
async def test_a_child_that_its_process_forgot_is_seen_to_by_the_reaper(playbooks: MemoryPlaybooks, lost: str) -> None:
    """The process that issued the command died before it started the child, or the child's before it told the parent."""
    await playbooks.register(CHILD)
    executions = playbooks.engine.executions
    if lost == "start":
        executions.on_child = lambda scope, state, fact: None
    parent = await playbooks.begin(PARENT)
    if lost == "end":
        gone = asyncio.Event()
        executions.on_ended = lambda scope, state: gone.set()
        await playbooks.worker()
        await gone.wait()
    assert await playbooks.engine.reaper.sweep() == 0, "whoever issued it may still be at it"
    playbooks.clock.pass_by(60)
    assert await playbooks.engine.reaper.sweep() >= 1
    await playbooks.worker()
    ended = await playbooks.finished(parent.execution_id)
    assert (ended.status, ended.results["after"].data) == ("COMPLETED", 60)


async def test_a_child_that_outlived_its_cancelled_parent_is_stopped(playbooks: MemoryPlaybooks) -> None:
    await playbooks.register(CHILD)
    parent = await playbooks.begin(PARENT)
    await playbooks.engine.children.settled()
    scope = playbooks.scope
    # Its process died between the end of the parent and that of the child.
    kept, playbooks.engine._cascade._below = playbooks.engine._cascade._below, _nothing  # type: ignore[method-assign]
    await playbooks.engine.cancel(scope, parent.execution_id, reason="enough", by="tests")
    playbooks.engine._cascade._below = kept  # type: ignore[method-assign]
    assert open_rows(playbooks) == [1, 1, 0, 0]
    playbooks.clock.pass_by(60)
    assert await playbooks.engine.reaper.sweep() == 1
    assert open_rows(playbooks) == [0, 0, 0, 0]


async def _nothing(*_: object, **__: object) -> list[int]:
    return []


async def test_a_key_stands_for_one_execution(playbooks: MemoryPlaybooks) -> None:
    entry = await playbooks.register(ONE)
    first, second = [
        await playbooks.engine.start(playbooks.scope, entry, requested_by="tests", key="monday") for _ in range(2)
    ]
    assert first.execution_id == second.execution_id
    await playbooks.worker()
    assert (await playbooks.finished(first.execution_id)).status == "COMPLETED"


async def test_two_engines_share_one_ledger(playbooks: MemoryPlaybooks) -> None:
    """INV-28: what both decide about one execution is decided once."""
    async with playbooks.beside() as other:
        await playbooks.worker(2)
        await other.worker(2)
        begun = [await playbooks.begin(EACH, {"rows": list(range(20))}) for _ in range(4)]
        ended = [await playbooks.finished(one.execution_id) for one in begun]
    assert [state.status for state in ended] == ["COMPLETED"] * 4
    for state in ended:
        assert state.results["each"].data["results"] == [n * n for n in range(20)]
        found = await kinds(playbooks, state.execution_id)
        assert (found["loop.done"], found["playbook.completed"], found["frame.committed"]) == (1, 1, 7)
