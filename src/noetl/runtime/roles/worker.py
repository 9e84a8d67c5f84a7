"""The role `worker`: does commands and tasks, on the database itself or for a server elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from noetl import __version__
from noetl.engine.dispatch.engine import Engine
from noetl.engine.worker.worker import Worker
from noetl.pipelines.pipelines import Pipelines
from noetl.runtime.assembly.engine import open_engine, open_worker, producer_of
from noetl.runtime.assembly.pipelines import open_pipelines, open_task_worker
from noetl.runtime.config import load_settings
from noetl.runtime.confinement import confine_tasks
from noetl.runtime.metrics.endpoint import open_endpoint
from noetl.runtime.metrics.process import Metrics
from noetl.runtime.metrics.worker import FarWorkerMetrics, WorkerMetrics
from noetl.runtime.metrics.write_path import open_waiting
from noetl.runtime.remote.awaited_server import Waiting
from noetl.runtime.remote.local_token import local_token_for
from noetl.runtime.remote.worker import open_remote_worker
from noetl.runtime.service import Stopping, ended_early, registered, run_role
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import Runtime, open_runtime
from noetl.runtime.write_path.watch import watching
from noetl.services.credentials.secret import Secret


def run_worker(tell: Callable[[str], None], *, slots: int | None, url: str | None, token: str | None) -> int:
    """Work until a signal ends the process: for the server at `url`, or on the database if neither it nor the settings name one."""
    settings = load_settings()
    confine_tasks(settings, tell, shared=True)
    own = settings.worker
    wanted = slots or own.slots
    where = url or (own.server and own.server.get_secret_value())
    shown = token or (own.token and own.token.get_secret_value())

    def start(stopping: Stopping) -> AbstractAsyncContextManager[object]:
        if where:
            given = Secret(shown) if shown else local_token_for(where, settings.key_directory)
            return _far(settings, where, given, wanted, stopping, tell)
        return _near(settings, wanted, tell)

    return run_role(start, tell)


@asynccontextmanager
async def open_local_worker(
    runtime: Runtime, engine: Engine, pipelines: Pipelines, slots: int
) -> AsyncIterator[Worker]:
    """Work on the database itself for the time of the block, on commands and on tasks; what is begun is finished."""
    own, name = runtime.settings.worker, producer_of(runtime, "worker")
    async with (
        registered(runtime, name, slots=slots, pool=own.pool, every_seconds=own.register_seconds),
        open_worker(runtime, engine.dispatch(runtime.scope), slots=slots, name=name) as worker,
        open_task_worker(runtime, pipelines, engine, slots=own.task_slots, runtimes=own.runtimes),
    ):
        yield worker


@asynccontextmanager
async def _near(settings: Settings, slots: int, tell: Callable[[str], None]) -> AsyncIterator[None]:
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
            open_local_worker(runtime, engine, pipelines, slots) as worker,
        ):
            metrics.watch_waiting(waiting)
            working.watch(worker)
            tell(f"working with {slots} slots on the database")
            yield


@asynccontextmanager
async def _far(
    settings: Settings, url: str, token: Secret | None, slots: int, stopping: Stopping, tell: Callable[[str], None]
) -> AsyncIterator[None]:
    metrics = FarWorkerMetrics(slots)
    waits = Waiting(stopping.nothing_begun, tell)
    async with (
        open_endpoint(settings, "worker", metrics, tell),
        open_remote_worker(settings, url, token, waits, slots=slots, watch=metrics.working.watch) as running,
    ):
        ended_early(running, stopping, "the worker")
        tell(f"working with {slots} slots for {url}")
        yield
