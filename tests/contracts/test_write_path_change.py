"""Who may change the write path, and what becomes of a change that fails or is left."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from uuid import UUID

import pytest

from noetl.errors import Unavailable
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.postgres.write_path import WritePathChange
from noetl.kernel.stream.memory import MemoryStream
from noetl.kernel.stream.port import WRITES
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.testing.engines.short_leases import until
from noetl.testing.engines.write_paths import write_path_stream
from noetl.testing.samples.drafts import Drafts

pytestmark = pytest.mark.service

IDS = SnowflakeGenerator(5, lambda: time.time_ns() // 1_000_000)
DRAFTS = Drafts(Scope("acme", "care"), IDS.mint)


async def begin(database: Database, holder: str, wanted: str, lease_seconds: float) -> UUID:
    """Begin a change as a process that then falls silent, and return the token it would end it with."""
    async with database.transaction(None) as connection:
        lease = timedelta(seconds=lease_seconds)
        token = await connection.fetchval(
            "SELECT lease_token FROM noetl.begin_change($1, $2, $3)", wanted, holder, lease
        )
    assert isinstance(token, UUID)
    return token


async def waiting_append(ledger: PostgresLedger) -> asyncio.Task[object]:
    """Append an event that nobody materializes."""
    draft = DRAFTS.business("business/thing", IDS.mint())
    task: asyncio.Task[object] = asyncio.create_task(ledger.append(draft.stream, [draft]))

    async def waits() -> bool:
        return [event.event_id async for event in ledger.read(draft.stream)] == [draft.event_id]

    await until(waits, "the event waiting")
    return task


async def test_a_change_that_fails_is_put_back_though_events_wait(database: Database, ledger: PostgresLedger) -> None:
    """INV-125."""
    await WritePathChange(database, ledger.way).to("stream")
    appending = await waiting_append(ledger)
    with pytest.raises(Unavailable, match="stays as it was"):
        await WritePathChange(database, ledger.way, within_seconds=0.2).to("ledger")
    assert await ledger.way.look() == "stream"
    async with write_path_stream(database, ledger, MemoryStream(WRITES)):
        await appending


async def test_a_change_is_left_to_a_holder_that_lives(database: Database, ledger: PostgresLedger) -> None:
    """INV-125."""
    await begin(database, "alive", "stream", 60)
    changes = WritePathChange(database, ledger.way, within_seconds=0.2)
    assert await changes.take_over() is None
    with pytest.raises(Unavailable, match="alive still changes the write path to stream"):
        await changes.to("ledger")
    assert await ledger.way.look() == "draining"


async def test_a_change_whose_holder_is_silent_is_ended_by_another(database: Database, ledger: PostgresLedger) -> None:
    """INV-125."""
    await WritePathChange(database, ledger.way).to("stream")
    await begin(database, "dead", "ledger", 0)
    drained = []

    async def drain() -> None:
        drained.append(True)

    assert await WritePathChange(database, ledger.way, drain).take_over() == "ledger"
    assert drained == [True]
    assert await ledger.way.look() == "ledger"


async def test_a_change_that_another_took_over_is_not_ended_by_its_first_holder(
    database: Database, ledger: PostgresLedger
) -> None:
    """INV-125."""
    first = await begin(database, "first", "stream", 0)
    second = await begin(database, "second", "ledger", 60)
    async with database.transaction(None) as connection:
        assert not await connection.fetchval("SELECT noetl.renew_change($1, '1 minute')", first)
        assert await connection.fetchval("SELECT noetl.end_change($1, 'stream')", first) == "draining"
        assert await connection.fetchval("SELECT noetl.end_change($1, 'ledger')", second) == "ledger"


async def test_who_follows_waits_for_a_change_and_ends_one_whose_holder_died(
    database: Database, ledger: PostgresLedger
) -> None:
    """INV-136."""
    await begin(database, "alive", "stream", 60)
    with pytest.raises(Unavailable, match="is being changed for more than"):
        await ledger.way.steady(0.1, WritePathChange(database, ledger.way).take_over)
    async with database.transaction(None) as connection:
        token = await connection.fetchval("SELECT lease_token FROM noetl.write_path")
        await connection.execute("SELECT noetl.end_change($1, 'stream')", token)
    assert await ledger.way.steady(0.1) == "stream"
    await begin(database, "dead", "ledger", 0)
    assert await ledger.way.steady(30.0, WritePathChange(database, ledger.way).take_over) == "ledger"
