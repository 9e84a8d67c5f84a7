"""What `noetl stream status` shows: a status goes in, a table or plain facts come out."""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.cli.terminal.tables import rendered
from noetl.kernel.stream.relay.progress import Reader, ShardRelayed
from noetl.kernel.stream.write_path.backlog import ShardWrites
from noetl.model.event import time_text
from noetl.runtime.streams.status import StreamStatus, WritesStatus


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
