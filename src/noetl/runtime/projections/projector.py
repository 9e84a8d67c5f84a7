"""Who writes projections: a projector of its own that holds shards by lease, or a server while no such one lives.

Whoever it is, rows and checkpoint move together, and no event is folded in twice. Each store goes its own way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import asyncpg

from noetl.errors import ConfigError, NoetlError
from noetl.kernel.leases.shards import living
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.consumers import for_consumer
from noetl.kernel.projections.gc_tuning import seldom_searched
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.stores.by_type import DEFAULT, StoreLine
from noetl.kernel.projections.stores.postgres.held_shards import LeasedShards
from noetl.kernel.projections.stream_events import StreamEvents
from noetl.kernel.projections.trouble_log import Troubles
from noetl.kernel.projections.wakeups import far_durables_of
from noetl.model.mark import Mark
from noetl.runtime.projections.checkpoints import open_checkpointer
from noetl.runtime.projections.lines import RENEWALS, following, line_leases, projecting_line, projector_name
from noetl.runtime.streams.opening import mirrors, open_stream
from noetl.runtime.wiring import Runtime

__all__ = [
    "catch_up",
    "open_far_projector",
    "open_projector",
    "open_server_projector",
    "projector_name",
    "projectors_live",
]

_log = logging.getLogger(__name__)

PATIENCE_SECONDS = 10.0
"""How long a command waits for projectors to come as far as the ledger."""
_LOOK_SECONDS = 0.05

Told = Callable[[str, frozenset[int]], None]
"""Is told the name of a store and the shards of it that this process has."""


def _nobody(_store: str, _shards: frozenset[int]) -> None:
    return


@asynccontextmanager
async def open_projector(runtime: Runtime, told: Told = _nobody) -> AsyncIterator[None]:
    """Project a fair share of each store's shards for the time of the block; `told` gets them whenever they change."""
    async with AsyncExitStack() as stack:
        stack.enter_context(seldom_searched())
        for line in runtime.projections.lines:
            await stack.enter_async_context(projecting_line(runtime, line, partial(told, line.name)))
        yield


@asynccontextmanager
async def open_far_projector(runtime: Runtime, told: Told = _nobody) -> AsyncIterator[None]:
    """Do the same where there is no ledger: what the stream brings goes to this runtime's database.

    Its projectors share durable readers, one per shard, named after the cluster.
    """
    settings = runtime.settings
    line, *others = runtime.projections.lines
    if not mirrors(settings):
        raise ConfigError(
            "a projector without a ledger needs a stream",
            hint="set event_store.distribution_backend to nats-jetstream, with its connection.url",
        )
    if others:
        raise ConfigError(
            f"a projector without a ledger writes to its own database alone, not to {others[0].name}",
            hint="remove projection_stores here, or project with `noetl projector` where the ledger is",
        )
    leases = line_leases(runtime, line)
    store = line.store.held_by(LeasedShards(leases))
    async with open_stream(settings, runtime.database, "events") as stream:
        events = StreamEvents(stream, far_durables_of(settings.runtime.cluster_id), store.checkpoints)
        projector = Projector(
            events,
            store,
            line.folds,
            runtime.upcasters,
            listen=events.listen,
            shards=(),
            on_batch=events.projected,
            payloads=for_consumer(runtime.payloads, "projector"),
            erasures=runtime.erasures,
        )

        def changed(shards: frozenset[int]) -> None:
            events.hold(shards)
            projector.hold(shards)
            told(line.name, shards)

        try:
            with seldom_searched():
                async with following(projector, leases, changed):
                    yield
        finally:
            await events.close()


@asynccontextmanager
async def open_server_projector(runtime: Runtime) -> AsyncIterator[None]:
    """Let a server project for the time of the block: always, never, or while no projector of its own lives.

    What projectors of their own have closed it tells the ledger in any case.
    """
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(open_checkpointer(runtime))
        for line in runtime.projections.lines:
            await stack.enter_async_context(_projecting(runtime, line))
        yield


@asynccontextmanager
async def _projecting(runtime: Runtime, line: StoreLine) -> AsyncIterator[None]:
    wanted = runtime.settings.projections.in_server
    if wanted is False:
        yield
        return
    projector = runtime.projector(line=line)
    watching: asyncio.Task[None] | None = None
    try:
        first = line.name == DEFAULT
        if first:
            await _stand_in(runtime, line, projector)
        if not first or wanted is None:
            watching = asyncio.get_running_loop().create_task(
                _watch(runtime, line, projector, at_once=not first), name="noetl-projector-watch"
            )
        yield
    finally:
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        await projector.stop()


async def _watch(runtime: Runtime, line: StoreLine, projector: Projector, *, at_once: bool) -> None:
    troubles = Troubles()
    while True:
        if not at_once:
            await asyncio.sleep(runtime.settings.projections.lease_seconds / RENEWALS)
        at_once = False
        try:
            await _stand_in(runtime, line, projector)
            troubles.over(f"store {line.name}")
        except (NoetlError, asyncpg.PostgresError) as problem:
            # Whether others live is not known, so what is done now goes on.
            troubles.meet(f"store {line.name}", problem)


async def _stand_in(runtime: Runtime, line: StoreLine, projector: Projector) -> None:
    """Project exactly while nobody else does, unless this one always does."""
    chosen = runtime.settings.projections
    if not chosen.in_server and await projectors_live(line.database, chosen.lease_seconds):
        await projector.stop()
    else:
        await projector.start()


async def projectors_live(database: Database, lease_seconds: float) -> bool:
    """Tell whether a projector of its own has said within its lease that it is there."""
    return bool(await living(database, "projector", lease_seconds))


async def catch_up(runtime: Runtime, upto: Mark | None = None) -> None:
    """Bring projections as far as the ledger is now; where only projectors write them, wait for those that live.

    Trouble of another store than the default one is a line in the log: it is behind, and what it has waits.
    """
    if upto is None:
        await runtime.ledger.settled()
    mark = upto or await runtime.ledger.head()
    first, *others = runtime.projections.lines
    behind = asyncio.gather(*(_caught_up(runtime, line, mark) for line in others), return_exceptions=True)
    try:
        await _caught_up(runtime, first, mark)
    finally:
        for line, problem in zip(others, await behind, strict=True):
            if isinstance(problem, BaseException):
                _log.warning("projection store %s is behind: %s", line.name, problem)


async def _caught_up(runtime: Runtime, line: StoreLine, mark: Mark) -> None:
    chosen = runtime.settings.projections
    if chosen.in_server is not False:
        await runtime.projector(line=line).run_until(mark)
    elif await projectors_live(line.database, chosen.lease_seconds):
        await _covered(line, mark)


async def _covered(line: StoreLine, mark: Mark) -> None:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (await line.store.checkpoints()).covers(mark):  # noqa: ASYNC110 - others move them
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        _log.warning("projectors are behind; `noetl projections status` shows by how much")
