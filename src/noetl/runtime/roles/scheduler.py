"""The role `scheduler`: starts what schedules plan and does what the platform does from time to time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from noetl import __version__
from noetl.runtime.assembly.background import open_background, open_sources
from noetl.runtime.assembly.engine import open_engine
from noetl.runtime.assembly.pipelines import open_pipelines
from noetl.runtime.config import load_settings
from noetl.runtime.metrics.endpoint import open_endpoint
from noetl.runtime.metrics.process import Metrics
from noetl.runtime.metrics.write_path import open_waiting
from noetl.runtime.service import run_role
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import open_runtime
from noetl.runtime.write_path.watch import watching


def run_scheduler(tell: Callable[[str], None]) -> int:
    """Run what is due until a signal ends the process."""
    settings = load_settings()
    return run_role(lambda stopping: _running(settings, tell), tell)


@asynccontextmanager
async def _running(settings: Settings, tell: Callable[[str], None]) -> AsyncIterator[None]:
    async with open_runtime(settings) as runtime:
        metrics = Metrics(__version__, database=runtime.database)
        counted = None if settings.runtime.metrics_port is None else metrics
        async with (
            watching(runtime),
            open_waiting(runtime) as waiting,
            open_endpoint(settings, "scheduler", metrics, tell),
            open_engine(runtime, "scheduler", counted) as engine,
            open_pipelines(runtime, "scheduler") as pipelines,
            open_background(runtime, pipelines, engine, counted),
            open_sources(runtime, pipelines),
        ):
            metrics.watch_waiting(waiting)
            tell("running what is due")
            yield
