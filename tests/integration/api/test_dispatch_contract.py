"""The same work through the engine itself and over HTTP: a worker cannot tell which one it talks to."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.integration.api.serving import CALLING, HOME, LOOP, TWO_STEPS, Server

from noetl.engine.dispatch.engine import Engine
from noetl.engine.dispatch.grants import Child, CommandGrant, FrameGrant, FrameReport
from noetl.engine.dispatch.port import Dispatch
from noetl.engine.dispatch.remote import RemoteDispatch
from noetl.engine.plan.locality import Place, Wish
from noetl.engine.plan.trigger import CommandEnded
from noetl.errors import ChildTooDeep, Conflict, InputError, LeaseLost, NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.codec import JSON, encode_json
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.language.alert.rule import Condition
from noetl.model.ids import parse_id
from noetl.runtime.locality import process_locator
from noetl.runtime.settings.declaration import Runtime
from noetl.services.alerts.conditions import look

CURSOR = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: drain, path: tests/drain}
workflow:
  - step: drain
    loop:
      cursor: {kind: postgres, auth: pg, claim: "UPDATE job SET taken = true RETURNING id"}
      iterator: job
      spec: {mode: cursor, max_in_flight: 1, frame: {max_rows: 10}}
    tool: {kind: python, code: "def main(x):\\n    return x", input: {x: "{{ iter.job.id }}"}}
"""

PLACES = (("n1", "z1"), ("n2", "z1"), ("n3", "z2"))
"""Of nodes, each with its zone."""


@pytest.fixture(params=["local", "remote"])
async def dispatch(request: pytest.FixtureRequest, server: Server, engine: Engine) -> AsyncIterator[Dispatch]:
    """The dispatch under test."""
    if request.param == "local":
        yield engine.dispatch(HOME)
        return
    remote = RemoteDispatch(server.url, patience_seconds=5.0)
    yield remote
    await remote.close()


def done(grant: CommandGrant, data: object = None, status: str = "ok") -> CommandEnded:
    """Report a command as done."""
    return CommandEnded(command_id=grant.command_id, attempt=grant.attempt, status=status, data=data)  # type: ignore[arg-type]


async def started(server: Server, source: str, path: str) -> int:
    """Register and start."""
    await server.register(source)
    return parse_id(await server.start(path))


async def claimed(dispatch: Dispatch) -> CommandGrant:
    """Claim one command."""
    (grant,) = await dispatch.claim("w1", 1, 5.0)
    return grant


async def test_a_command_is_claimed_completed_and_the_next_one_taken(server: Server, dispatch: Dispatch) -> None:
    execution_id = await started(server, TWO_STEPS, "tests/two")
    first = await claimed(dispatch)
    assert (first.execution_id, first.step, first.attempt) == (execution_id, "first", 1)
    assert first.context.workload["size"] == 3
    assert (await dispatch.playbook(first.catalog_id)).path == "tests/two"
    second = await dispatch.complete(first, done(first, {"size": 3}), worker="w1", take_next=True)
    assert second is not None
    assert (second.step, second.context.ctx) == ("second", {"seen": 3})
    assert second.context.results["first"].data == {"size": 3}
    assert await dispatch.complete(second, done(second, 1), worker="w1", take_next=True) is None
    assert (await server.call("GET", f"/api/executions/{execution_id}"))["status"] == "COMPLETED"


async def test_a_payload_is_found_by_its_locator(
    server: Server, dispatch: Dispatch, payloads: MemoryPayloadStore
) -> None:
    await started(server, TWO_STEPS, "tests/two")
    first = await claimed(dispatch)
    ref = await payloads.store(HOME, encode_json({"size": 3, "rest": "x" * 100_000}), JSON)
    with pytest.raises(NotFound, match="no event refers to"):
        await dispatch.reference(ref.uri)
    await dispatch.complete(first, msgspec.structs.replace(done(first), ref=ref), worker="w1", take_next=False)
    assert await dispatch.reference(ref.uri) == ref
    with pytest.raises(InputError, match="not the locator of a payload of this organization"):
        await dispatch.reference(ref.uri.replace("/org/default/", "/org/other/"))


async def test_a_claim_waits_for_work(server: Server, dispatch: Dispatch) -> None:
    assert await dispatch.claim("w1", 3, 0.0) == []
    waiting = asyncio.create_task(dispatch.claim("w1", 3, 20.0))
    await started(server, TWO_STEPS, "tests/two")
    (grant,) = await waiting
    assert grant.step == "first"


