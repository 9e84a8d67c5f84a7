"""PostgreSQL goes away and comes back under a running loop: the run ends with exact totals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from tests.faults.engine.engine_testbed import SCOPED, TABLES, EngineTestbed
from tests.faults.engine.playbooks import collection, cursor, playbook, single

from noetl.runtime.postgres import migrations
from noetl.runtime.postgres.embedded import EmbeddedServer
from noetl.testing.engines.short_leases import LEASE_SECONDS, open_short_leased, until

pytestmark = [pytest.mark.service, pytest.mark.fault, pytest.mark.xdist_group("own_server")]

ROWS = 300
RESTARTS = 2
# A row whose connection is cut off is tried again by its own policy; everything else is the engine's part.
RETRY = (
    "{rules: [{when: \"{{ output.status == 'error' }}\", then: {do: retry, attempts: 60, backoff: fixed, delay: 0.2}}]}"
)
FRAME = f"{{max_rows: 5, lease_seconds: {LEASE_SECONDS}, max_attempts: 20}}"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    """A server of the test's own, with the schema in it."""
    server = EmbeddedServer(tmp_path / "server")
    await asyncio.to_thread(server.start)
    await asyncio.to_thread(migrations.upgrade, server.url())
    yield server
    await asyncio.to_thread(server.destroy)


async def connect(server: EmbeddedServer) -> asyncpg.Connection:
    return await asyncpg.connect(server.url(), server_settings=SCOPED)


def patient(step: str) -> str:
    """Let the tasks of a step be tried again."""
    return step.replace(
        "kind: postgres\n        auth", f"kind: postgres\n        spec: {{policy: {RETRY}}}\n        auth"
    )


async def test_a_loop_lives_through_restarts_of_the_server(server: EmbeddedServer, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    effects = await connect(server)
    await effects.execute(TABLES)
    async with open_short_leased(server.url(), home) as driven:
        testbed = EngineTestbed(server.url(), home, driven, effects)
        await testbed.fill_queue(ROWS)
        text = playbook(
            "restarted",
            patient(collection("each", "claimed", rows=ROWS, slots=4, frame=FRAME)),
            patient(cursor("claimed", "last", slots=4, frame=FRAME)),
            patient(single("last", None)),
        )
        execution_id = await testbed.start(text)
        testbed.process(slots=4)
        for restart in range(1, RESTARTS + 1):

            async def has_come_far(wanted: int = restart * 2 * ROWS // (RESTARTS + 1)) -> bool:
                return len(await testbed.effect_runs()) >= wanted

            await until(has_come_far, f"the rows before restart {restart}")
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            await testbed.effects.close()
            testbed.effects = await connect(server)
        try:
            state = await testbed.finished(execution_id)
            assert (state.status, state.error) == ("COMPLETED", None)
            keys = {"last", *(f"{step}-{n}" for step in ("each", "claimed") for n in range(ROWS))}
            assert (await testbed.effect_runs()).keys() == keys
            assert state.results["each"].data["completed"] == ROWS
            assert not await testbed.events(execution_id, "frame.failed", "command.failed")
            await testbed.assert_clean()
        finally:
            testbed.close()
            await testbed.effects.close()
