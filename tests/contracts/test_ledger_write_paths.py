"""The ledger's contract where every event goes through a stream and the materializer writes it, or compares it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.stream.memory import MemoryStream
from noetl.kernel.stream.nats.connection import NatsConnection
from noetl.kernel.stream.nats.stream import NatsStream
from noetl.kernel.stream.port import EVENTS, WRITES
from noetl.testing.contracts.ledger.contract import LedgerContract
from noetl.testing.engines.write_paths import write_path_shadow, write_path_stream

pytestmark = pytest.mark.service


class TestThroughAStreamInMemory(LedgerContract):
    """INV-113: the promises of an append do not depend on where it becomes durable."""

    @pytest.fixture
    async def ledger(self, database: Database) -> AsyncIterator[PostgresLedger]:
        ledger = PostgresLedger(database)
        async with write_path_stream(database, ledger, MemoryStream(WRITES)):
            yield ledger
        await ledger.close()


@pytest.mark.slow
class TestThroughJetStream(LedgerContract):
    """INV-113, with a real NATS server."""

    @pytest.fixture
    async def ledger(
        self, database: Database, nats_connection: NatsConnection, stream_prefix: str
    ) -> AsyncIterator[PostgresLedger]:
        ledger = PostgresLedger(database)
        async with write_path_stream(database, ledger, NatsStream(nats_connection, f"{stream_prefix}_writes")):
            yield ledger
        await ledger.close()


class TestInTheShadow(LedgerContract):
    """INV-128: whatever an append may do, a materializer would have written the same."""

    @pytest.fixture
    async def ledger(self, database: Database) -> AsyncIterator[PostgresLedger]:
        ledger = PostgresLedger(database)
        async with write_path_shadow(database, MemoryStream(EVENTS)):
            yield ledger
        await ledger.close()


@pytest.mark.slow
class TestInTheShadowOfJetStream(LedgerContract):
    """INV-128, with a real NATS server."""

    @pytest.fixture
    async def ledger(
        self, database: Database, nats_connection: NatsConnection, stream_prefix: str
    ) -> AsyncIterator[PostgresLedger]:
        ledger = PostgresLedger(database)
        async with write_path_shadow(database, NatsStream(nats_connection, f"{stream_prefix}_events")):
            yield ledger
        await ledger.close()
