"""The write path `stream` around a ledger of a test: what waits is published and materialized in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from noetl.ledger.database import Database
from noetl.ledger.notifier import Notifier, listening
from noetl.ledger.postgres import PostgresLedger
from noetl.ledger.shard_leases import ShardLeases
from noetl.stream.draining import drained
from noetl.stream.materializer import Materializer
from noetl.stream.memory import MemoryStream
from noetl.stream.port import EVENTS, EventStream
from noetl.stream.relay import Relay
from noetl.stream.waiting import WaitingEvents


@asynccontextmanager
async def write_path_stream(
    database: Database, ledger: PostgresLedger, stream: EventStream, mirror: EventStream | None = None
) -> AsyncIterator[None]:
    """Let every event go through the stream for the time of the block, and back to the ledger at its end."""
    await stream.open()
    notifier = Notifier(database)
    materializing = ShardLeases(database, "materializer", "tests")
    materializer = Materializer(database, stream, materializing.token, notifier.touch)
    relay = Relay(
        database,
        MemoryStream(EVENTS) if mirror is None else mirror,
        ShardLeases(database, "relay", "tests"),
        lambda: listening(database, "relay", 0.2),
        waiting=WaitingEvents(database, stream),
    )
    await materializing.start(materializer.hold)
    await relay.start()
    try:
        await ledger.way.change("stream")
        yield
        await ledger.way.change("ledger", partial(drained, database, stream))
    finally:
        await relay.stop()
        await materializer.stop()
        await materializing.stop()
        await notifier.close()
