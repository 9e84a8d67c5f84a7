"""`noetl server`: the REST API, the engine that decides, and a projector where there is no other, until told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

import click

from noetl.cli.telling import tell

if TYPE_CHECKING:
    from noetl.api.services import Services
    from noetl.catalog.playbooks import Catalog
    from noetl.credentials.store import CredentialStore
    from noetl.curated.reading import CuratedReads
    from noetl.dispatch.engine import Engine
    from noetl.execute.worker import Worker
    from noetl.pipelines.pipelines import Pipelines
    from noetl.query.queries import Queries
    from noetl.runtime.service import Stopping
    from noetl.runtime.settings import Settings
    from noetl.runtime.telemetry import Metrics
    from noetl.runtime.wiring import Runtime
    from noetl.schedule.scheduler import Scheduler
    from noetl.stream.facts import Facts

host_option = click.option("--host", help="Address to listen on; default: the setting server.host.")
port_option = click.option("--port", type=click.IntRange(0, 65_535), help="Port; default: the setting server.port.")


@click.command()
@host_option
@port_option
@click.option("--workers-slots", "slots", type=click.IntRange(0), default=0, show_default=True,
              help="Slots of a worker in this process; 0 starts none.")  # fmt: skip
@click.pass_context
def server(ctx: click.Context, host: str | None, port: int | None, slots: int) -> None:
    """Serve the REST API, decide what happens next and keep the projections, until SIGTERM or Ctrl-C.

    The first signal finishes what is under way, the second stops at once. Any other address than the loopback is
    refused as long as the organization has no API token. Workers are processes of their own: `noetl worker`.

    \b
    Examples:
      noetl server
      noetl server --port 0 --workers-slots 8
      noetl server --host 0.0.0.0 --port 8082
    """
    from noetl.runtime.config import load_settings
    from noetl.runtime.service import run_role

    settings = load_settings()

    def start(stopping: Stopping) -> AbstractAsyncContextManager[object]:
        return open_server(settings, stopping, host=host, port=port, slots=slots)

    ctx.exit(run_role(start, tell))


@dataclass(frozen=True)
class Serving:
    """A server that takes requests."""

    url: str
    runtime: Runtime
    engine: Engine
    catalog: Catalog


@asynccontextmanager
async def open_server(
    settings: Settings,
    stopping: Stopping,
    *,
    host: str | None = None,
    port: int | None = None,
    slots: int = 0,
    said: Callable[[str], None] = tell,
) -> AsyncIterator[Serving]:
    """Serve for the time of the block; at its end the worker finishes first, then requests, then everything else."""
    from noetl import __version__
    from noetl.api.serve import serve
    from noetl.runtime.background import open_background
    from noetl.runtime.curated import open_curated
    from noetl.runtime.engine import open_engine
    from noetl.runtime.listening import shown_url
    from noetl.runtime.pipelines import open_functions, open_pipelines
    from noetl.runtime.projector import open_server_projector
    from noetl.runtime.queries import open_queries
    from noetl.runtime.service import ended_early
    from noetl.runtime.sources import open_sources
    from noetl.runtime.telemetry import Metrics
    from noetl.runtime.wiring import open_runtime
    from noetl.runtime.write_path import open_write_path
    from noetl.runtime.write_path_metrics import open_waiting

    chosen = settings.server
    address, number = host or chosen.host, chosen.port if port is None else port
    async with AsyncExitStack() as stack:
        # People's reads have connections of their own, so that they and the workers never wait for each other.
        people = await stack.enter_async_context(open_runtime(settings))
        runtime = await stack.enter_async_context(open_runtime(settings))
        metrics = Metrics(__version__, database=runtime.database, stores=runtime.projections)
        metrics.watch_pool("readers", people.database.in_use)
        metrics.watch_waiting(await stack.enter_async_context(open_waiting(runtime)))
        ways = metrics.write_path
        moving = open_write_path(
            runtime, "server", said, ways.acknowledged, metrics.relay, ways.lost, serves=True, beside=(people,)
        )
        facts = await stack.enter_async_context(moving)
        engine = await stack.enter_async_context(open_engine(runtime, metrics=metrics))
        await stack.enter_async_context(open_server_projector(metrics.projected.counted(runtime)))
        required, configured = await _admission(people, address)
        pipelines = await stack.enter_async_context(open_pipelines(runtime))
        await stack.enter_async_context(open_functions(runtime, pipelines))
        queries = await stack.enter_async_context(open_queries(people))
        curated = await stack.enter_async_context(open_curated(people))
        scheduler = await stack.enter_async_context(open_background(runtime, pipelines, engine, metrics))
        services = _services(
            people, runtime, engine, pipelines, queries, curated, scheduler, metrics, facts, auth_required=required
        )
        listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        serving = asyncio.get_running_loop().create_task(
            serve(services, address, number, auth_configured=configured, ready=listening.set_result)
        )
        stack.push_async_callback(_ended, serving)
        await asyncio.wait((serving, listening), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            listening.cancel()
            await serving
        ended_early(serving, stopping, "the API")
        if slots:
            await stack.enter_async_context(worker_here(runtime, engine, pipelines, slots))
        # Left first: no turn is begun while the worker finishes those under way.
        await stack.enter_async_context(open_sources(runtime, pipelines))
        stack.callback(scheduler.rest)
        url = shown_url(address, listening.result())
        said(f"listening on {url}")
        yield Serving(url, runtime, engine, services.catalog)


@asynccontextmanager
async def worker_here(runtime: Runtime, engine: Engine, pipelines: Pipelines, slots: int) -> AsyncIterator[Worker]:
    """Work on the database itself for the time of the block, on commands and on tasks; what is begun is finished."""
    from noetl.runtime.engine import open_worker, producer_of
    from noetl.runtime.pipelines import open_task_worker
    from noetl.runtime.service import registered

    own, name = runtime.settings.worker, producer_of(runtime, "worker")
    async with (
        registered(runtime, name, slots=slots, pool=own.pool, every_seconds=own.register_seconds),
        open_worker(runtime, engine.dispatch(runtime.scope), slots=slots, name=name) as worker,
        open_task_worker(runtime, pipelines, engine, slots=own.task_slots, runtimes=own.runtimes),
    ):
        yield worker


async def _ended(serving: asyncio.Task[None]) -> None:
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def _admission(people: Runtime, address: str) -> tuple[bool | None, bool]:
    """Tell whether requests must carry tokens (None: while there are any), and whether an address for all may be opened."""
    from noetl.credentials.tokens import ApiTokens
    from noetl.runtime.listening import is_loopback

    wanted = people.settings.server.require_tokens
    # Beyond the loopback the last token's end must not open the server to everybody.
    required = True if wanted is None and not is_loopback(address) else wanted
    return required, bool(required) and await ApiTokens(people.database).any_live(people.scope)


def _services(
    people: Runtime,
    runtime: Runtime,
    engine: Engine,
    pipelines: Pipelines,
    queries: Queries,
    curated: CuratedReads,
    scheduler: Scheduler,
    metrics: Metrics,
    facts: Facts | None,
    *,
    auth_required: bool | None,
) -> Services:
    from noetl import __version__
    from noetl.api.hook_gate import HookLimits
    from noetl.api.services import Services
    from noetl.catalog.playbooks import Catalog
    from noetl.credentials.tokens import ApiTokens
    from noetl.credentials.worker_secret import make_worker_secret
    from noetl.execute.tools.registry import known_kinds
    from noetl.pipelines.lake_files import LakeFiles
    from noetl.runtime.engine import producer_of
    from noetl.runtime.pipelines import lake_of
    from noetl.runtime.secrets import LocalSecrets
    from noetl.runtime.streams import mirrors
    from noetl.runtime.write_path_choice import lacking

    producer, kinds = producer_of(people, "server"), tuple(sorted(known_kinds()))
    credentials = _credentials(people)
    own = people.settings.sources
    return Services(
        engine=engine,
        facts=facts,
        database=people.database,
        stages=people.projections.line_of("stage").database,
        worker_database=runtime.database,
        ledger=people.ledger,
        history=people.history,
        catalog=Catalog(people.database, people.ledger, people.payloads, people.ids.mint, producer, kinds),
        payloads=people.payloads,
        replay=people.replay,
        verifier=people.verifier,
        credentials=credentials,
        secrets=None if credentials is None else cache(partial(LocalSecrets, people.settings, people.database)),
        tokens=ApiTokens(people.database),
        metrics=metrics,
        lost_facts=lambda: metrics.write_path.lost_facts,
        no_stream=None if mirrors(people.settings) else lacking(people.settings),
        mint=people.ids.mint,
        producer=producer,
        version=__version__,
        auth_required=auth_required,
        default_scope=people.scope,
        worker_secret=None if auth_required else make_worker_secret(people.settings.key_directory),
        pipelines=pipelines,
        lake=LakeFiles(lake_of(people.settings)),
        queries=queries,
        curated=curated,
        scheduler=scheduler,
        hook_limits=HookLimits(
            max_bytes=own.hook_max_bytes,
            window_seconds=own.hook_window_seconds,
            at_once=own.hooks_at_once,
            per_minute=own.hooks_per_minute,
        ),
    )


def _credentials(people: Runtime) -> CredentialStore | None:
    """Return the store of credentials, or None where no master key is configured."""
    import logging

    from noetl.credentials.store import CredentialStore
    from noetl.errors import ConfigError
    from noetl.runtime.secrets import open_keyring

    try:
        return CredentialStore(people.database, open_keyring(people.settings))
    except ConfigError as problem:
        logging.getLogger(__name__).warning("credentials cannot be kept: %s", problem.message)
        return None
