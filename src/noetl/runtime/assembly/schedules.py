"""Schedules of one process, connected to its runtime: what people do with them, and a scheduler that runs them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from noetl.engine.dispatch.engine import Engine
from noetl.pipelines.pipelines import Pipelines
from noetl.runtime.assembly.engine import producer_of
from noetl.runtime.wiring import Runtime
from noetl.services.schedule.handlers.port import PlatformJobs
from noetl.services.schedule.handlers.starts import EmitSource, StartPlaybook
from noetl.services.schedule.meter import Meter
from noetl.services.schedule.scheduler import Limits, Scheduler
from noetl.services.schedule.schedules import Schedules


def schedules_of(runtime: Runtime, role: str = "server") -> Schedules:
    """Return what people do with the schedules of this process's database."""
    return Schedules(runtime.database, runtime.ledger, runtime.ids.mint_many, producer_of(runtime, role))


def scheduler_of(
    runtime: Runtime, pipelines: Pipelines, engine: Engine, platform: PlatformJobs, meter: Meter | None = None
) -> Scheduler:
    """Return a scheduler that does nothing by itself yet."""
    own = runtime.settings.schedules
    return Scheduler(
        runtime.database,
        runtime.ledger,
        runtime.ids.mint_many,
        producer_of(runtime, "scheduler"),
        {"playbook": StartPlaybook(engine), "source": EmitSource(pipelines.engine.runs)},
        platform,
        limits=Limits(
            poll_seconds=own.poll_seconds,
            room={"platform": own.platform_at_once, "playbook": own.at_once, "source": own.at_once},
        ),
        meter=meter,
    )


@asynccontextmanager
async def open_scheduler(
    runtime: Runtime, pipelines: Pipelines, engine: Engine, platform: PlatformJobs, meter: Meter | None = None
) -> AsyncIterator[Scheduler]:
    """Run what is due for the time of the block; at its end nothing more is claimed, and what is held is finished."""
    scheduler = scheduler_of(runtime, pipelines, engine, platform, meter)
    await scheduler.start()
    try:
        yield scheduler
    finally:
        await scheduler.stop()


@asynccontextmanager
async def open_slots(
    runtime: Runtime, pipelines: Pipelines, engine: Engine, platform: PlatformJobs
) -> AsyncIterator[Scheduler]:
    """Give a scheduler that runs what it is told to and never looks by itself, for the time of the block."""
    scheduler = scheduler_of(runtime, pipelines, engine, platform)
    scheduler.running.start()
    try:
        yield scheduler
        await scheduler.running.drain()
    finally:
        await scheduler.running.stop()
