"""A process killed at any point of its work, or while it takes work back, is replaced by another, and nothing is lost.

Every execution ends, with exact effects in the user's table and exact facts in the ledger.
"""

from __future__ import annotations

import json

import pytest
from tests.faults.engine.engine_testbed import Ground
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


async def begin(ground: Ground) -> int:
    """Fill the queue and ask for an execution that has everything in it."""
    await ground.fill_queue(ROWS)
    await ground.engine.catalog.register(ground.scope, CHILD)
    return await ground.start(WHOLE)


async def assert_exact(ground: Ground, execution_id: int) -> dict[str, int]:
    """The execution has ended well, every effect is there, and every end stands once in the ledger."""
    state = await ground.finished(execution_id)
    assert (state.status, state.error) == ("COMPLETED", None)
    runs = await ground.effect_runs()
    assert runs.keys() == KEYS
    for kind, column in (("frame.committed", "frame_id"), ("command.completed", "command_id")):
        ids = [event[column] for event in await ground.events(execution_id, kind)]
        assert len(set(ids)) == len(ids)
    assert len(await ground.events(execution_id, "loop.done")) == 2
    await ground.assert_clean()
    return runs


@pytest.mark.parametrize("point", WORKING)
async def test_a_worker_killed_at_any_point_is_replaced(ground: Ground, point: str) -> None:
    """INV-33."""
    execution_id = await begin(ground)
    first = ground.process(fault=f"{point}=kill")
    await first.killed()
    assert not (await ground.engine.executions.state(ground.scope, execution_id)).ended
    ground.process()
    runs = await assert_exact(ground, execution_id)
    again = {key: count for key, count in runs.items() if count > 1}
    # What was under way may be done again; that is one frame of each slot, or one step.
    assert len(again) <= 2 * 3, again
    assert all(count == 2 for count in again.values())


async def test_a_child_whose_parent_died_before_it_was_started_is_started(ground: Ground) -> None:
    await ground.engine.catalog.register(ground.scope, CHILD)
    execution_id = await ground.start(playbook("parent", single("first", "sub"), child("sub", "faults/below", None)))
    await ground.process(fault="decide.after_record=kill").killed()
    (suspended,) = await ground.effects.fetch("SELECT status, child_execution_id FROM noetl.command")
    assert suspended["status"] == "SUSPENDED"
    assert not await ground.engine.executions.exists(ground.scope, suspended["child_execution_id"])
    ground.process()
    assert (await ground.finished(execution_id)).status == "COMPLETED"
    assert await ground.effect_runs() == {"first": 1, "below": 1}
    await ground.assert_clean()


async def test_a_child_is_not_started_once_its_parent_was_cancelled(ground: Ground) -> None:
    """Whoever was to start it may come late: it would run for nobody, and no cancellation would find it."""
    await ground.engine.catalog.register(ground.scope, CHILD)
    execution_id = await ground.start(playbook("parent", single("first", "sub"), child("sub", "faults/below", None)))
    await ground.process(fault="decide.after_record=kill", reaps=False).killed()
    query = "SELECT command_id, meta, context FROM noetl.event WHERE execution_id = $1 AND command_id = 'sub/1/0'"
    (issued,) = await ground.effects.fetch(query, execution_id)
    await ground.engine.cancel(ground.scope, execution_id, reason="enough", by="test")
    meta, context = json.loads(issued["meta"]), json.loads(issued["context"])
    await ground.engine.children.start_suspended(ground.scope, execution_id, issued["command_id"], meta, context)
    assert not await ground.engine.executions.exists(ground.scope, int(meta["child_execution_id"]))
    await ground.assert_clean()


async def test_a_child_that_ended_with_nobody_to_tell_lets_its_parent_go_on(ground: Ground) -> None:
    """INV-42."""
    await ground.engine.catalog.register(ground.scope, CHILD)
    execution_id = await ground.start(playbook("parent", child("sub", "faults/below", None)))
    await ground.engine.children.settled()
    await ground.process(fault="decide.after_record=kill").killed()
    (waiting,) = await ground.effects.fetch("SELECT execution_id FROM noetl.execution_head")
    assert waiting["execution_id"] == execution_id
    ground.process()
    assert (await ground.finished(execution_id)).status == "COMPLETED"
    assert await ground.effect_runs() == {"below": 1}
    await ground.assert_clean()


@pytest.mark.parametrize("point", ["decide.before_record", "decide.after_record"])
async def test_a_request_that_broke_off_can_be_repeated_under_its_key(ground: Ground, point: str) -> None:
    entry = (await ground.engine.catalog.register(ground.scope, playbook("asked", single("first", None)))).entry
    payload = {"pg": {"dsn": ground.url}}
    faults.arm(f"{point}=raise")
    try:
        with pytest.raises(faults.FaultInjected):
            await ground.engine.start(ground.scope, entry, payload, requested_by="test", key="once")
    finally:
        faults.arm("")
    states = [
        await ground.engine.start(ground.scope, entry, payload, requested_by="test", key="once") for _ in range(2)
    ]
    assert states[0].execution_id == states[1].execution_id
    assert (
        await ground.effects.fetchval("SELECT count(*) FROM noetl.event WHERE event_type = 'execution.requested'") == 1
    )
    async with open_short_leased(ground.url, ground.home, slots=1) as driven:
        assert (await driven.engine.finished(ground.scope, states[0].execution_id)).status == "COMPLETED"
    await ground.assert_clean()


@pytest.mark.parametrize("point", REAPING)
async def test_a_process_killed_while_it_takes_work_back_is_replaced(ground: Ground, point: str) -> None:
    execution_id = await begin(ground)
    await ground.process(fault="rows.after_work=kill").killed()
    await ground.process(fault=f"{point}=kill", slots=0).killed()
    ground.process()
    await assert_exact(ground, execution_id)