async def test_a_claim_takes_no_more_slots_of_loops_than_it_asks_for(server: Server, dispatch: Dispatch) -> None:
    await started(server, LOOP.replace("max_in_flight: 1", "max_in_flight: 3"), "tests/loop")
    await started(server, TWO_STEPS, "tests/two")
    steps = [grant.step for grant in await dispatch.claim("w1", 10, 0.0, loops=0)]
    assert steps == ["first"]
    assert [grant.step for grant in await dispatch.claim("w1", 10, 0.0, loops=2)] == ["each", "each"]
    waiting = asyncio.create_task(dispatch.claim("w2", 10, 20.0, loops=0))
    await server.start("tests/loop")
    await server.start("tests/two")
    assert [grant.step for grant in await waiting] == ["first"]
    assert [grant.step for grant in await dispatch.claim("w1", 10, 0.0)] == ["each"] * 4


async def test_a_claim_that_stays_near_takes_what_lies_where_it_wishes(
    server: Server, dispatch: Dispatch, payloads: MemoryPayloadStore
) -> None:
    await started(server, TWO_STEPS, "tests/two")
    (first,) = await dispatch.claim("n1/1", 1, 5.0)
    ref = await payloads.store(HOME, encode_json({"size": 3, "rest": "x" * 100_000}), JSON)
    end = msgspec.structs.replace(done(first), ref=ref, near=Place("n9"))
    assert await dispatch.complete(first, end, worker="n1/1", take_next=False) is None
    for elsewhere in ("n2", "n9"):
        assert await dispatch.claim("n2/2", 1, 0.0, Wish(prefer_node=elsewhere, max_distance="node")) == []
    (second,) = await dispatch.claim("n2/2", 1, 0.0, Wish(prefer_node="n1", max_distance="node"))
    assert second.step == "second"


async def test_what_is_given_back_is_handed_out_again(server: Server, dispatch: Dispatch) -> None:
    await started(server, TWO_STEPS, "tests/two")
    first = await claimed(dispatch)
    await dispatch.give_back(first, "the node goes away", delay_seconds=0)
    again = await claimed(dispatch)
    assert (again.command_id, again.attempt) == (first.command_id, 2)
    assert again.token != first.token


async def test_what_is_handed_back_or_makes_progress_is_never_used_up(
    server: Server, dispatch: Dispatch, database: Database
) -> None:
    """INV-179, INV-181, INV-182: more losses than a slot stands, each after a frame, and one that is only handed back."""
    execution_id = await started(server, LOOP.replace("frame: {max_rows: 2}", "frame: {max_rows: 1}"), "tests/loop")
    for number in range(1, 6):
        slot = await claimed(dispatch)
        assert slot.attempt == number
        frame = await _frame(dispatch, slot)
        report = FrameReport(row_count=frame.row_count)
        assert await dispatch.commit_frame(slot, frame, report, worker="w1", take_next=False) is None
        await dispatch.give_back(slot, "lost", delay_seconds=0)
    for number in range(6, 14):
        slot = await claimed(dispatch)
        assert slot.attempt == number
        await dispatch.stalled(slot, "payload store", "it is away", 1)
        async with database.transaction(HOME) as connection:
            away = (await look(connection, Condition(on="platform_away", later_than=0.0))).found
            assert [one.subject for one in away] == ["payload store"]
            assert (await look(connection, Condition(on="platform_away"))).found == ()
        await dispatch.stalled(slot, "payload store", None, 2)
        async with database.transaction(HOME) as connection:
            assert (await look(connection, Condition(on="platform_away", later_than=0.0))).found == ()
        await dispatch.give_back(slot, "its worker stopped", delay_seconds=0, counts=False)
    slot = await claimed(dispatch)
    assert await dispatch.next_frame(slot, "w1") is None
    await dispatch.complete(slot, done(slot), worker="w1", take_next=False)
    ended = await server.call("GET", f"/api/executions/{execution_id}")
    assert ended["status"] == "COMPLETED"


async def test_a_lost_lease_is_told_and_nothing_is_written(server: Server, dispatch: Dispatch) -> None:
    execution_id = await started(server, TWO_STEPS, "tests/two")
    first = await claimed(dispatch)
    assert await dispatch.heartbeat([first.lease]) == []
    await dispatch.give_back(first, "goes away", delay_seconds=0)
    again = await claimed(dispatch)
    assert await dispatch.heartbeat([first.lease, again.lease]) == [first.lease]
    with pytest.raises(LeaseLost):
        await dispatch.complete(first, done(first), worker="w1", take_next=False)
    stolen = msgspec.structs.replace(again, token=str(uuid.uuid4()))
    with pytest.raises(LeaseLost):
        await dispatch.give_back(stolen, "not mine", delay_seconds=0)
    assert (await server.call("GET", f"/api/executions/{execution_id}"))["active_steps"] == ["first"]


async def test_a_completed_command_cannot_be_completed_by_another_lease(server: Server, dispatch: Dispatch) -> None:
    await started(server, TWO_STEPS, "tests/two")
    first = await claimed(dispatch)
    await dispatch.complete(first, done(first, {"size": 3}), worker="w1", take_next=False)
    with pytest.raises(LeaseLost):
        await dispatch.complete(
            msgspec.structs.replace(first, token=str(uuid.uuid4())), done(first), worker="w1", take_next=False
        )


