"""What commands for DAGs, tasks and changes of data open: pipelines, with workers where work is to be done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from noetl.pipelines.changes.engine import Changes
    from noetl.pipelines.pipelines import Pipelines
    from noetl.pipelines.sources.turns import Turns
    from noetl.pipelines.worker.attempts import OnTask
    from noetl.runtime.wiring import Runtime

_ROLE: Final = "cli"


@asynccontextmanager
async def opened(warn: Callable[[str], None], *, drive: bool = True) -> AsyncIterator[tuple[Runtime, Pipelines]]:
    """Give pipelines for the time of the block; those that drive also route what follows and take back lost work."""
    from noetl.runtime.assembly.pipelines import open_pipelines
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime
    from noetl.runtime.write_path.movers import open_write_path

    async with (
        open_runtime(load_settings()) as runtime,
        open_write_path(runtime, _ROLE, warn),
        open_pipelines(runtime, _ROLE, drive=drive) as pipelines,
    ):
        yield runtime, pipelines


@asynccontextmanager
async def working(
    runtime: Runtime,
    pipelines: Pipelines,
    warn: Callable[[str], None],
    on_task: OnTask = lambda grant, status, error: None,
    *,
    warm: bool = False,
) -> AsyncIterator[None]:
    """Have workers of this process, for playbooks too; `warm` starts Spark at once. Projections are caught up at the end."""
    from noetl.runtime.assembly.engine import open_engine, open_worker
    from noetl.runtime.assembly.pipelines import open_task_worker
    from noetl.runtime.commands.run import RUN_SLOTS
    from noetl.runtime.confinement import confine_tasks
    from noetl.runtime.projections.projector import catch_up

    await asyncio.to_thread(confine_tasks, runtime.settings, warn, shared=False)
    async with (
        open_engine(runtime, _ROLE) as engine,
        open_worker(runtime, engine.dispatch(runtime.scope), slots=RUN_SLOTS),
        open_task_worker(runtime, pipelines, engine, warm=warm, on_task=on_task),
    ):
        yield
    await catch_up(runtime)


def turns_of(runtime: Runtime, pipelines: Pipelines) -> Turns:
    """Return what stops sources that are kept running, and lets them go on."""
    from noetl.pipelines.sources.turns import Turns

    return Turns(runtime.database, pipelines.engine)


def changes_here(runtime: Runtime, pipelines: Pipelines) -> Changes:
    """Return what changes data, in the name of a command."""
    from noetl.runtime.assembly.changes import changes_of

    return changes_of(runtime, pipelines, _ROLE)


@asynccontextmanager
async def backfilling(runtime: Runtime, pipelines: Pipelines, warn: Callable[[str], None]) -> AsyncIterator[None]:
    """Do in this process what is to be done, backfills too, for the time of the block."""
    from noetl.runtime.assembly.changes import open_backfills

    async with working(runtime, pipelines, warn), open_backfills(runtime, pipelines, _ROLE):
        yield
