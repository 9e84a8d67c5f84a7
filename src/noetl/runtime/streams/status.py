"""How far the stream is filled and read, and the stream of writes is in the ledger: a runtime goes in, figures come out."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from noetl.errors import ConfigError, NotFound
from noetl.kernel.leases.shards import holders
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.projections.wakeups import durable_of
from noetl.kernel.stream.port import DurableLag, StreamState
from noetl.kernel.stream.relay.progress import Reader, ShardRelayed, readers_behind, shards_relayed
from noetl.kernel.stream.write_path.backlog import ShardWrites, shards_materialized, shards_untouched, unpublished
from noetl.runtime.streams.opening import mirrors, open_stream, stream_name
from noetl.runtime.wiring import Runtime


class WritesStatus(msgspec.Struct, frozen=True):
    """The stream of writes, and how far it is in the ledger."""

    name: str
    mode: str
    state: StreamState | None
    """None where it is not there, or the settings name no server that could have it."""
    shards: list[ShardWrites]

    @property
    def waiting_messages(self) -> int:
        """How many messages are not in the ledger."""
        return sum(one.waiting_messages for one in self.shards)

    @property
    def unpublished_events(self) -> int:
        """How many decided events wait in PostgreSQL and are not in the stream."""
        return sum(one.unpublished_events for one in self.shards)


class StreamStatus(msgspec.Struct, frozen=True):
    """A stream, and how far it is filled and read. One that is the ledger itself is never behind and needs no relay."""

    name: str
    backend: str
    state: StreamState | None
    shards: list[ShardRelayed]
    readers: list[Reader]
    writes: WritesStatus | None = None
    """None where no write was ever published or waits to be, and none would be."""

    @property
    def lag_events(self) -> int:
        """How many committed events are not in the stream."""
        return sum(one.lag_events for one in self.shards)


async def stream_status(runtime: Runtime) -> StreamStatus:
    """Look at the stream of events that the settings name."""
    backend = runtime.settings.event_store.distribution_backend
    if backend == "none":
        writes = await _writes(runtime)
        waits = (
            ""
            if writes is None
            else f"; the write path is {writes.mode}, and {writes.unpublished_events:,} decided events wait"
        )
        raise ConfigError(
            f"there is no stream: event_store.distribution_backend is none{waits}",
            hint="set it to postgres or nats-jetstream",
        )
    async with open_stream(runtime.settings, runtime.database, "events") as stream:
        try:
            state: StreamState | None = await stream.state()
        except NotFound:
            state = None
        shards = await shards_relayed(runtime.database, stream.name, state.created if state else None)
        lags = [] if state is None else await stream.lags()
        # Looked at once more, so that the stream is never shown with less than its cursors tell of.
        state = None if state is None else await stream.state()
    if backend == "postgres":
        shards = [msgspec.structs.replace(one, relayed=one.head, lag_events=0) for one in shards]
    return StreamStatus(
        stream.name, backend, state, shards, await _readers(runtime.database, lags), await _writes(runtime)
    )


async def _writes(runtime: Runtime) -> WritesStatus | None:
    name, mode = stream_name(runtime.settings, "writes"), await runtime.ledger.way.look()
    state, shards = await _published(runtime)
    waiting = await unpublished(runtime.database, name, None if state is None else state.created)
    if state is None and mode == "ledger" and not waiting:
        return None
    found = [
        msgspec.structs.replace(
            one, unpublished_events=waiting[one.shard].events, unpublished_since=waiting[one.shard].since
        )
        if one.shard in waiting
        else one
        for one in shards
    ]
    return WritesStatus(name, mode, state, found)


async def _published(runtime: Runtime) -> tuple[StreamState | None, list[ShardWrites]]:
    """Return the stream of writes, None if it is not there, and how far its shards are in the ledger."""
    if mirrors(runtime.settings):
        async with open_stream(runtime.settings, runtime.database, "writes") as stream:
            with suppress(NotFound):
                state = await stream.state()
                return state, await shards_materialized(runtime.database, stream, state)
    return None, await shards_untouched(runtime.database)


async def _readers(database: Database, lags: list[DurableLag]) -> list[Reader]:
    """Return who reads; a projector that lives reads the shards it holds, though it has a place in others, too."""
    known, held = {one.durable for one in lags}, dict[str, set[int]]()
    for one in await holders(database):
        if one.role == "projector" and (durable := durable_of(one.holder)) in known:
            held.setdefault(durable, set()).add(one.shard)
    return readers_behind(lags, held)