async def test_a_loop_is_worked_off_frame_by_frame(
    server: Server, dispatch: Dispatch, payloads: MemoryPayloadStore
) -> None:
    execution_id = await started(server, LOOP, "tests/loop")
    slot = await claimed(dispatch)
    assert slot.loop is not None
    assert (slot.loop.total, slot.loop.mode) == (5, "parallel")
    frame = await dispatch.next_frame(slot, "w1")
    windows = []
    while frame is not None:
        windows.append((frame.first_index, frame.row_count))
        assert await dispatch.heartbeat([frame.lease]) == []
        await dispatch.checkpoint(frame, {"done": 1})
        report = FrameReport(row_count=frame.row_count, ctx_writes={"last": frame.first_index})
        frame = await dispatch.commit_frame(slot, frame, report, worker="w1", take_next=True)
    assert windows == [(0, 2), (2, 2), (4, 1)]
    assert await dispatch.loop_ctx(slot) == {"last": 4}
    assert await dispatch.complete(slot, done(slot), worker="w1", take_next=True) is None
    assert (await server.call("GET", f"/api/executions/{execution_id}"))["status"] == "COMPLETED"


async def test_a_failed_frame_is_tried_again_by_another(server: Server, dispatch: Dispatch) -> None:
    await started(server, LOOP, "tests/loop")
    slot = await claimed(dispatch)
    frame = await _frame(dispatch, slot)
    await dispatch.checkpoint(frame, {"done": 1})
    await dispatch.fail_frame(frame, {"kind": "unknown", "message": "broke"}, max_attempts=3, worker="w1")
    again = await _frame(dispatch, slot)
    assert (again.frame_id, again.attempt, again.checkpoint) == (frame.frame_id, 2, {"done": 1})
    with pytest.raises(LeaseLost):
        await dispatch.commit_frame(slot, frame, FrameReport(row_count=2), worker="w1", take_next=True)
    with pytest.raises(LeaseLost):
        await dispatch.checkpoint(frame, {"done": 2})
    assert await dispatch.heartbeat([frame.lease]) == [frame.lease]


async def test_rows_claimed_elsewhere_become_a_frame(
    server: Server, dispatch: Dispatch, payloads: MemoryPayloadStore
) -> None:
    await started(server, CURSOR, "tests/drain")
    slot = await claimed(dispatch)
    rows = await payloads.store(HOME, b'[{"id":1},{"id":2}]', "application/json", rows=2)
    first = await dispatch.dispatch_rows(slot, "w1", rows, 2)
    second = await dispatch.dispatch_rows(slot, "w1", rows, 2)
    assert [(one.first_index, one.row_count, one.rows_ref) for one in (first, second)] == [(0, 2, rows), (2, 2, rows)]
    await dispatch.give_back(slot, "goes away", delay_seconds=0)
    with pytest.raises(LeaseLost):
        await dispatch.dispatch_rows(slot, "w1", rows, 2)


async def test_a_slot_that_ran_out_commits_what_it_holds_and_gets_no_more(
    server: Server, dispatch: Dispatch, database: Database
) -> None:
    await started(server, LOOP, "tests/loop")
    slot = await claimed(dispatch)
    first, second = await _frame(dispatch, slot), await _frame(dispatch, slot)
    async with database.transaction(HOME) as connection:
        await connection.execute("UPDATE noetl.command SET lease_until = now() - interval '1 second'")
    report = FrameReport(row_count=2)
    assert await dispatch.commit_frame(slot, first, report, worker="w1", take_next=False) is None
    with pytest.raises(LeaseLost):
        await dispatch.commit_frame(slot, second, report, worker="w1", take_next=True)
    stage = await server.call("GET", f"/api/stages/{first.stage_id}", status=200)
    assert (stage["rows_done"], stage["frames_open"], stage["frames_minted"]) == (4, 0, 2)


async def test_a_child_runs_once_and_its_end_comes_back(server: Server, dispatch: Dispatch) -> None:
    await started(server, CALLING, "tests/loop")
    slot = await claimed(dispatch)
    await server.register(TWO_STEPS)
    child = Child(path="tests/two", version=None, payload={"size": 7}, return_step="first", key="row/1")
    running = asyncio.create_task(dispatch.run_child(slot, child))
    first = await claimed(dispatch)
    second = await dispatch.complete(first, done(first, {"size": 7}), worker="w1", take_next=True)
    assert second is not None
    await dispatch.complete(second, done(second, 1), worker="w1", take_next=False)
    end = await running
    assert (end.execution_id, end.status, end.data) == (first.execution_id, "COMPLETED", {"size": 7})
    assert await dispatch.run_child(slot, child) == end


