"""Everything that runs beside requests and work: schedules, alerts, backfills, lineage, views, and sources that never stop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from noetl.engine.dispatch.engine import Engine
from noetl.pipelines.pipelines import Pipelines
from noetl.pipelines.sources.supervisor import SourceKeeper
from noetl.runtime.assembly.alerts import open_sender
from noetl.runtime.assembly.changes import open_backfills
from noetl.runtime.assembly.lineage import open_lineage
from noetl.runtime.assembly.platform_jobs import platform_jobs
from noetl.runtime.assembly.schedules import open_scheduler
from noetl.runtime.assembly.views import open_keeping
from noetl.runtime.metrics.process import Metrics
from noetl.runtime.notary import open_notary
from noetl.runtime.wiring import Runtime
from noetl.services.schedule.scheduler import Scheduler


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


@asynccontextmanager
async def open_sources(runtime: Runtime, pipelines: Pipelines) -> AsyncIterator[SourceKeeper]:
    """Keep always-on sources running for the time of the block; at its end no new turn is begun."""
    every = runtime.settings.sources.look_seconds
    keeper = SourceKeeper(runtime.database, pipelines.engine, every_seconds=every)
    keeper.start()
    try:
        yield keeper
    finally:
        await keeper.stop()
