"""Engine and workers of one process, connected to its runtime."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from noetl.engine.catalog.plan_cache import Plans
from noetl.engine.catalog.playbooks import Catalog
from noetl.engine.catalog.postgres import PostgresEntries
from noetl.engine.dispatch.engine import Engine
from noetl.engine.dispatch.grants import CommandGrant
from noetl.engine.dispatch.port import Dispatch
from noetl.engine.dispatch.stores import postgres_stores
from noetl.engine.plan.planned import FrameDefaults, LoopDefaults
from noetl.engine.tools.registry import known_kinds, load_tools
from noetl.engine.tools.resources import WorkerResources
from noetl.engine.worker.services import Services
from noetl.engine.worker.worker import Worker
from noetl.errors import NoetlError
from noetl.kernel.payloads.consumers import for_consumer
from noetl.kernel.projections.gc_tuning import seldom_searched
from noetl.kernel.stream.cancellation import ended
from noetl.kernel.stream.hints import Hints
from noetl.runtime.confinement import hide_secrets
from noetl.runtime.locality import patience_of, process_locator, wish_of
from noetl.runtime.metrics.process import Metrics
from noetl.runtime.scratch import kept_scratch
from noetl.runtime.secrets import LocalSecrets
from noetl.runtime.settings.declaration import FramePolicy, FramePolicyDefaults
from noetl.runtime.spark.frames import frame_pool
from noetl.runtime.streams.hints import nudging, open_hints
from noetl.runtime.wiring import Runtime

_log = logging.getLogger(__name__)

GARBAGE_LOOK = 20_000
"""How many more values than before there must be until unreachable ones are looked for."""
RENEW_SECONDS = 30.0
"""How often a worker looks for keychain entries that are about to expire."""


def producer_of(runtime: Runtime, role: str) -> str:
    """Return the locator of this process in a role."""
    return process_locator(runtime.settings.runtime, role)


def catalog_of(runtime: Runtime, role: str, plans: Plans | None = None) -> Catalog:
    """Return the playbooks of this process's database; with the `plans` of an engine nothing it knows is read again."""
    return Catalog(
        PostgresEntries(runtime.database, runtime.ledger),
        runtime.payloads,
        runtime.ids.mint,
        producer_of(runtime, role),
        plans or Plans(known_kinds()),
    )


@asynccontextmanager
async def open_engine(runtime: Runtime, role: str = "server", metrics: Metrics | None = None) -> AsyncIterator[Engine]:
    """Give the engine of this process, with its reaper running, for the time of the block; `metrics` count its work."""
    payloads = for_consumer(runtime.payloads, role)
    if metrics is not None:
        runtime.ledger.on_transition = metrics.observe
        metrics.watch_checks(runtime.ledger.checks)
    engine = Engine(
        postgres_stores(runtime.database, runtime.ledger),
        runtime.ledger,
        payloads,
        runtime.ids.mint,
        runtime.ids.mint_many,
        producer_of(runtime, role),
        kinds=tuple(sorted(known_kinds())),
        patience=patience_of(runtime.settings),
        defaults=_defaults(runtime.settings.frame_policy_defaults),
        max_child_depth=runtime.settings.runtime.scheduler.max_child_depth,
    )
    if metrics is not None:
        metrics.watch_reaper(engine.reaper)
        metrics.watch_pool("workers", runtime.database.in_use)
    engine.reaper.start()
    try:
        with seldom_searched(GARBAGE_LOOK):
            async with open_hints(runtime.settings) as hints, _hinting(engine, hints):
                yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def _hinting(engine: Engine, hints: Hints | None) -> AsyncIterator[None]:
    """Let others know at once that work waits here, and how far loops are, where there are hints."""
    if hints is None:
        yield
        return
    engine.so_far.hints = hints
    writing = asyncio.get_running_loop().create_task(engine.so_far.run(), name="noetl-loops-so-far")
    try:
        async with nudging(engine.work, hints):
            yield
    finally:
        await ended(writing)


def _defaults(given: FramePolicyDefaults) -> LoopDefaults:
    return LoopDefaults(loop=_frames(given.loop), fanout=_frames(given.fanout))


def _frames(given: FramePolicy) -> FrameDefaults:
    return FrameDefaults(
        most_rows=given.size,
        max_seconds=given.duration_ms / 1000,
        max_bytes=given.memory_bytes,
        max_in_flight=given.parallelism,
    )


@asynccontextmanager
async def open_worker(
    runtime: Runtime,
    dispatch: Dispatch,
    *,
    slots: int,
    name: str | None = None,
    on_rows: Callable[[CommandGrant, int, int], None] = lambda grant, done, failed: None,
) -> AsyncIterator[Worker]:
    """Give a running worker for the time of the block; at its end it finishes what it has begun."""
    await asyncio.to_thread(hide_secrets, runtime.settings)
    resources = WorkerResources()
    python = {"cache": runtime.settings.cache_directory / "python"}
    secrets = LocalSecrets(runtime.settings, runtime.database, runtime.scope)
    spark = frame_pool(runtime.settings, runtime.scope, database=runtime.database)
    services = Services(
        scope=runtime.scope,
        tools=load_tools({"python": python, "spark": {"queries": spark}}),
        lanes=spark,
        secrets=secrets,
        store=for_consumer(runtime.payloads, "worker"),
        resources=resources,
        find=dispatch.reference,
        inline_bytes=runtime.settings.payload_store.threshold_bytes,
        frame_ctx_bytes=runtime.settings.runtime.scheduler.max_frame_ctx_bytes,
    )
    worker = Worker(
        name or producer_of(runtime, "worker"),
        dispatch,
        services,
        slots=slots,
        on_rows=on_rows,
        wish=wish_of(runtime.settings),
        most_loops=runtime.settings.runtime.scheduler.max_inflight_frames_per_worker,
    )
    running = asyncio.get_running_loop().create_task(worker.run(), name="noetl-worker")
    renewing = asyncio.get_running_loop().create_task(_renew(secrets), name="noetl-keychain")
    try:
        async with kept_scratch(resources, runtime.settings, dispatch):
            yield worker
            await worker.stop()
            await running
    finally:
        if not running.done():
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        await resources.aclose()
        await spark.close()


async def _renew(secrets: LocalSecrets) -> None:
    while True:
        await asyncio.sleep(RENEW_SECONDS)
        try:
            await secrets.renew_due()
        except NoetlError as problem:
            _log.warning("keychain entries could not be renewed: %s", problem.message)
