"""However many slots of a loop end at the same time, and however its shards end, the loop ends once and says how."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

import pytest
from tests.faults.engine.engine_testbed import EngineTestbed
from tests.faults.engine.playbooks import collection, playbook, single

from noetl.engine.dispatch.grants import CommandGrant, FrameReport
from noetl.engine.dispatch.local import LocalDispatch
from noetl.engine.plan.trigger import CommandEnded
from noetl.testing.engines.short_leases import open_short_leased

pytestmark = [pytest.mark.service, pytest.mark.fault]

SLOTS = 20
ENGINES = 5
SHARDS = 50
ALL_AT_ONCE = playbook(
    "at_once",
    collection("each", "last", rows=SLOTS, slots=SLOTS, frame="{max_rows: 1, lease_seconds: 60}"),
    single("last", None),
)


async def test_twenty_slots_that_end_at_once_end_their_loop_once(testbed: EngineTestbed) -> None:
    """INV-28, INV-35: two last completions must not each count the other as missing, and no two may both end the loop."""
    execution_id = await testbed.start(ALL_AT_ONCE)
    async with AsyncExitStack() as stack:
        engines = [
            (
                await stack.enter_async_context(open_short_leased(testbed.url, testbed.home, role=f"engine-{number}"))
            ).engine
            for number in range(ENGINES)
        ]
        # Each of them has its own memory of the execution and its own connection, so that they decide side by side.
        dispatches = [engines[slot % ENGINES].dispatch(testbed.scope) for slot in range(SLOTS)]
        held: list[tuple[LocalDispatch, CommandGrant]] = []
        for slot, dispatch in enumerate(dispatches):
            (grant,) = await dispatch.claim(f"worker-{slot}", 1, 0)
            frame = await dispatch.next_frame(grant, f"worker-{slot}")
            assert frame is not None
            await dispatch.commit_frame(
                grant, frame, FrameReport(row_count=1), worker=f"worker-{slot}", take_next=False
            )
            held.append((dispatch, grant))
        await asyncio.gather(
            *(
                dispatch.complete(
                    grant,
                    CommandEnded(command_id=grant.command_id, attempt=1, status="ok"),
                    worker=grant.worker,
                    take_next=False,
                )
                for dispatch, grant in held
            )
        )
    assert len(await testbed.events(execution_id, "loop.done")) == 1
    ended = [event["command_id"] for event in await testbed.events(execution_id, "command.completed")]
    assert sorted(ended) == sorted(grant.command_id for _, grant in held)
    assert [event["command_id"] for event in await testbed.events(execution_id, "command.issued")][SLOTS:] == [
        "last/1/0"
    ]
    async with open_short_leased(testbed.url, testbed.home, slots=1) as driven:
        state = await driven.engine.finished(testbed.scope, execution_id)
    assert (state.status, state.results["each"].data["completed"]) == ("COMPLETED", SLOTS)
    await testbed.assert_clean()


@pytest.mark.parametrize(
    ("failing", "fanin", "status", "ends_as"),
    [
        (0, "complete", "completed", "COMPLETED"),
        (2, "partial", "partial", "COMPLETED"),
        (50, "failed", "failed", "FAILED"),
    ],
)
async def test_a_fan_in_says_how_many_shards_did_well(
    testbed: EngineTestbed, failing: int, fanin: str, status: str, ends_as: str
) -> None:
    text = playbook(
        "fan",
        f"""
  - step: each
    loop:
      in: "{{{{ range({SHARDS}) | list }}}}"
      iterator: n
      spec: {{mode: fanout, max_in_flight: 8, fanout: {{max_shard_retries: 0}}}}
    tool: {{kind: postgres, auth: "{{{{ workload.pg }}}}", command: "SELECT 1 / (CASE WHEN $1::integer < {failing} THEN 0 ELSE 1 END)", params: ["{{{{ iter.n }}}}"]}}
""",
    )
    async with open_short_leased(testbed.url, testbed.home, slots=8) as driven:
        execution_id = await testbed.start(text)
        state = await driven.engine.finished(testbed.scope, execution_id)
    (told,) = await testbed.events(execution_id, "loop.fanin.completed")
    assert told["status"] == status
    assert json.loads(told["result"]) == {
        "status": fanin,
        "context": {"done": SHARDS - failing, "failed": failing, "total": SHARDS},
    }
    shards = [
        event["event_type"] for event in await testbed.events(execution_id, "loop.shard.done", "loop.shard.failed")
    ]
    assert (shards.count("loop.shard.done"), shards.count("loop.shard.failed")) == (SHARDS - failing, failing)
    assert state.status == ends_as
    await testbed.assert_clean()
