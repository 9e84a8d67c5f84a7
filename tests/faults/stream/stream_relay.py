"""A relay on short leases, and what a stream of NATS holds: what the killed processes and the tests themselves use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from noetl.errors import NotFound, Unavailable
from noetl.kernel.leases.shards import ShardLeases
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.postgres.notifier import listening
from noetl.kernel.stream.encoding import decode
from noetl.kernel.stream.nats.connection import NatsConnection
from noetl.kernel.stream.nats.stream import NatsStream
from noetl.kernel.stream.relay.relay import Relay
from noetl.model.event import Event
from noetl.model.stream import SHARD_COUNT
from noetl.testing.engines.short_leases import until

LEASE_SECONDS = 2.0


@asynccontextmanager
async def open_relay(database: Database, nats_url: str, name: str, holder: str) -> AsyncIterator[Relay]:
    """Run a relay for the time of the block."""
    connection = NatsConnection(nats_url)
    stream = NatsStream(connection, name)
    leases = ShardLeases(database, "relay", holder, lease_seconds=LEASE_SECONDS, every_seconds=0.2)
    listen = lambda: listening(database, "relay", 0.3)  # noqa: E731 - opened again and again
    relay = Relay(database, stream, leases, listen, batch_events=40)
    await relay.start()
    try:
        yield relay
    finally:
        await relay.stop()
        await stream.close()
        await connection.close()


async def stored(nats_url: str, name: str) -> list[Event]:
    """Return all events that a stream holds, in the order it stored them."""
    connection = NatsConnection(nats_url)
    stream = NatsStream(connection, name)
    try:
        state = await stream.state()
        reader = await stream.subscribe("look")
        found: dict[int, Event] = {}
        while len(found) < state.messages:
            deliveries = await reader.fetch(500, 5)
            found |= {one.sequence: decode(one.message.body) for one in deliveries}
            await reader.acknowledge(deliveries)
        await reader.close()
        await stream.forget("look")
        return [event for _, event in sorted(found.items())]
    finally:
        await stream.close()
        await connection.close()


def first_deliveries(events: Iterable[Event]) -> list[list[int]]:
    """Return the positions of each shard in the order in which they were stored first."""
    seen: list[dict[int, None]] = [{} for _ in range(SHARD_COUNT)]
    for event in events:
        seen[event.shard].setdefault(event.position)
    return [list(positions) for positions in seen]


async def filled(ledger: PostgresLedger, nats_url: str, name: str) -> list[Event]:
    """Wait until a stream has every event of the ledger, and return all that it has."""
    head = (await ledger.head()).positions

    async def whole() -> Sequence[Event] | None:
        try:
            events = await stored(nats_url, name)
        except (NotFound, Unavailable):
            return None
        complete = [set(positions) for positions in first_deliveries(events)]
        return events if complete == [set(range(1, last + 1)) for last in head] else None

    return list(await until(whole, "the stream holding every event of the ledger", within=40))


async def in_order(ledger: PostgresLedger, events: Iterable[Event]) -> None:
    """Check that a stream's events are the ledger's, each first stored in the order of its shard."""
    for shard, positions in enumerate(first_deliveries(events)):
        assert positions == list(range(1, len(positions) + 1)), f"shard {shard} is out of order"
    known = {(event.shard, event.position): event for event in events}
    for shard in range(SHARD_COUNT):
        async for event in ledger.read_shard(shard):
            assert known.pop((shard, event.position)) == event
    assert not known
