"""What the commands for DAGs and tasks open: settings go in, pipelines come out, with workers where work is to be done."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from noetl.cli.telling import warn
from noetl.cli.whoami import ROLE

if TYPE_CHECKING:
    from noetl.pipelines.attempts import OnTask
    from noetl.pipelines.pipelines import Pipelines
    from noetl.runtime.wiring import Runtime


@asynccontextmanager
async def opened(*, drive: bool = True) -> AsyncIterator[tuple[Runtime, Pipelines]]:
    """Give pipelines for the time of the block; those that drive also route what follows and take back lost work."""
    from noetl.runtime.config import load_settings
    from noetl.runtime.pipelines import open_pipelines
    from noetl.runtime.wiring import open_runtime
    from noetl.runtime.write_path import open_write_path

    async with (
        open_runtime(load_settings()) as runtime,
        open_write_path(runtime, ROLE, warn),
        open_pipelines(runtime, ROLE, drive=drive) as pipelines,
    ):
        yield runtime, pipelines


@asynccontextmanager
async def working(runtime: Runtime, pipelines: Pipelines, on_task: OnTask, *, warm: bool) -> AsyncIterator[None]:
    """Have workers of this process, for playbooks too; `warm` starts Spark at once. Projections are caught up at the end."""
    from noetl.runtime.engine import open_engine, open_worker
    from noetl.runtime.pipelines import open_task_worker
    from noetl.runtime.projector import catch_up
    from noetl.runtime.run import RUN_SLOTS

    async with (
        open_engine(runtime, ROLE) as engine,
        open_worker(runtime, engine.dispatch(runtime.scope), slots=RUN_SLOTS),
        open_task_worker(runtime, pipelines, engine, warm=warm, on_task=on_task),
    ):
        yield
    await catch_up(runtime)
