"""The relay on a stream in memory: everything in order, on from where it stopped, and anew when the stream is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import psycopg
import pytest

from noetl.kernel.leases.shards import ShardLeases
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.postgres.notifier import listening
from noetl.kernel.stream.encoding import decode, message_of
from noetl.kernel.stream.memory import MemoryStream
from noetl.kernel.stream.port import Message, Published
from noetl.kernel.stream.relay.progress import Cursors
from noetl.kernel.stream.relay.relay import Relay
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import SHARD_COUNT
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.projected_ledger import HOME, a_run, record

NAME = "noetl_events"


class Counts:
    """What a relay counted."""

    def __init__(self) -> None:
        self.published = 0
        self.rebuilds = 0
        self.decisions = 0
        self.lags: dict[int, int] = {}
        self.waits: list[float] = []

    def relayed(self, published: int, lags: Mapping[int, int]) -> None:
        self.published += published
        self.lags |= lags

    def rebuilt(self, shards: int) -> None:
        self.rebuilds += shards

    def acknowledged(self, seconds: float) -> None:
        self.waits.append(seconds)

    def decided(self, published: int) -> None:
        self.decisions += published


class Watched(MemoryStream):
    """A stream that can lose its newest messages, and can be made to hold a publish up."""

    def __init__(self) -> None:
        super().__init__(NAME)
        self.publishing = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def publish(self, messages: Sequence[Message]) -> list[Published]:
        self.publishing.set()
        await self.go_on.wait()
        return await super().publish(messages)

    def lose(self, count: int) -> None:
        """Forget the newest messages, as a server without power does that had not synced them."""
        self._last -= count
        for messages in self.shards:
            messages[:] = [(sequence, message) for sequence, message in messages if sequence <= self._last]
        self._known = {known: sequence for known, sequence in self._known.items() if sequence <= self._last}


@asynccontextmanager
async def relaying(
    database: Database, stream: MemoryStream, holder: str = "here", counts: Counts | None = None, batch: int = 7
) -> AsyncIterator[Relay]:
    """Run a relay for the time of the block."""
    leases = ShardLeases(database, "relay", holder, lease_seconds=3, every_seconds=0.2)
    listen = lambda: listening(database, "relay", 0.2)  # noqa: E731 - opened again and again
    relay = Relay(database, stream, leases, listen, meter=counts, batch_events=batch)
    await relay.start()
    try:
        yield relay
    finally:
        await relay.stop()


async def filled(stream: MemoryStream, ledger: PostgresLedger) -> None:
    """Wait until the stream has every event of the ledger, each once and in order."""
    head = await ledger.head()
    async with asyncio.timeout(30):
        while True:
            changed = stream.changed
            if positions(stream) == [list(range(1, last + 1)) for last in head.positions]:
                break
            await changed.wait()
    for shard in range(SHARD_COUNT):
        stored = [message_of(event) async for event in ledger.read_shard(shard)]
        assert [message for _, message in stream.shards[shard]] == stored


def positions(stream: MemoryStream) -> list[list[int]]:
    return [[decode(message.body).position for _, message in messages] for messages in stream.shards]


async def moved_to_head(database: Database, ledger: PostgresLedger, created: str) -> None:
    """Wait until all cursors stand at the ledger's end, for this making of the stream."""
    cursors = Cursors(database, NAME)
    head = [last for last in (await ledger.head()).positions if last]
    async with asyncio.timeout(30):
        while True:
            found = await cursors.all()
            if [one.position for _, one in sorted(found.items()) if one.stream_created == created] == head:
                return


async def test_what_is_committed_arrives_in_order_and_so_does_what_follows(
    database: Database, ledger: PostgresLedger
) -> None:
    stream, counts = MemoryStream(NAME), Counts()
    for _ in range(4):
        await record(ledger, a_run(HOME))
    async with relaying(database, stream, counts=counts):
        await filled(stream, ledger)
        await record(ledger, a_run(HOME))
        await filled(stream, ledger)
        await moved_to_head(database, ledger, (await stream.state()).created)
    total = sum((await ledger.head()).positions)
    assert (counts.published, counts.rebuilds, counts.decisions) == (total, 0, 0)
    assert min(counts.waits) > 0
    assert set(counts.lags.values()) == {0}


async def test_a_relay_goes_on_from_where_the_last_one_stopped(database: Database, ledger: PostgresLedger) -> None:
    stream, counts = MemoryStream(NAME), Counts()
    await record(ledger, a_run(HOME))
    async with relaying(database, stream):
        await filled(stream, ledger)
        await moved_to_head(database, ledger, (await stream.state()).created)
    more = a_run(HOME)
    await record(ledger, more)
    async with relaying(database, stream, counts=counts):
        await filled(stream, ledger)
    assert counts.published == len(more)