async def test_executions_that_have_ended_are_named(server: Server, dispatch: Dispatch) -> None:
    open_id = await started(server, LOOP, "tests/loop")
    ended_id = await started(server, TWO_STEPS, "tests/two")
    await server.services.engine.cancel(HOME, ended_id, reason="over", by="tests")
    assert await dispatch.ended([open_id, ended_id, 1]) == [ended_id, 1]
    assert await dispatch.ended([]) == []


async def test_a_child_that_does_not_exist_is_told(server: Server, dispatch: Dispatch) -> None:
    await started(server, CALLING, "tests/loop")
    slot = await claimed(dispatch)
    child = Child(path="tests/none", version=None, payload={}, return_step=None, key="row/1")
    with pytest.raises(NotFound):
        await dispatch.run_child(slot, child)
    with pytest.raises(NotFound):
        await dispatch.playbook("tests/none")


async def test_a_child_that_would_be_too_deep_is_refused_unless_it_is_there(server: Server, dispatch: Dispatch) -> None:
    """INV-140."""
    execution_id = await started(server, CALLING, "tests/loop")
    slot = await claimed(dispatch)
    await server.register(TWO_STEPS)
    child = Child(path="tests/two", version=None, payload={}, return_step=None, key="row/1", waits=False)
    end = await dispatch.run_child(slot, child)
    server.services.engine.executions.max_child_depth = 0
    assert await dispatch.run_child(slot, child) == end
    with pytest.raises(ChildTooDeep, match=r"tests/two is not started: .* 1 levels .*max_child_depth is 0") as refused:
        await dispatch.run_child(slot, msgspec.structs.replace(child, key="row/2"))
    assert refused.value.hint is not None
    state = await server.services.engine.executions.state(HOME, end.execution_id)
    assert (state.parent_execution_id, state.depth) == (execution_id, 1)


async def test_a_cancelled_execution_takes_its_work_back(server: Server, dispatch: Dispatch) -> None:
    execution_id = await started(server, LOOP, "tests/loop")
    slot = await claimed(dispatch)
    frame = await _frame(dispatch, slot)
    assert await dispatch.lost([slot.lease, frame.lease]) == []
    await server.call("POST", f"/api/executions/{execution_id}/cancel", status=200)
    assert await dispatch.lost([slot.lease, frame.lease]) == [slot.lease]
    assert set(await dispatch.heartbeat([slot.lease, frame.lease])) == {slot.lease, frame.lease}
    with pytest.raises(Conflict):
        await dispatch.commit_frame(slot, frame, FrameReport(row_count=2), worker="w1", take_next=False)


async def test_a_frame_that_was_given_up_goes_first_to_who_is_near_its_last_worker(
    server: Server, dispatch: Dispatch
) -> None:
    """INV-159."""
    await started(server, LOOP.replace("max_in_flight: 1", "max_in_flight: 3"), "tests/loop")
    slots = await dispatch.claim("w1", 3, 5.0)
    names = [process_locator(Runtime(node_id=node, zone=zone), "worker") for node, zone in PLACES]
    frames = [await dispatch.next_frame(slot, name) for slot, name in zip(slots, names, strict=True)]
    assert None not in frames
    for frame, name in zip(frames, names, strict=True):
        assert frame is not None
        await dispatch.fail_frame(frame, {"kind": "unknown", "message": "no"}, max_attempts=3, worker=name)
    far = await dispatch.next_frame(slots[0], "w1", Wish(prefer_node="n9", prefer_zone="z9", max_distance="zone"))
    assert far is None, "all of them lie farther than it goes"
    order = [
        await dispatch.next_frame(slots[0], "w1", Wish(prefer_node="n8", prefer_zone="z2")),
        await dispatch.next_frame(slots[1], names[1]),
        await dispatch.next_frame(slots[2], names[1]),
    ]
    assert [one and (one.frame_index, one.attempt) for one in order] == [(2, 2), (1, 2), (0, 2)]


async def test_a_worker_under_a_locator_that_cannot_be_read_is_refused(server: Server) -> None:
    """INV-158."""
    stem = "noetl://tenant/default/org/default/cluster/c"
    for name in ("noetl://nonsense", f"{stem}/node/n1/process/7/worker", f"{stem}/region/r/node/n1/worker/w"):
        await server.call("POST", "/api/commands/claim", {"worker_id": name}, status=400)
    long = f"{stem}/node/{'n' * 400}/worker/w"
    assert await server.call("POST", "/api/commands/claim", {"worker_id": long}, status=200) == {"commands": []}


async def _frame(dispatch: Dispatch, slot: CommandGrant) -> FrameGrant:
    frame = await dispatch.next_frame(slot, "w1")
    assert frame is not None
    return frame
