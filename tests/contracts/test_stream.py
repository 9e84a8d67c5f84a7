"""The stream's contract, kept in memory, by the ledger in PostgreSQL and by NATS JetStream."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from itertools import count

import pytest

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.stream.encoding import message_of
from noetl.kernel.stream.memory import MemoryStream
from noetl.kernel.stream.nats.connection import NatsConnection
from noetl.kernel.stream.nats.stream import NatsStream
from noetl.kernel.stream.port import EventStream, Message
from noetl.kernel.stream.postgres import PostgresStream
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope, execution_stream
from noetl.testing.contracts.stream import StreamContract
from noetl.testing.samples.drafts import Drafts

IDS = SnowflakeGenerator(1, lambda: time.time_ns() // 1_000_000)


class Publishing:
    """Publishes to a stream that holds its own messages."""

    def __init__(self, stream: EventStream) -> None:
        self.stream = stream
        self._numbers = count(1)

    async def put(self, shard: int, count: int, tenant_id: str = "acme") -> list[Message]:
        messages = [
            Message(
                tenant_id, 17 + number % 3, shard, f"{tenant_id}/care/{number}", f"body {number}".encode(), {"X": "y"}
            )
            for number in (next(self._numbers) for _ in range(count))
        ]
        published = await self.stream.publish(messages)
        assert [each.duplicate for each in published] == [False] * count
        return messages

    async def again(self) -> EventStream:
        await self.stream.close()
        await self.stream.open()
        return self.stream


class Appending:
    """Appends to the ledger that is the stream."""

    def __init__(self, stream: PostgresStream, ledger: PostgresLedger) -> None:
        self.stream = stream
        self._ledger = ledger

    async def put(self, shard: int, count: int, tenant_id: str = "acme") -> list[Message]:
        scope = Scope(tenant_id, "care")
        execution_id = next(made for made in iter(IDS.mint, 0) if execution_stream(scope, made).shard == shard)
        drafts = Drafts(scope, IDS.mint)
        events = [drafts.loop_item(execution_id, execution_id, index) for index in range(count)]
        appended = await self._ledger.append(events[0].stream, events)
        return [
            message_of(event)
            async for event in self._ledger.read_shard(shard, appended.first_position)
            if event.execution_id == execution_id
        ]

    async def again(self) -> EventStream:
        await self.stream.close()
        await self.stream.open()
        return self.stream


class TestMemoryStream(StreamContract):
    """The one for tests and simulation."""

    @pytest.fixture
    async def testbed(self) -> Publishing:
        return Publishing(MemoryStream("noetl_events"))


@pytest.mark.service
class TestPostgresStream(StreamContract):
    """The embedded default."""

    keeps_messages = False
    knows_readers = False

    @pytest.fixture
    async def testbed(self, database: Database, ledger: PostgresLedger) -> AsyncIterator[Appending]:
        stream = PostgresStream(database)
        await stream.open()
        yield Appending(stream, ledger)
        await stream.close()


@pytest.mark.service
class TestJetStream(StreamContract):
    """The reference."""

    @pytest.fixture
    async def testbed(self, nats_connection: NatsConnection, stream_prefix: str) -> AsyncIterator[Publishing]:
        stream = NatsStream(nats_connection, f"{stream_prefix}_events")
        await stream.open()
        yield Publishing(stream)
        await stream.close()