async def test_a_wiped_stream_is_filled_again_from_the_ledger(
    database: Database, ledger: PostgresLedger, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-119."""
    stream, counts = MemoryStream(NAME), Counts()
    await record(ledger, a_run(HOME))
    async with relaying(database, stream, counts=counts):
        await filled(stream, ledger)
        await moved_to_head(database, ledger, (await stream.state()).created)
        await stream.wipe()
        await filled(stream, ledger)
        await record(ledger, a_run(HOME))
        await filled(stream, ledger)
        await moved_to_head(database, ledger, (await stream.state()).created)
    assert counts.rebuilds > 0
    assert "was made anew" in caplog.text


@pytest.mark.parametrize("idle", [True, False], ids=["while idle", "while publishing"])
async def test_a_stream_that_lost_its_end_is_made_anew_and_filled_again(
    idle: bool, database: Database, ledger: PostgresLedger, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-119."""
    stream = Watched()
    await record(ledger, a_run(HOME))
    async with relaying(database, stream):
        await filled(stream, ledger)
        before = (await stream.state()).created
        await moved_to_head(database, ledger, before)
        if not idle:
            stream.go_on.clear()
            stream.publishing.clear()
            await record(ledger, a_run(HOME))
            await stream.publishing.wait()
        stream.lose(5)
        stream.go_on.set()
        await filled(stream, ledger)
        await moved_to_head(database, ledger, (await stream.state()).created)
    assert (await stream.state()).created != before
    assert "lost messages" in caplog.text


async def test_a_relay_that_comes_later_sees_that_the_stream_lost_its_end(
    database: Database, ledger: PostgresLedger
) -> None:
    stream = Watched()
    await record(ledger, a_run(HOME))
    async with relaying(database, stream):
        await filled(stream, ledger)
        before = (await stream.state()).created
        await moved_to_head(database, ledger, before)
    stream.lose(5)
    async with relaying(database, stream):
        await filled(stream, ledger)
    assert (await stream.state()).created != before


async def test_a_relay_that_lost_its_shards_while_publishing_moves_no_cursor(
    database: Database, ledger: PostgresLedger
) -> None:
    """INV-117."""
    stream = Watched()
    stream.go_on.clear()
    await record(ledger, a_run(HOME))
    async with relaying(database, stream):
        await stream.publishing.wait()
        async with database.transaction(None, "relay") as connection:
            await connection.execute(
                "UPDATE noetl.shard_lease SET holder = 'other', lease_token = gen_random_uuid(),"
                " lease_until = clock_timestamp() + interval '1 hour' WHERE role = 'relay'"
            )
        stream.go_on.set()
        async with asyncio.timeout(30):
            while not any(stream.shards):
                await stream.changed.wait()
    assert await Cursors(database, NAME).all() == {}


async def test_two_relays_share_the_shards_and_one_that_stops_is_replaced(
    database: Database, ledger: PostgresLedger
) -> None:
    stream = MemoryStream(NAME)
    one, other = Counts(), Counts()
    async with relaying(database, stream, "one", one):
        async with relaying(database, stream, "other", other):
            for _ in range(6):
                await record(ledger, a_run(HOME))
            await filled(stream, ledger)
            for _ in range(6):
                await record(ledger, a_run(HOME))
            await filled(stream, ledger)
        await record(ledger, a_run(HOME))
        await filled(stream, ledger)
    assert one.published > 0


@pytest.mark.no_parity
async def test_what_is_no_longer_in_the_ledger_is_passed_over_and_said(
    database: Database, ledger: PostgresLedger, owner_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "noetl.kernel.stream")
    long_ago = int(datetime(2025, 3, 5, tzinfo=UTC).timestamp() * 1000)
    old = Drafts(HOME, SnowflakeGenerator(7, lambda: long_ago).mint)
    for _ in range(40):
        run = old.mint()
        await record(ledger, [old.execution(run, "execution.requested"), old.execution(run)])
    gone = (await ledger.head()).positions
    with psycopg.connect(owner_url, autocommit=True) as owner:
        owner.execute("DROP TABLE noetl.event_2025_03")
    await record(ledger, a_run(HOME))

    stream = MemoryStream(NAME)
    async with relaying(database, stream):
        await moved_to_head(database, ledger, (await stream.state()).created)
    head = (await ledger.head()).positions
    assert positions(stream) == [list(range(first + 1, last + 1)) for first, last in zip(gone, head, strict=True)]
    assert "no longer in the ledger" in caplog.text
