"""The relay of one process: settings and a runtime go in, the stream they name is kept filled for the time of a block."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

import msgspec

from noetl.errors import ConfigError
from noetl.kernel.leases.shards import ShardLeases, ShardRole
from noetl.kernel.ledger.postgres.notifier import listening
from noetl.kernel.stream.port import EventStream
from noetl.kernel.stream.relay.pending_events import WaitingEvents
from noetl.kernel.stream.relay.progress import Cursors, relayed_to
from noetl.kernel.stream.relay.publisher import RelayMeter
from noetl.kernel.stream.relay.relay import Relay
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.streams.hints import shards_moved
from noetl.runtime.streams.opening import mirrors, open_stream
from noetl.runtime.wiring import Runtime

POLL_SECONDS: Final = 1.0
"""How often a relay looks by itself, in case a notification was lost, and whether the stream is still the same."""
_LOOK_SECONDS: Final = 0.2
RENEWALS: Final = 5
"""How often a lease is renewed before it would end."""

Progress = Callable[[int, int], None]
"""Is told positions done and positions in all."""


class Rebuilt(msgspec.Struct, frozen=True):
    """A stream that was made anew and filled."""

    stream: str
    messages: int
    seconds: float


@asynccontextmanager
async def open_relay(
    runtime: Runtime, *, meter: RelayMeter | None = None, told: Callable[[frozenset[int]], None] = lambda _: None
) -> AsyncIterator[asyncio.Task[None]]:
    """Relay a fair share of the shards for the time of the block; gives the task that ends early only when it breaks."""
    check_relayed(runtime.settings)
    async with AsyncExitStack() as stack:
        writes = await stack.enter_async_context(open_stream(runtime.settings, runtime.database, "writes"))
        stream = await stack.enter_async_context(open_stream(runtime.settings, runtime.database, "events"))
        yield await stack.enter_async_context(relaying(runtime, stream, meter=meter, told=told, writes=writes))


@asynccontextmanager
async def relaying(
    runtime: Runtime,
    stream: EventStream,
    *,
    meter: RelayMeter | None = None,
    told: Callable[[frozenset[int]], None] = lambda _: None,
    writes: EventStream | None = None,
) -> AsyncIterator[asyncio.Task[None]]:
    """Relay to an open stream for the time of the block, and what waits for the materializer to that of writes."""
    leases = shard_leases(runtime, "relay", relay_name(runtime.settings))
    relay = Relay(
        runtime.database,
        stream,
        leases,
        lambda: listening(runtime.database, "relay", POLL_SECONDS),
        meter=meter,
        told=told,
        waiting=None if writes is None else WaitingEvents(runtime.database, writes, meter),
    )
    task = await relay.start()
    try:
        yield task
    finally:
        await relay.stop()


def shard_leases(runtime: Runtime, role: ShardRole, holder: str) -> ShardLeases:
    """Return what holds shards for this process in a role, as the settings say."""
    lease = runtime.settings.event_store.lease_seconds
    return ShardLeases(
        runtime.database, role, holder, lease_seconds=lease, every_seconds=lease / RENEWALS,
        neighbours=partial(shards_moved, runtime.settings, role),
    )  # fmt: skip


async def rebuild(runtime: Runtime, progress: Progress = lambda done, total: None) -> Rebuilt:
    """Wipe the stream and fill it from the ledger, together with the relays that run; return when it has caught up."""
    check_relayed(runtime.settings)
    began = time.monotonic()
    async with open_stream(runtime.settings, runtime.database, "events") as stream:
        await stream.open()
        cursors = Cursors(runtime.database, stream.name)
        heads = await cursors.heads()
        await stream.wipe()
        async with relaying(runtime, stream) as task:
            while not task.done():
                created, found = (await stream.state()).created, await cursors.all()
                done = [min(head, relayed_to(found, shard, created)) for shard, head in heads.items()]
                progress(sum(done), sum(heads.values()))
                if done == list(heads.values()):
                    break
                await asyncio.wait([task], timeout=_LOOK_SECONDS)
        if task.done() and not task.cancelled() and (problem := task.exception()) is not None:
            raise problem
        return Rebuilt(stream.name, (await stream.state()).messages, time.monotonic() - began)


def relay_name(settings: Settings) -> str:
    """Return the name of this process among relays."""
    return f"{settings.runtime.node_id}/{os.getpid()}"


def check_relayed(settings: Settings) -> None:
    """Refuse settings without a stream that is to be filled."""
    if not mirrors(settings):
        raise ConfigError(
            f"event_store.distribution_backend is {settings.event_store.distribution_backend!r}, which needs no relay",
            hint="set it to nats-jetstream, and event_store.connection.url to the server",
        )
