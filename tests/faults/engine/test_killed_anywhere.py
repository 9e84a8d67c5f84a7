"""A process killed at any point of its work, or while it takes work back, is replaced by another, and nothing is lost.

Every execution ends, with exact effects in the user's table and exact facts in the ledger.
"""

from __future__ import annotations

import json

import pytest
from tests.faults.engine.engine_testbed import EngineTestbed
from tests.faults.engine.playbooks import ROWS, child, collection, cursor, playbook, single

from noetl import faults
from noetl.testing.engines.short_leases import open_short_leased

pytestmark = [pytest.mark.service, pytest.mark.fault]

CHILD = playbook("below", single("below", None))
WHOLE = playbook(
    "whole",
    single("first", "each"),
    collection("each", "claimed"),
    cursor("claimed", "sub"),
    child("sub", "faults/below", "last"),
    single("last", None),
)
KEYS = {"first", "below", "last", *(f"{step}-{n}" for step in ("each", "claimed") for n in range(ROWS))}

WORKING = (
    "decide.before_record",
    "decide.after_record",
    "claim.before_record",
    "claim.after_record",
    "complete.before_record",
    "frame.before_commit",
    "frame.after_commit",
    "rows.after_claim",
    "rows.after_dispatch",
    "rows.after_work",
)
REAPING = ("reap.before_record", "reap.after_record")


async def begin(testbed: EngineTestbed) -> int:
    """Fill the queue and ask for an execution that has everything in it."""
    await testbed.fill_queue(ROWS)
    await testbed.engine.catalog.register(testbed.scope, CHILD)
    return await testbed.start(WHOLE)


async def assert_exact(testbed: EngineTestbed, execution_id: int) -> dict[str, int]:
    """The execution has ended well, every effect is there, and every end stands once in the ledger."""
    state = await testbed.finished(execution_id)
    assert (state.status, state.error) == ("COMPLETED", None)
    runs = await testbed.effect_runs()
    assert runs.keys() == KEYS
    for kind, column in (("frame.committed", "frame_id"), ("command.completed", "command_id")):
        ids = [event[column] for event in await testbed.events(execution_id, kind)]
        assert len(set(ids)) == len(ids)
    assert len(await testbed.events(execution_id, "loop.done")) == 2
    await testbed.assert_clean()
    return runs


@pytest.mark.parametrize("point", WORKING)
async def test_a_worker_killed_at_any_point_is_replaced(testbed: EngineTestbed, point: str) -> None:
    """INV-33."""
    execution_id = await begin(testbed)
    first = testbed.process(fault=f"{point}=kill")
    await first.killed()
    assert not (await testbed.engine.executions.state(testbed.scope, execution_id)).ended
    testbed.process()
    runs = await assert_exact(testbed, execution_id)
    again = {key: count for key, count in runs.items() if count > 1}
    # What was under way may be done again; that is one frame of each slot, or one step.
    assert len(again) <= 2 * 3, again
    assert all(count == 2 for count in again.values())


async def test_a_child_whose_parent_died_before_it_was_started_is_started(testbed: EngineTestbed) -> None:
    await testbed.engine.catalog.register(testbed.scope, CHILD)
    execution_id = await testbed.start(playbook("parent", single("first", "sub"), child("sub", "faults/below", None)))
    await testbed.process(fault="decide.after_record=kill").killed()
    (suspended,) = await testbed.effects.fetch("SELECT status, child_execution_id FROM noetl.command")
    assert suspended["status"] == "SUSPENDED"
    assert not await testbed.engine.executions.exists(testbed.scope, suspended["child_execution_id"])
    testbed.process()
    assert (await testbed.finished(execution_id)).status == "COMPLETED"
    assert await testbed.effect_runs() == {"first": 1, "below": 1}
    await testbed.assert_clean()


async def test_a_child_is_not_started_once_its_parent_was_cancelled(testbed: EngineTestbed) -> None:
    """Whoever was to start it may come late: it would run for nobody, and no cancellation would find it."""
    await testbed.engine.catalog.register(testbed.scope, CHILD)
    execution_id = await testbed.start(playbook("parent", single("first", "sub"), child("sub", "faults/below", None)))
    await testbed.process(fault="decide.after_record=kill", reaps=False).killed()
    query = "SELECT command_id, meta, context FROM noetl.event WHERE execution_id = $1 AND command_id = 'sub/1/0'"
    (issued,) = await testbed.effects.fetch(query, execution_id)
    await testbed.engine.cancel(testbed.scope, execution_id, reason="enough", by="test")
    meta, context = json.loads(issued["meta"]), json.loads(issued["context"])
    await testbed.engine.children.start_suspended(testbed.scope, execution_id, issued["command_id"], meta, context)
    assert not await testbed.engine.executions.exists(testbed.scope, int(meta["child_execution_id"]))
    await testbed.assert_clean()


async def test_a_child_that_ended_with_nobody_to_tell_lets_its_parent_go_on(testbed: EngineTestbed) -> None:
    """INV-42."""
    await testbed.engine.catalog.register(testbed.scope, CHILD)
    execution_id = await testbed.start(playbook("parent", child("sub", "faults/below", None)))
    await testbed.engine.children.settled()
    await testbed.process(fault="decide.after_record=kill").killed()
    (waiting,) = await testbed.effects.fetch("SELECT execution_id FROM noetl.execution_head")
    assert waiting["execution_id"] == execution_id
    testbed.process()
    assert (await testbed.finished(execution_id)).status == "COMPLETED"
    assert await testbed.effect_runs() == {"below": 1}
    await testbed.assert_clean()


@pytest.mark.parametrize("point", ["decide.before_record", "decide.after_record"])
async def test_a_request_that_broke_off_can_be_repeated_under_its_key(testbed: EngineTestbed, point: str) -> None:
    entry = (await testbed.engine.catalog.register(testbed.scope, playbook("asked", single("first", None)))).entry
    payload = {"pg": {"dsn": testbed.url}}
    faults.arm(f"{point}=raise")
    try:
        with pytest.raises(faults.FaultInjected):
            await testbed.engine.start(testbed.scope, entry, payload, requested_by="test", key="once")
    finally:
        faults.arm("")
    states = [
        await testbed.engine.start(testbed.scope, entry, payload, requested_by="test", key="once") for _ in range(2)
    ]
    assert states[0].execution_id == states[1].execution_id
    assert (
        await testbed.effects.fetchval("SELECT count(*) FROM noetl.event WHERE event_type = 'execution.requested'") == 1
    )
    async with open_short_leased(testbed.url, testbed.home, slots=1) as driven:
        assert (await driven.engine.finished(testbed.scope, states[0].execution_id)).status == "COMPLETED"
    await testbed.assert_clean()


@pytest.mark.parametrize("point", REAPING)
async def test_a_process_killed_while_it_takes_work_back_is_replaced(testbed: EngineTestbed, point: str) -> None:
    execution_id = await begin(testbed)
    await testbed.process(fault="rows.after_work=kill").killed()
    await testbed.process(fault=f"{point}=kill", slots=0).killed()
    testbed.process()
    await assert_exact(testbed, execution_id)
