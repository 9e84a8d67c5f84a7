"""Who writes projections: a projector of its own that holds shards by lease, or a server while no such one lives.

Whoever it is, rows and checkpoint move together, and no event is folded in twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from noetl.errors import ConfigError, NoetlError
from noetl.ledger.database import Database
from noetl.ledger.shard_leases import ShardLeases
from noetl.model.mark import Mark
from noetl.project.epochs import Epochs
from noetl.project.from_stream import StreamEvents
from noetl.project.holding import LeasedShards
from noetl.project.projector import Projector
from noetl.project.streamed import StreamWaking, durable_of
from noetl.runtime.checkpoints import open_checkpointer
from noetl.runtime.settings import Settings
from noetl.runtime.streams import mirrors, open_stream
from noetl.runtime.wiring import Runtime

_log = logging.getLogger(__name__)

RENEWALS = 5
"""How often a lease is renewed before it would end."""
PATIENCE_SECONDS = 10.0
"""How long a command waits for projectors to come as far as the ledger."""
_LOOK_SECONDS = 0.05

_LIVING = """
SELECT EXISTS (SELECT FROM noetl.shard_holder
               WHERE role = 'projector' AND heartbeat_at > clock_timestamp() - make_interval(secs => $1))
"""

Told = Callable[[frozenset[int]], None]


def projector_name(settings: Settings) -> str:
    """Return the stable name of this process among projectors; a plain number is that of the n-th one."""
    given = settings.runtime.shard_id or settings.runtime.node_id
    return f"noetl-projector-{int(given)}" if given.isdecimal() else given


@asynccontextmanager
async def open_projector(runtime: Runtime, told: Told = lambda _: None) -> AsyncIterator[ShardLeases]:
    """Project a fair share of the shards for the time of the block; `told` gets the shards whenever they change."""
    leases = _leases(runtime)
    barrier = runtime.settings.projections.barrier_interval_ms / 1000
    epochs = Epochs(runtime.database, LeasedShards(leases), barrier)
    async with _waking(runtime) as waking:
        projector = runtime.projector(epochs, None if waking is None else waking.listen)
        projector.hold(())

        def changed(shards: frozenset[int]) -> None:
            epochs.hold(shards)
            projector.hold(shards)
            if waking is not None:
                waking.hold(shards)
            told(shards)

        async with _following(projector, leases, changed), _closing(epochs):
            yield leases


@asynccontextmanager
async def open_far_projector(runtime: Runtime, told: Told = lambda _: None) -> AsyncIterator[ShardLeases]:
    """Do the same where there is no ledger: what the stream brings goes to this runtime's database.

    Its projectors share durable readers, one per shard, named after the cluster.
    """
    settings, leases = runtime.settings, _leases(runtime)
    if not mirrors(settings):
        raise ConfigError(
            "a projector without a ledger needs a stream",
            hint="set event_store.distribution_backend to nats-jetstream, with its connection.url",
        )
    store = runtime.projections.held_by(LeasedShards(leases))
    async with open_stream(settings, runtime.database, "events") as stream:
        events = StreamEvents(stream, durable_of(settings.runtime.cluster_id), store.checkpoints)
        projector = Projector(
            events, store, runtime.folds, runtime.upcasters, listen=events.listen, shards=(), on_batch=events.projected
        )

        def changed(shards: frozenset[int]) -> None:
            events.hold(shards)
            projector.hold(shards)
            told(shards)

        try:
            async with _following(projector, leases, changed):
                yield leases
        finally:
            await events.close()


def _leases(runtime: Runtime) -> ShardLeases:
    lease = runtime.settings.projections.lease_seconds
    name = projector_name(runtime.settings)
    return ShardLeases(runtime.database, "projector", name, lease_seconds=lease, every_seconds=lease / RENEWALS)


@asynccontextmanager
async def _waking(runtime: Runtime) -> AsyncIterator[StreamWaking | None]:
    """Let the stream wake the projector where events are mirrored to one."""
    settings = runtime.settings
    if not mirrors(settings):
        yield None
        return
    async with open_stream(settings, runtime.database, "events") as stream:
        durable = durable_of(projector_name(settings))
        yield StreamWaking(stream, durable, runtime.projections.checkpoints, runtime.listen)


@asynccontextmanager
async def _closing(epochs: Epochs) -> AsyncIterator[None]:
    closing = asyncio.get_running_loop().create_task(epochs.run(), name="noetl-projector-epochs")
    try:
        yield
    finally:
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)


@asynccontextmanager
async def _following(projector: Projector, leases: ShardLeases, changed: Told) -> AsyncIterator[None]:
    await projector.start()
    try:
        await leases.start(changed)
        yield
    finally:
        # The work ends before the shards are given back, so that the next one waits for no lock of ours.
        await projector.stop()
        await leases.stop()


@asynccontextmanager
async def open_server_projector(runtime: Runtime) -> AsyncIterator[None]:
    """Let a server project for the time of the block: always, never, or while no projector of its own lives.

    What projectors of their own have closed it tells the ledger in any case.
    """
    async with open_checkpointer(runtime), _projecting(runtime):
        yield


@asynccontextmanager
async def _projecting(runtime: Runtime) -> AsyncIterator[None]:
    wanted = runtime.settings.projections.in_server
    if wanted is False:
        yield
        return
    projector = runtime.projector()
    watching: asyncio.Task[None] | None = None
    try:
        if wanted:
            await projector.start()
        else:
            await _stand_in(runtime, projector)
            watching = asyncio.get_running_loop().create_task(_watch(runtime, projector), name="noetl-projector-watch")
        yield
    finally:
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        await projector.stop()


async def _watch(runtime: Runtime, projector: Projector) -> None:
    while True:
        await asyncio.sleep(runtime.settings.projections.lease_seconds / RENEWALS)
        try:
            await _stand_in(runtime, projector)
        except NoetlError as problem:
            _log.warning("it is not known whether projectors live: %s", problem.message)


async def _stand_in(runtime: Runtime, projector: Projector) -> None:
    """Project exactly while nobody else does."""
    if await projectors_live(runtime.database, runtime.settings.projections.lease_seconds):
        await projector.stop()
    else:
        await projector.start()


async def projectors_live(database: Database, lease_seconds: float) -> bool:
    """Tell whether a projector of its own has said within its lease that it is there."""
    async with database.transaction(None) as connection:
        return bool(await connection.fetchval(_LIVING, lease_seconds))


async def catch_up(runtime: Runtime, upto: Mark | None = None) -> None:
    """Bring projections as far as the ledger is now; where only projectors write them, wait for those that live."""
    if upto is None:
        await runtime.ledger.settled()
    mark = upto or await runtime.ledger.head()
    chosen = runtime.settings.projections
    if chosen.in_server is not False:
        await runtime.projector().run_until(mark)
    elif await projectors_live(runtime.database, chosen.lease_seconds):
        await _covered(runtime, mark)


async def _covered(runtime: Runtime, mark: Mark) -> None:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (await runtime.projections.checkpoints()).covers(mark):  # noqa: ASYNC110 - others move them
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        _log.warning("projectors are behind; `noetl projections status` shows by how much")
