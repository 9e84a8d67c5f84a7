"""`noetl worker`: takes commands and does them, on the database itself or for a server, until it is told to stop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import click

from noetl.cli.server import worker_here
from noetl.cli.telling import tell

if TYPE_CHECKING:
    from noetl.credentials.secret import Secret
    from noetl.runtime.service import Stopping
    from noetl.runtime.settings import Settings


@click.command()
@click.option("--slots", type=click.IntRange(1), help="Commands to work on at a time; default: worker.slots.")
@click.option("--server", "url", metavar="URL", help="Server to work for; without it, the configured database.")
@click.option("--token", help="Token of the role worker; better given as NOETL_WORKER__TOKEN, which nobody sees.")
@click.pass_context
def worker(ctx: click.Context, slots: int | None, url: str | None, token: str | None) -> None:
    """Work on what executions ask for, until SIGTERM or Ctrl-C.

    A server that does not answer yet, or no longer, is waited for; an address that cannot be one and a token that it
    refuses are errors at once. The first signal finishes what is under way and takes nothing new, the second stops at once: what was under way is
    then done by another worker once its lease has ended. The payload store of the settings must be the server's.

    \b
    Examples:
      noetl worker --slots 8
      noetl worker --server http://127.0.0.1:8082
      NOETL_WORKER__TOKEN=noetl_… noetl worker --server https://noetl.example.org --slots 32
    """
    from noetl.credentials.secret import Secret
    from noetl.runtime.config import load_settings
    from noetl.runtime.service import run_role

    settings = load_settings()
    own = settings.worker
    wanted = slots or own.slots
    where = url or (own.server and own.server.get_secret_value())
    shown = token or (own.token and own.token.get_secret_value())

    def start(stopping: Stopping) -> AbstractAsyncContextManager[object]:
        if where:
            return _remote(settings, where, Secret(shown) if shown else None, wanted, stopping)
        return _local(settings, wanted)

    ctx.exit(run_role(start, tell))


@asynccontextmanager
async def _local(settings: Settings, slots: int) -> AsyncIterator[None]:
    from noetl import __version__
    from noetl.runtime.engine import open_engine
    from noetl.runtime.pipelines import open_pipelines
    from noetl.runtime.role_endpoint import open_endpoint
    from noetl.runtime.telemetry import Metrics
    from noetl.runtime.wiring import open_runtime
    from noetl.runtime.worker_metrics import WorkerMetrics
    from noetl.runtime.write_path_metrics import open_waiting
    from noetl.runtime.write_path_watch import watching

    async with open_runtime(settings) as runtime:
        metrics = Metrics(__version__, database=runtime.database)
        counted = None if settings.runtime.metrics_port is None else metrics
        working = WorkerMetrics(metrics.registry, slots)
        async with (
            watching(runtime),
            open_waiting(runtime) as waiting,
            open_endpoint(settings, "worker", metrics, tell),
            open_engine(runtime, "worker", counted) as engine,
            open_pipelines(runtime, "worker") as pipelines,
            worker_here(runtime, engine, pipelines, slots) as worker,
        ):
            metrics.watch_waiting(waiting)
            working.watch(worker)
            tell(f"working with {slots} slots on the database")
            yield


@asynccontextmanager
async def _remote(
    settings: Settings, url: str, token: Secret | None, slots: int, stopping: Stopping
) -> AsyncIterator[None]:
    from noetl.runtime.awaited_server import Waiting
    from noetl.runtime.remote_worker import open_remote_worker
    from noetl.runtime.role_endpoint import open_endpoint
    from noetl.runtime.service import ended_early
    from noetl.runtime.worker_metrics import FarWorkerMetrics

    metrics = FarWorkerMetrics(slots)
    waits = Waiting(stopping.nothing_begun, tell)
    async with (
        open_endpoint(settings, "worker", metrics, tell),
        open_remote_worker(settings, url, token, waits, slots=slots, watch=metrics.working.watch) as running,
    ):
        ended_early(running, stopping, "the worker")
        tell(f"working with {slots} slots for {url}")
        yield
