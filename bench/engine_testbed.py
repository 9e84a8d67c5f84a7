"""The testbed engine figures are measured on: a whole runtime with engine and worker in this process, as `noetl run` has."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from bench.database_testbed import folder_for_server
from noetl.engine.catalog.playbooks import Entry
from noetl.engine.dispatch.engine import Engine
from noetl.runtime.assembly.engine import open_engine, open_worker
from noetl.runtime.commands.run import RUN_SLOTS
from noetl.runtime.postgres.embedded import EmbeddedServer
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import Runtime, open_runtime


class EngineTestbed:
    """An engine with a worker, and the way to the bare database."""

    def __init__(self, runtime: Runtime, engine: Engine, server: EmbeddedServer) -> None:
        self._runtime = runtime
        self._engine = engine
        self._server = server

    async def bare(self, **options: Any) -> asyncpg.Connection:
        """Open a connection of the database's owner."""
        return await asyncpg.connect(self._server.url(), **options)

    async def bare_pool(self, size: int) -> Any:
        """Open a pool of the database's owner."""
        return await asyncpg.create_pool(self._server.url(), min_size=size, max_size=size)

    async def register(self, playbook: str) -> Entry:
        """Register a playbook."""
        return (await self._engine.catalog.register(self._runtime.scope, playbook)).entry

    async def timed(self, entry: Entry, count: int = 1) -> float:
        """Run executions at once and return the seconds until the last has ended well."""
        began = time.perf_counter()
        started = await asyncio.gather(
            *(self._engine.start(self._runtime.scope, entry, requested_by="bench") for _ in range(count))
        )
        ended = await asyncio.gather(
            *(self._engine.finished(self._runtime.scope, state.execution_id) for state in started)
        )
        seconds = time.perf_counter() - began
        wrong = [state.error for state in ended if state.status != "COMPLETED"]
        if wrong:
            raise RuntimeError(f"{len(wrong)} executions did not end well: {wrong[0]}")
        return seconds


@asynccontextmanager
async def open_engine_testbed(slots: int = RUN_SLOTS) -> AsyncIterator[EngineTestbed]:
    """Give an engine on a fresh embedded database with its shipped, durable settings."""
    folder = folder_for_server()
    settings = Settings.model_validate({"runtime": {"home": str(folder / "home")}})
    try:
        async with (
            open_runtime(settings) as runtime,
            open_engine(runtime) as engine,
            open_worker(runtime, engine.dispatch(runtime.scope), slots=slots),
        ):
            with EmbeddedServer(settings.runtime.home) as server:
                yield EngineTestbed(runtime, engine, server)
    finally:
        EmbeddedServer(settings.runtime.home).destroy()
        shutil.rmtree(folder)


def chain(path: str, steps: int, tool: str = "{kind: noop}") -> str:
    """Return a playbook of trivial steps one after another."""
    lines = [
        "apiVersion: noetl.io/v2",
        "kind: Playbook",
        f"metadata: {{name: chain, path: {path}}}",
        "workflow:",
    ]
    for number in range(steps):
        lines.append(f"  - step: s{number}")
        lines.append(f"    tool: {tool}")
        if number + 1 < steps:
            lines.append(f"    next: {{arcs: [{{step: s{number + 1}}}]}}")
    return "\n".join(lines)
