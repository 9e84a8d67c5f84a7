"""PostgreSQL is stopped under a step and a framed loop, and comes back within their leases: nothing counts as an attempt."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from noetl.runtime.assembly.engine import open_engine, open_worker
from noetl.runtime.postgres import migrations
from noetl.runtime.postgres.embedded import EmbeddedServer
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import open_runtime
from noetl.testing.attacks.outages import Gate
from noetl.testing.engines.playbook_runs import playbook

pytestmark = [pytest.mark.service, pytest.mark.fault, pytest.mark.xdist_group("own_server"), pytest.mark.slow]


async def test_a_restart_of_postgresql_costs_no_attempt(tmp_path: Path) -> None:
    """INV-182: the end of a frame and the end of a step are recorded when the ledger is back."""
    step, frame = Gate(tmp_path, "step"), Gate(tmp_path, "frame")
    text = playbook(f"""
    workflow:
      - step: work
        tool: {{kind: shell, command: "{step.command}"}}
        next: {{arcs: [{{step: each}}]}}
      - step: each
        loop: {{in: [0, 1, 2], iterator: n, spec: {{mode: parallel, max_in_flight: 1, frame: {{max_rows: 1, max_attempts: 1}}}}}}
        tool: {{kind: shell, command: "[ {{{{ n }}}} -ne 1 ] || {{ {frame.command}; }}"}}
    """)
    server, home = EmbeddedServer(tmp_path / "server"), tmp_path / "home"
    home.mkdir()
    await asyncio.to_thread(server.start)
    try:
        await asyncio.to_thread(migrations.upgrade, server.url())
        settings = Settings.model_validate({"runtime": {"home": str(home)}, "database": {"url": server.url()}})
        async with (
            open_runtime(settings) as runtime,
            open_engine(runtime, "test") as engine,
            open_worker(runtime, engine.dispatch(runtime.scope), slots=2),
        ):
            entry = (await engine.catalog.register(runtime.scope, text)).entry
            started = await engine.start(runtime.scope, entry, {}, requested_by="test")
            for gate in (step, frame):
                await gate.reached()
                await asyncio.to_thread(server.stop)
                await gate.open()
                await asyncio.to_thread(server.start)
            ended = await engine.finished(runtime.scope, started.execution_id, 60.0)
            assert (ended.status, ended.error) == ("COMPLETED", None)
            events = [one async for one in runtime.ledger.read_execution(runtime.scope, started.execution_id)]
            assert ended.results["each"].data["completed"] == 3
            assert {one.meta.get("attempt", 1) for one in events if one.event_type.startswith("command.")} == {1}
            assert not [one for one in events if one.event_type.endswith((".attempt_failed", ".abandoned", ".failed"))]
    finally:
        await asyncio.to_thread(server.destroy)
