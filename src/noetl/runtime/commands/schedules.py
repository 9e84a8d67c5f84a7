"""What `noetl schedule` opens: schedules, and for a run by hand all that is needed to do what it starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from noetl.engine.dispatch.engine import Engine
    from noetl.language.playbook.model import Playbook
    from noetl.model.stream import Scope
    from noetl.pipelines.pipelines import Pipelines
    from noetl.runtime.wiring import Runtime
    from noetl.services.schedule.held_slot import Held
    from noetl.services.schedule.rows import SlotRow
    from noetl.services.schedule.schedules import Schedules

_ROLE: Final = "cli"


@asynccontextmanager
async def opened(*, platform: bool = False) -> AsyncIterator[tuple[Runtime, Schedules, Scope]]:
    """Give schedules, and whose are meant: those of the organization the settings name, or of the platform."""
    from noetl.runtime.assembly.schedules import schedules_of
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime
    from noetl.services.schedule.spec import PLATFORM

    async with open_runtime(load_settings()) as runtime:
        yield runtime, schedules_of(runtime, _ROLE), PLATFORM if platform else runtime.scope


async def playbook_of(runtime: Runtime, scope: Scope, path: str, version: int | None) -> Playbook:
    """Return a registered playbook, its newest version unless one is named."""
    from noetl.runtime.assembly.engine import catalog_of

    catalog = catalog_of(runtime, _ROLE)
    entry = await catalog.get(scope, path, version)
    return (await catalog.plan(scope, entry.catalog_id)).playbook


async def run_now(
    name: str, warn: Callable[[str], None], *, platform: bool, detach: bool
) -> tuple[SlotRow, str | None]:
    """Run a schedule now; return its slot, and how what it started ended: None if it started nothing."""
    from noetl.runtime.assembly.engine import open_engine, open_worker
    from noetl.runtime.assembly.pipelines import open_pipelines, open_task_worker
    from noetl.runtime.assembly.platform_jobs import platform_jobs
    from noetl.runtime.assembly.schedules import open_slots
    from noetl.runtime.commands.run import RUN_SLOTS
    from noetl.runtime.config import load_settings
    from noetl.runtime.confinement import confine_tasks
    from noetl.runtime.wiring import open_runtime
    from noetl.runtime.write_path.movers import open_write_path
    from noetl.services.schedule.spec import PLATFORM

    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(open_runtime(load_settings()))
        await stack.enter_async_context(open_write_path(runtime, _ROLE, warn))
        engine = await stack.enter_async_context(open_engine(runtime, _ROLE))
        pipelines = await stack.enter_async_context(open_pipelines(runtime, _ROLE, drive=not detach))
        jobs = platform_jobs(runtime, pipelines)
        scheduler = await stack.enter_async_context(open_slots(runtime, pipelines, engine, jobs))
        if platform:
            await scheduler.keep_platform_jobs()
        held, ended = await scheduler.run_now(PLATFORM if platform else runtime.scope, name)
        await ended.wait()
        slot = await scheduler.slot(held)
        if slot.run_id is None or detach:
            return slot, None if slot.run_id is None else "started"
        await asyncio.to_thread(confine_tasks, runtime.settings, warn, shared=False)
        await stack.enter_async_context(open_worker(runtime, engine.dispatch(runtime.scope), slots=RUN_SLOTS))
        await stack.enter_async_context(open_task_worker(runtime, pipelines, engine))
        status = await _end(runtime, engine, pipelines, held, slot.run_id)
    return slot, status


async def _end(runtime: Runtime, engine: Engine, pipelines: Pipelines, held: Held, run_id: int) -> str:
    from noetl.runtime.projections.projector import catch_up

    if held.kind == "source":
        status = (await pipelines.finished(run_id)).status.upper()
    else:
        status = (await engine.finished(held.scope, run_id)).status
    await catch_up(runtime)
    return status
