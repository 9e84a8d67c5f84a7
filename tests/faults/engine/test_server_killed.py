"""A server killed under its workers, and a paused worker of a server: totals are exact, ends stand once."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from tests.faults.engine.engine_testbed import EngineTestbed
from tests.faults.engine.playbooks import ROWS, collection, cursor, playbook, single
from tests.faults.engine.roles import Roles

from noetl.testing.engines.short_leases import LEASE_SECONDS, until

pytestmark = [pytest.mark.service, pytest.mark.fault]

MANY = 60
FRAME = f"{{max_rows: 5, lease_seconds: {LEASE_SECONDS}, max_attempts: 20}}"
COLLECTION = collection("each", "last", rows=MANY, slots=4, frame=FRAME)
CURSOR = cursor("each", "last", slots=4, frame=FRAME)
PAUSED = playbook("paused", collection("each", "last", slots=1), single("last", None))
EVENTS = "SELECT count(*) FROM noetl.event WHERE execution_id = $1"


@pytest.fixture
def roles(testbed: EngineTestbed) -> Iterator[Roles]:
    """The processes of the test."""
    found = Roles(testbed.url, testbed.home)
    yield found
    found.close()


@pytest.mark.parametrize(
    ("loop", "point"),
    [
        pytest.param(COLLECTION, "frame.after_commit", id="rows"),
        pytest.param(CURSOR, "frame.before_commit", id="claims", marks=pytest.mark.slow),
    ],
)
async def test_a_run_lives_through_kills_of_the_server_its_workers_report_to(
    testbed: EngineTestbed, roles: Roles, loop: str, point: str
) -> None:
    """INV-133."""
    await testbed.fill_queue(MANY)
    execution_id = await testbed.start(playbook("killed", loop, single("last", None)))
    for _ in range(2):
        roles.worker(slots=2)
    # The first dies while it commits a frame, the second when it pleases us.
    await (await roles.server(fault=f"{point}=kill")).killed()
    assert not (await testbed.engine.executions.state(testbed.scope, execution_id)).ended
    second = await roles.server()

    async def has_come_far() -> bool:
        return len(await testbed.effect_runs()) >= MANY // 2

    await until(has_come_far, "half of the rows")
    second.send(signal.SIGKILL)
    await second.killed()
    assert not (await testbed.engine.executions.state(testbed.scope, execution_id)).ended
    third = await roles.server()

    state = await testbed.finished(execution_id)
    assert (state.status, state.error) == ("COMPLETED", None)
    done = state.results["each"].data["completed"]
    # Rows whose claim rolled back after their frame was recorded are claimed, and counted, once more.
    assert done == MANY if loop is COLLECTION else done >= MANY
    assert (await testbed.effect_runs()).keys() == {"last", *(f"each-{n}" for n in range(MANY))}
    for kind, column in (("frame.committed", "frame_id"), ("command.completed", "command_id")):
        ids = [event[column] for event in await testbed.events(execution_id, kind)]
        assert len(set(ids)) == len(ids)
    assert len(await testbed.events(execution_id, "loop.done")) == 1
    assert not await testbed.events(execution_id, "frame.failed", "command.failed")
    third.send(signal.SIGTERM)
    assert await third.ended() == 0
    assert await roles.verified() == 0
    await testbed.assert_clean()


async def test_a_paused_worker_of_a_server_comes_back_in_vain(testbed: EngineTestbed, roles: Roles) -> None:
    """INV-133."""
    server = await roles.server()
    paused = roles.worker(slots=1)
    async with testbed.shut_gate("each-4"):
        execution_id = await testbed.start(PAUSED)
        await testbed.at_the_gate()
        paused.send(signal.SIGSTOP)
        await paused.stopped()
    other = roles.worker(slots=1)
    assert (await testbed.finished(execution_id)).status == "COMPLETED"
    before = await testbed.effects.fetchval(EVENTS, execution_id)
    paused.send(signal.SIGCONT)
    paused.send(signal.SIGTERM)
    assert await paused.ended() == 0
    assert await testbed.effects.fetchval(EVENTS, execution_id) == before
    assert (await testbed.effect_runs()).keys() == {"last", *(f"each-{n}" for n in range(ROWS))}
    assert len(await testbed.events(execution_id, "frame.abandoned")) == 1
    for role in (other, server):
        role.send(signal.SIGTERM)
        assert await role.ended() == 0
    assert await roles.verified() == 0
    await testbed.assert_clean()
