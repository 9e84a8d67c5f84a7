"""What `noetl stream status` shows: a runtime goes in, a table or plain facts come out."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from noetl.cli.tables import rendered
from noetl.errors import ConfigError, NotFound
from noetl.ledger.database import Database
from noetl.ledger.shard_leases import holders
from noetl.model.event import time_text
from noetl.project.streamed import durable_of
from noetl.runtime.streams import mirrors, open_stream, stream_name
from noetl.runtime.wiring import Runtime
from noetl.stream.decided import unpublished
from noetl.stream.materialized import ShardWrites, shards_materialized, shards_untouched
from noetl.stream.port import DurableLag, StreamState
from noetl.stream.relay_status import Reader, ShardRelayed, readers_behind, shards_relayed


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


async def read(runtime: Runtime) -> StreamStatus:
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


def facts(status: StreamStatus) -> dict[str, Any]:
    """Return everything as plain facts."""
    return {
        "stream": status.name,
        "backend": status.backend,
        "state": msgspec.to_builtins(status.state),
        "lag_events": status.lag_events,
        "shards": msgspec.to_builtins(status.shards),
        "readers": msgspec.to_builtins(status.readers),
        "writes": None if status.writes is None else _writes_facts(status.writes),
    }


def _writes_facts(writes: WritesStatus) -> dict[str, Any]:
    return {
        "stream": writes.name,
        "write_path": writes.mode,
        "state": msgspec.to_builtins(writes.state),
        "waiting_messages": writes.waiting_messages,
        "unpublished_events": writes.unpublished_events,
        "shards": msgspec.to_builtins(writes.shards),
    }


def text(status: StreamStatus) -> str:
    """Return everything for a terminal."""
    columns = ("shard", "head", "relayed", "behind", "relay")
    table = rendered(columns, [_line(one) for one in status.shards])
    return f"{table}\n{_readers_table(status.readers)}{_summary(status)}\n{_writes_text(status)}"


def _writes_text(status: StreamStatus) -> str:
    """Return the table of materializers while anything may wait for them, and a line about the stream of writes."""
    writes = status.writes
    if writes is None:
        return ""
    table, idle = "", ""
    if writes.waiting_messages or writes.mode != "ledger" or writes.unpublished_events:
        columns = ("shard", "written to", "waiting", "unpublished", "since", "materializer")
        table = "\n" + rendered(columns, [_writes_line(one) for one in writes.shards]) + "\n"
        if not any(one.holder for one in writes.shards):
            idle = "; no materializer runs, start one with `noetl materializer`"
    return f"{table}{_held(status.backend, writes)}{_unpublished(status, writes)}{idle}\n"


def _held(backend: str, writes: WritesStatus) -> str:
    if writes.state is not None:
        return (
            f"{writes.name} holds {writes.state.messages:,} messages, {writes.waiting_messages:,} not in the ledger yet"
        )
    if backend == "nats-jetstream":
        return f"{writes.name} is not there yet"
    return (
        f"the write path is {writes.mode}, and the settings name no NATS server: set event_store.distribution_backend to "
        "nats-jetstream and event_store.connection.url to the server"
    )


def _unpublished(status: StreamStatus, writes: WritesStatus) -> str:
    if not writes.unpublished_events:
        return ""
    relayed = any(one.holder for one in status.shards)
    idle = "" if relayed else "; no relay runs, start one with `noetl relay`"
    return f"; {writes.unpublished_events:,} decided events wait to be published{idle}"


def _writes_line(one: ShardWrites) -> tuple[str, ...]:
    waits = [at for at in (one.oldest_at, one.unpublished_since) if at is not None]
    since = time_text(min(waits)) if waits else "-"
    counts = (one.sequence, one.waiting_messages, one.unpublished_events)
    return str(one.shard), *(f"{count:,}" for count in counts), since, one.holder or "-"


def _readers_table(readers: list[Reader]) -> str:
    if not readers:
        return ""
    lines = [(one.durable, str(len(one.shards)), f"{one.lag_messages:,}") for one in readers]
    return rendered(("reader", "shards", "behind"), lines) + "\n"


def _line(one: ShardRelayed) -> tuple[str, ...]:
    return str(one.shard), f"{one.head:,}", f"{one.relayed:,}", f"{one.lag_events:,}", one.holder or "-"


def _summary(status: StreamStatus) -> str:
    if status.backend == "postgres":
        needless = ": it needs no relay" if status.writes is None else ""
        return f"{status.name} is the ledger itself{needless}."
    if status.state is None:
        return f"{status.name} is not there yet: `noetl relay` makes it."
    relays = {one.holder for one in status.shards if one.holder is not None}
    idle = "" if relays else "; no relay runs, start one with `noetl relay`"
    return (
        f"{status.name} holds {status.state.messages:,} messages in {status.state.bytes:,} bytes, "
        f"{status.lag_events:,} events behind{idle}"
    )
