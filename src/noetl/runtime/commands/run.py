"""Runs one playbook to its end in this process: engine, worker and projector together on the configured database."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from noetl.engine.catalog.playbooks import Entry
from noetl.engine.dispatch.engine import Engine
from noetl.engine.dispatch.grants import CommandGrant
from noetl.engine.plan.state import State
from noetl.model.stream import Scope
from noetl.runtime.assembly.engine import open_engine, open_worker
from noetl.runtime.commands.run_notes import notes_of
from noetl.runtime.confinement import confine_tasks
from noetl.runtime.projections.projector import catch_up
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import Runtime, open_runtime
from noetl.runtime.write_path.movers import open_write_path

_log = logging.getLogger(__name__)

RUN_SLOTS = 128
"""Slots of a run in one process: they wait for the network far more than they compute."""
INTERRUPTED_SECONDS = 5.0
"""How long an interrupted process stays to end what it began; children that are left then have an ended parent."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended."""

    execution_id: int
    path: str
    version: int
    status: str
    seconds: float
    result: Any
    error: str | None
    swallowed: int
    workload: dict[str, Any]
    claims: int
    frames: int
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What was left undone, such as a loop without rows."""


class Watcher:
    """What a live display may follow; every method does nothing unless overridden."""

    def started(self, runtime: Runtime, engine: Engine, state: State) -> None:
        """The execution began."""

    def rows(self, step: str, done: int, failed: int) -> None:
        """Rows of a loop were worked off."""


@asynccontextmanager
async def open_run(
    settings: Settings, warn: Callable[[str], None] = _log.warning
) -> AsyncIterator[tuple[Runtime, Engine]]:
    """Connect what a run in this process needs, for the time of the block, whatever the write path."""
    await asyncio.to_thread(confine_tasks, settings, warn, shared=False)
    async with (
        open_runtime(settings) as runtime,
        open_write_path(runtime, "run", warn),
        open_engine(runtime, "run") as engine,
    ):
        yield runtime, engine


async def run_entry(
    runtime: Runtime,
    engine: Engine,
    entry: Entry,
    workload: dict[str, Any],
    *,
    slots: int,
    watcher: Watcher,
    warnings: tuple[str, ...] = (),
    project: bool = True,
) -> RunResult:
    """Run a registered playbook with a worker of this process."""

    async def start() -> State:
        return await engine.start(runtime.scope, entry, workload, requested_by="cli")

    state, seconds, claims = await _to_the_end(runtime, engine, start, slots=slots, watcher=watcher, project=project)
    return await _result(runtime, engine, entry, state, seconds, claims, warnings)


async def rerun_execution(
    runtime: Runtime,
    engine: Engine,
    execution_id: int,
    payload: dict[str, Any],
    *,
    from_step: str | None,
    slots: int,
    watcher: Watcher,
) -> RunResult:
    """Run an execution of the runtime's organization once more, whole or from a step on, with a worker of this process."""

    async def start() -> State:
        return await engine.rerun(runtime.scope, execution_id, from_step=from_step, payload=payload, requested_by="cli")

    state, seconds, claims = await _to_the_end(runtime, engine, start, slots=slots, watcher=watcher)
    entry = await engine.catalog.by_id(runtime.scope, state.catalog_id)
    return await _result(runtime, engine, entry, state, seconds, claims)


async def _to_the_end(
    runtime: Runtime,
    engine: Engine,
    start: Callable[[], Awaitable[State]],
    *,
    slots: int,
    watcher: Watcher,
    project: bool = True,
) -> tuple[State, float, int]:
    """Start an execution and wait for its end; return how it ended, how long it took and how often work was claimed."""

    def on_rows(grant: CommandGrant, done: int, failed: int) -> None:
        watcher.rows(grant.step, done, failed)

    dispatch = engine.dispatch(runtime.scope)
    async with open_worker(runtime, dispatch, slots=slots, on_rows=on_rows) as worker:
        began = time.monotonic()
        state = await start()
        watcher.started(runtime, engine, state)
        async with cancelled_if_interrupted(engine, runtime.scope, state.execution_id):
            state = await engine.finished(runtime.scope, state.execution_id)
        seconds = time.monotonic() - began
    async with cancelled_if_interrupted(engine, runtime.scope, state.execution_id):
        await engine.children.settled()
    if project:
        await catch_up(runtime)
    return state, seconds, worker.claims


async def _result(
    runtime: Runtime,
    engine: Engine,
    entry: Entry,
    state: State,
    seconds: float,
    claims: int,
    warnings: tuple[str, ...] = (),
) -> RunResult:
    plan = await engine.catalog.plan(runtime.scope, state.catalog_id)
    return RunResult(
        execution_id=state.execution_id,
        path=entry.path,
        version=entry.version,
        status=state.status,
        seconds=seconds,
        result=result_of(state),
        error=state.error,
        swallowed=state.swallowed,
        workload=state.workload,
        claims=claims,
        frames=engine.frames.minted,
        warnings=warnings,
        notes=notes_of(plan.playbook, state) if state.status == "COMPLETED" else (),
    )


def result_of(state: State) -> Any:
    """Return what an execution came to: data, or where they lie."""
    found = state.results.get(state.result_step or "")
    if found is None or found.data is not None or found.ref is None:
        return None if found is None else found.data
    return {"_ref": msgspec.to_builtins(found.ref), **found.selected}


@asynccontextmanager
async def cancelled_if_interrupted(engine: Engine, scope: Scope, execution_id: int) -> AsyncIterator[None]:
    """When the user interrupts the block, end what was begun in the ledger, too, before the process goes."""
    try:
        yield
    except asyncio.CancelledError:
        try:
            async with asyncio.timeout(INTERRUPTED_SECONDS):
                await engine.cancel(scope, execution_id, reason="interrupted", by="cli")
        except TimeoutError:
            _log.warning("not all that execution %s started is stopped yet; a reaper will see to it", execution_id)
        raise
