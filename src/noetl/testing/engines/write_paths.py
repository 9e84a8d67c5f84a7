"""The write paths `stream` and `shadow` around a ledger of a test: relay, materializer and shadow run in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from noetl.kernel.leases.shards import ShardLeases
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.postgres.notifier import Notifier, listening
from noetl.kernel.ledger.postgres.write_path import WritePathChange
from noetl.kernel.stream.memory import MemoryStream
from noetl.kernel.stream.port import EVENTS, EventStream
from noetl.kernel.stream.relay.pending_events import WaitingEvents
from noetl.kernel.stream.relay.relay import Relay
from noetl.kernel.stream.write_path.materializer import Materializer
from noetl.kernel.stream.write_path.shadow import Shadow, divergence, verdict
from noetl.kernel.stream.write_path.written_messages import drained
from noetl.model.stream import SHARD_COUNT

COMPARE_SECONDS: Final = 60.0
"""How long a shadow may take to come to the end of what a test wrote."""


@asynccontextmanager
async def write_path_stream(
    database: Database, ledger: PostgresLedger, stream: EventStream, mirror: EventStream | None = None
) -> AsyncIterator[None]:
    """Let every event go through the stream for the time of the block, and back to the ledger at its end."""
    await stream.open()
    notifier = Notifier(database)
    materializing = ShardLeases(database, "materializer", "tests")
    materializer = Materializer(database, stream, materializing.proof, notifier.touch)
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
        changes = WritePathChange(database, ledger.way, partial(drained, database, stream))
        await changes.to("stream")
        yield
        await changes.to("ledger")
    finally:
        await relay.stop()
        await materializer.stop()
        await materializing.stop()
        await notifier.close()


@asynccontextmanager
async def write_path_shadow(database: Database, mirror: EventStream) -> AsyncIterator[None]:
    """Compare every event that is written in the time of the block, and hold at its end that all of them are alike."""
    relay = Relay(
        database, mirror, ShardLeases(database, "relay", "tests"), lambda: listening(database, "relay", 0.2)
    )  # fmt: skip
    async with comparing(database, mirror):
        await relay.start()
        try:
            yield
            await assert_alike(database)
        finally:
            await relay.stop()


@asynccontextmanager
async def comparing(database: Database, mirror: EventStream) -> AsyncIterator[None]:
    """Compare what comes through a stream for the time of the block."""
    leases = ShardLeases(database, "shadow", "tests")
    shadow = Shadow(database, mirror, leases.proof)
    await shadow.begin()
    await leases.start(shadow.hold)
    try:
        yield
    finally:
        await shadow.stop()
        await leases.stop()


async def assert_alike(database: Database) -> int:
    """Hold that everything written since the shadow began was compared and is alike, and return how much that is."""
    found = await divergence(database, COMPARE_SECONDS)
    compared, written = sum(one.compared for one in found), sum(one.written for one in found)
    assert len(found) == SHARD_COUNT
    assert not [one for one in found if one.diverges]
    assert compared == written
    assert verdict(found) == ("proven" if written else "unproven")
    return compared
