"""`noetl scheduler`: runs what is due, on the database itself, until it is told to stop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import click

from noetl.cli.telling import tell

if TYPE_CHECKING:
    from noetl.runtime.service import Stopping
    from noetl.runtime.settings import Settings


@click.command()
@click.pass_context
def scheduler(ctx: click.Context) -> None:
    """Start what schedules plan, and do what the platform does from time to time, until SIGTERM or Ctrl-C.

    A server does the same by itself; schedulers of their own share the work with it, and any number may run at once: of
    those that see a moment come, one takes it. The first signal finishes what is under way, the second stops at once:
    what was under way is then done by another once its lease has ended.

    \b
    Examples:
      noetl scheduler
    """
    from noetl.runtime.config import load_settings
    from noetl.runtime.service import run_role

    settings = load_settings()

    def start(stopping: Stopping) -> AbstractAsyncContextManager[object]:
        return _running(settings)

    ctx.exit(run_role(start, tell))


@asynccontextmanager
async def _running(settings: Settings) -> AsyncIterator[None]:
    from noetl import __version__
    from noetl.runtime.background import open_background
    from noetl.runtime.engine import open_engine
    from noetl.runtime.pipelines import open_pipelines
    from noetl.runtime.role_endpoint import open_endpoint
    from noetl.runtime.sources import open_sources
    from noetl.runtime.telemetry import Metrics
    from noetl.runtime.wiring import open_runtime
    from noetl.runtime.write_path_metrics import open_waiting
    from noetl.runtime.write_path_watch import watching

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
