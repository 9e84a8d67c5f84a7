"""Opens the streams that the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Literal

from noetl.errors import ConfigError
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.stream.port import EventStream
from noetl.kernel.stream.postgres import PostgresStream
from noetl.runtime.settings.declaration import Settings

_KEPT_HOURS: Final = 24.0 * 365
"""How long writes that nobody materialized stay: they are not in the ledger yet, so they must outlast any outage."""


def mirrors(settings: Settings) -> bool:
    """Tell whether committed events are mirrored to a stream outside PostgreSQL."""
    return settings.event_store.distribution_backend == "nats-jetstream"


def stream_name(settings: Settings, name: Literal["events", "writes", "hints"]) -> str:
    """Return the full name of a stream or bucket; none may have dots."""
    return f"{settings.event_store.connection.stream_prefix.replace('.', '-')}_{name}"


@asynccontextmanager
async def open_stream(
    settings: Settings,
    database: Database,
    name: Literal["events", "writes"],
    refused: Callable[[int], None] = lambda messages: None,
) -> AsyncIterator[EventStream]:
    """Give the stream of committed events, or of writes that are not in the ledger yet, for the time of the block.

    Writes are signed; `refused` is told how many messages that are not were read and passed over.
    """
    place = settings.event_store.connection
    full = stream_name(settings, name)
    if not mirrors(settings):
        if name == "writes":
            raise ConfigError(
                "the stream of writes is in NATS, and the settings name no such server",
                hint="set event_store.distribution_backend to nats-jetstream and event_store.connection.url to the server, or "
                "start `noetl dev --nats`",
            )
        yield PostgresStream(database)
        return
    if place.url is None:
        raise ConfigError("event_store.connection.url is needed by nats-jetstream", hint="such as nats://nats:4222")
    # Only here: the client takes a fifth of a second to import, which a run without NATS would wait for as well.
    from noetl.kernel.stream.nats.stream import NatsStream, StreamLimits
    from noetl.kernel.stream.signed import SignedStream
    from noetl.runtime.nats.login import nats_connection
    from noetl.runtime.write_path.message_keys import StreamKeys

    connection = nats_connection(settings)
    # Writes are refused by a stream that is full; a mirror forgets its oldest messages, which the ledger has.
    limits = (
        StreamLimits(replicas=place.replicas, max_age_hours=_KEPT_HOURS, discard="new")
        if name == "writes"
        else StreamLimits(replicas=place.replicas, max_age_hours=place.max_age_hours)
    )
    stream = NatsStream(connection, full, limits)
    try:
        yield SignedStream(stream, StreamKeys(settings), refused) if name == "writes" else stream
    finally:
        await stream.close()
        await connection.close()
