"""A process killed at any point of its work, or while it takes work back, is replaced by another, and nothing is lost.

INV: every execution ends, with exact effects in the user's table and exact facts in the ledger.
"""

from __future__ import annotations

import pytest
from tests.faults.engine.ground import Ground
from tests.faults.engine.playbooks import ROWS, child, collection, cursor, playbook, single

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
    await ground.effects.execute("INSERT INTO public.queue (id) SELECT generate_series(0, $1 - 1)", ROWS)
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


@pytest.mark.parametrize("point", REAPING)
async def test_a_process_killed_while_it_takes_work_back_is_replaced(ground: Ground, point: str) -> None:
    execution_id = await begin(ground)
    await ground.process(fault="rows.after_work=kill").killed()
    await ground.process(fault=f"{point}=kill", slots=0).killed()
    ground.process()
    await assert_exact(ground, execution_id)
