"""Leases are kept while work goes on, and work stops before its lease ends when they cannot be kept."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from tests.faults.engine.engine_testbed import SCOPED, EngineTestbed
from tests.faults.engine.playbooks import collection, playbook

from noetl.testing.engines.short_leases import open_short_leased, until

pytestmark = [pytest.mark.service, pytest.mark.fault]

SLEEPING = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query LIKE '%pg_sleep%'
AND pid <> pg_backend_pid()
"""


def sleeping(seconds: float, lease_seconds: float) -> str:
    """Return a loop of one row that takes a while."""
    return playbook(
        "sleeping",
        f"""
  - step: each
    loop: {{in: [1], iterator: n, spec: {{mode: parallel, frame: {{lease_seconds: {lease_seconds}}}}}}}
    tool: {{kind: postgres, auth: "{{{{ workload.pg }}}}", command: "SELECT pg_sleep({seconds})"}}
""",
    )


async def test_a_short_lease_that_comes_to_an_idle_worker_is_kept(testbed: EngineTestbed) -> None:
    """A worker without leases looks seldom; one that lasts less than that is renewed in time all the same."""
    async with open_short_leased(testbed.url, testbed.home, slots=1, reaps=True) as driven:
        execution_id = await testbed.start(sleeping(2.5, lease_seconds=1))
        state = await driven.engine.finished(testbed.scope, execution_id)
    assert state.status == "COMPLETED"
    kinds = [event["event_type"] for event in await testbed.events(execution_id, "command.claimed", "frame.dispatched")]
    assert kinds == ["command.claimed", "frame.dispatched"]
    assert not await testbed.events(execution_id, "command.abandoned", "frame.abandoned")


async def test_work_stops_before_its_lease_ends_when_beats_do_not_get_through(testbed: EngineTestbed) -> None:
    """INV-34."""
    async with open_short_leased(testbed.url, testbed.home, slots=1):
        await testbed.start(sleeping(600, lease_seconds=4))

        async def works() -> bool:
            return bool(await testbed.effects.fetchval(SLEEPING))

        async def has_stopped() -> bool:
            return not await works()

        await until(works, "a row at work")
        await testbed.effects.execute("REVOKE UPDATE ON noetl.command, noetl.frame FROM noetl_runtime")
        await testbed.effects.execute(
            "REVOKE UPDATE (lease_until, last_heartbeat) ON noetl.command, noetl.frame FROM noetl_runtime"
        )
        await until(has_stopped, "an end of the work")
        lasts = await testbed.effects.fetch("SELECT lease_until > clock_timestamp() AS lasts FROM noetl.frame")
        assert [row["lasts"] for row in lasts] == [True]
        await testbed.effects.execute(
            "GRANT UPDATE (lease_until, last_heartbeat) ON noetl.command, noetl.frame TO noetl_runtime"
        )


async def test_a_beat_locks_leases_in_the_order_commits_do(testbed: EngineTestbed) -> None:
    """Whoever holds the first lease can get the second, though a beat waits for both and was given them reversed."""
    await testbed.start(playbook("two", collection("each", None, slots=2)))
    dispatch = testbed.engine.dispatch(testbed.scope)
    first, second = sorted(await dispatch.claim("one", 2, 0), key=lambda grant: grant.command_id)
    lock = "SELECT FROM noetl.command WHERE command_id = $1 FOR UPDATE NOWAIT"
    committer = await asyncpg.connect(testbed.url, server_settings=SCOPED)
    async with committer.transaction():
        await committer.execute(lock, first.command_id)
        beat = asyncio.create_task(dispatch.heartbeat([second.lease, first.lease]))

        async def waits() -> bool:
            query = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            return bool(await testbed.effects.fetchval(query))

        await until(waits, "a beat that waits")
        await committer.execute(lock, second.command_id)
    assert await beat == []
    await committer.close()
