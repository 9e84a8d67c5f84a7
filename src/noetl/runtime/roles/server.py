"""The role `server`: the REST API, the engine that decides, background work and, where there is no other, a projector."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from noetl import __version__
from noetl.api.connections.listening import shown_url
from noetl.api.serve import serve
from noetl.api.services import Services
from noetl.engine.catalog.playbooks import Catalog
from noetl.engine.dispatch.engine import Engine
from noetl.runtime.assembly.background import open_background, open_sources
from noetl.runtime.assembly.curated import open_curated
from noetl.runtime.assembly.engine import open_engine
from noetl.runtime.assembly.pipelines import open_functions, open_pipelines
from noetl.runtime.assembly.queries import open_queries
from noetl.runtime.config import load_settings
from noetl.runtime.confinement import confine_tasks
from noetl.runtime.metrics.process import Metrics
from noetl.runtime.metrics.write_path import open_waiting
from noetl.runtime.projections.projector import open_server_projector
from noetl.runtime.roles.server_services import admission_of, services_of
from noetl.runtime.roles.worker import open_local_worker
from noetl.runtime.service import Stopping, ended_early, run_role
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import Runtime, open_runtime
from noetl.runtime.write_path.movers import open_write_path


@dataclass(frozen=True)
class Serving:
    """A server that takes requests."""

    url: str
    runtime: Runtime
    engine: Engine
    catalog: Catalog


def run_server(tell: Callable[[str], None], *, host: str | None, port: int | None, slots: int) -> int:
    """Serve until a signal ends the process; address and port are those of the settings unless given."""
    settings = load_settings()
    if slots:
        confine_tasks(settings, tell, shared=True)
    return run_role(lambda stopping: open_server(settings, stopping, tell, host=host, port=port, slots=slots), tell)


@asynccontextmanager
async def open_server(
    settings: Settings,
    stopping: Stopping,
    tell: Callable[[str], None],
    *,
    host: str | None = None,
    port: int | None = None,
    slots: int = 0,
) -> AsyncIterator[Serving]:
    """Serve for the time of the block; at its end the worker finishes first, then requests, then everything else."""
    chosen = settings.server
    address, number = host or chosen.host, chosen.port if port is None else port
    async with AsyncExitStack() as stack:
        # People's reads have connections of their own, so that they and the workers never wait for each other.
        people = await stack.enter_async_context(open_runtime(settings))
        runtime = await stack.enter_async_context(open_runtime(settings))
        metrics = Metrics(__version__, database=runtime.database, stores=runtime.projections)
        metrics.watch_pool("readers", people.database.in_use)
        metrics.watch_checks(people.ledger.checks)
        metrics.watch_waiting(await stack.enter_async_context(open_waiting(runtime)))
        ways = metrics.write_path
        moving = open_write_path(
            runtime,
            "server",
            tell,
            ways.acknowledged,
            metrics.relay,
            ways.lost,
            ways.refused,
            serves=True,
            beside=(people,),
        )
        facts = await stack.enter_async_context(moving)
        engine = await stack.enter_async_context(open_engine(runtime, metrics=metrics))
        await stack.enter_async_context(open_server_projector(metrics.projected.counted(runtime)))
        required, configured = await admission_of(people, address)
        pipelines = await stack.enter_async_context(open_pipelines(runtime))
        await stack.enter_async_context(open_functions(runtime, pipelines))
        queries = await stack.enter_async_context(open_queries(people))
        curated = await stack.enter_async_context(open_curated(people))
        scheduler = await stack.enter_async_context(open_background(runtime, pipelines, engine, metrics))
        services = services_of(
            people, runtime, engine, pipelines, queries, curated, scheduler, metrics, facts, auth_required=required
        )
        listening = _listening(services, address, number, stopping, auth_configured=configured)
        url = shown_url(address, await stack.enter_async_context(listening))
        if slots:
            await stack.enter_async_context(open_local_worker(runtime, engine, pipelines, slots))
        # Left first: no turn is begun while the worker finishes those under way.
        await stack.enter_async_context(open_sources(runtime, pipelines))
        stack.callback(scheduler.rest)
        tell(f"listening on {url}")
        yield Serving(url, runtime, engine, services.catalog)


@asynccontextmanager
async def _listening(
    services: Services, address: str, number: int, stopping: Stopping, *, auth_configured: bool
) -> AsyncIterator[int]:
    """Take requests for the time of the block; gives the port."""
    loop = asyncio.get_running_loop()
    listening: asyncio.Future[int] = loop.create_future()
    serving = loop.create_task(
        serve(services, address, number, auth_configured=auth_configured, ready=listening.set_result)
    )
    try:
        await asyncio.wait((serving, listening), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            listening.cancel()
            await serving
        ended_early(serving, stopping, "the API")
        yield listening.result()
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
