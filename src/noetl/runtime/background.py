"""Everything that goes on by itself beside requests and work: schedules, messages about alerts, backfills, lineage, views."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from noetl.dispatch.engine import Engine
from noetl.pipelines.pipelines import Pipelines
from noetl.runtime.alerts import open_sender
from noetl.runtime.changes import open_backfills
from noetl.runtime.lineage import open_lineage
from noetl.runtime.notary import open_notary
from noetl.runtime.platform_jobs import platform_jobs
from noetl.runtime.schedules import open_scheduler
from noetl.runtime.telemetry import Metrics
from noetl.runtime.views import open_keeping
from noetl.runtime.wiring import Runtime
from noetl.schedule.scheduler import Scheduler


@asynccontextmanager
async def open_background(
    runtime: Runtime, pipelines: Pipelines, engine: Engine, metrics: Metrics | None = None
) -> AsyncIterator[Scheduler]:
    """Keep it going for the time of the block; any number of processes may do so on one database. Gives the scheduler."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(open_sender(runtime))
        await stack.enter_async_context(open_backfills(runtime, pipelines))
        await stack.enter_async_context(open_lineage(runtime))
        await stack.enter_async_context(open_notary(runtime, None if metrics is None else metrics.notary))
        await stack.enter_async_context(open_keeping(runtime, pipelines))
        meter = None if metrics is None else metrics.schedules
        jobs = platform_jobs(runtime, pipelines)
        # Left first, so that nothing new is begun while the others finish.
        yield await stack.enter_async_context(open_scheduler(runtime, pipelines, engine, jobs, meter))
