"""One store's line of projecting: its shards are held by leases in its own database, for the time of a block.

The default store must be there when a projector starts. Any other may come later; what it has waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import asyncpg

from noetl.errors import NoetlError
from noetl.kernel.leases.shards import ShardLeases
from noetl.kernel.projections.epochs import Epochs
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.stores.by_type import DEFAULT, StoreLine
from noetl.kernel.projections.stores.postgres.held_shards import LeasedShards
from noetl.kernel.projections.trouble_log import Troubles
from noetl.kernel.projections.wakeups import StreamWaking, durable_of
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.streams.hints import shards_moved
from noetl.runtime.streams.opening import mirrors, open_stream
from noetl.runtime.wiring import Runtime

RENEWALS = 5
"""How often a lease is renewed before it would end."""
_AGAIN_SECONDS = 1.0
"""How long a store that is away when a projector starts is left alone."""

Told = Callable[[frozenset[int]], None]


def projector_name(settings: Settings) -> str:
    """Return the stable name of this process among projectors; a plain number is that of the n-th one."""
    given = settings.runtime.shard_id or settings.runtime.node_id
    return f"noetl-projector-{int(given)}" if given.isdecimal() else given


def line_leases(runtime: Runtime, line: StoreLine) -> ShardLeases:
    """Return this process's leases on shards of a store."""
    lease = runtime.settings.projections.lease_seconds
    name = projector_name(runtime.settings)
    return ShardLeases(
        line.database, "projector", name, lease_seconds=lease, every_seconds=lease / RENEWALS,
        neighbours=partial(shards_moved, runtime.settings, f"projector/{line.name}"),
    )  # fmt: skip


@asynccontextmanager
async def projecting_line(runtime: Runtime, line: StoreLine, told: Told) -> AsyncIterator[None]:
    """Project a fair share of the shards into a store; epochs are told of the default one."""
    leases = line_leases(runtime, line)
    held = LeasedShards(leases)
    barrier = runtime.settings.projections.barrier_interval_ms / 1000
    epochs = Epochs(line.database, held, barrier) if line.name == DEFAULT else None
    async with _waking(runtime, line) as waking:
        projector = runtime.projector(epochs or held, None if waking is None else waking.listen, line)
        projector.hold(())

        def changed(shards: frozenset[int]) -> None:
            if epochs is not None:
                epochs.hold(shards)
            projector.hold(shards)
            if waking is not None:
                waking.hold(shards)
            told(shards)

        async with following(projector, leases, changed, later=line.name != DEFAULT), _closing(epochs):
            yield


@asynccontextmanager
async def following(
    projector: Projector, leases: ShardLeases, changed: Told, *, later: bool = False
) -> AsyncIterator[None]:
    """Let a projector follow the shards that the leases have; `later` waits for a database that is away meanwhile."""
    starting: asyncio.Task[None] | None = None
    try:
        if later:
            starting = asyncio.create_task(_once_there(projector, leases, changed), name="noetl-projector-store")
        else:
            await projector.start()
            await leases.start(changed)
        yield
    finally:
        if starting is not None:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        # The work ends before the shards are given back, so that the next one waits for no lock of ours.
        await projector.stop()
        await leases.stop()


async def _once_there(projector: Projector, leases: ShardLeases, changed: Told) -> None:
    await projector.start()
    troubles = Troubles()
    while True:
        try:
            await leases.start(changed)
        except (NoetlError, asyncpg.PostgresError) as problem:
            troubles.meet("leases", problem)
            await asyncio.sleep(_AGAIN_SECONDS)
        else:
            troubles.over("leases")
            return


def line_durable(projector: str, line: StoreLine) -> str:
    """Return the durable reader by which the stream wakes a projector for a store."""
    return durable_of(projector, None if line.name == DEFAULT else line.name)


@asynccontextmanager
async def _waking(runtime: Runtime, line: StoreLine) -> AsyncIterator[StreamWaking | None]:
    """Let the stream wake the projector where events are mirrored to one."""
    settings = runtime.settings
    if not mirrors(settings):
        yield None
        return
    async with open_stream(settings, runtime.database, "events") as stream:
        yield StreamWaking(stream, line_durable(projector_name(settings), line), line.store.checkpoints, runtime.listen)


@asynccontextmanager
async def _closing(epochs: Epochs | None) -> AsyncIterator[None]:
    if epochs is None:
        yield
        return
    closing = asyncio.get_running_loop().create_task(epochs.run(), name="noetl-projector-epochs")
    try:
        yield
    finally:
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
