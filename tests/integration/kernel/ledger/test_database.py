"""Pooled connections: how many are opened, and transactions on those that the server cut while nobody used them."""

from __future__ import annotations

import asyncio
import time

import pytest

from noetl.errors import Unavailable
from noetl.kernel.ledger.postgres import committer
from noetl.kernel.ledger.postgres.database import Database, Role
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope, execution_stream
from noetl.testing.engines.short_leases import until
from noetl.testing.samples.drafts import Drafts

ACME = Scope("acme", "care")
CUT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE usename = current_user AND pid <> pg_backend_pid() AND datname = current_database()
"""


async def answers(database: Database, value: int) -> int:
    async with database.transaction(ACME) as connection:
        return await connection.fetchval("SELECT $1::int", value)


async def test_connections_cut_while_idle_are_not_noticed(database: Database) -> None:
    killer = await database.connect("runtime")
    for _ in range(20):
        assert await asyncio.gather(*(answers(database, value) for value in range(4))) == list(range(4))
        assert await killer.fetch(CUT)
        assert await answers(database, 7) == 7
    await killer.close()


async def test_a_connection_cut_in_the_middle_is_told(database: Database) -> None:
    killer = await database.connect("runtime")

    async def cut_off() -> None:
        async with database.transaction(ACME) as connection:
            await connection.fetchval("SELECT 1")
            await killer.fetch(CUT)
            await connection.fetchval("SELECT 1")

    with pytest.raises(Unavailable, match="PostgreSQL does not answer"):
        await cut_off()
    assert await answers(database, 7) == 7
    await killer.close()


@pytest.mark.parametrize(
    ("code", "said"), [("53100", "disk is full"), ("53200", "no memory"), ("53300", "too many"), ("25006", "read-only")]
)
async def test_a_server_that_has_no_room_or_may_not_write_is_waited_for(
    database: Database, code: str, said: str
) -> None:
    """INV-182"""
    with pytest.raises(Unavailable, match=f"PostgreSQL does not answer: {said}"):
        async with database.transaction(ACME) as connection:
            await connection.execute(f"DO $$ BEGIN RAISE EXCEPTION '{said}' USING ERRCODE = '{code}'; END $$")
    assert await answers(database, 7) == 7


class ReadOnly(Database):
    """A database that takes no writes, as one that follows another."""

    def _session(self, role: Role) -> dict[str, str]:
        return {**super()._session(role), "default_transaction_read_only": "on"}


async def test_events_that_a_read_only_server_refuses_may_be_sent_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-182"""
    monkeypatch.setattr(committer, "_RETRY_WAITS", (0.0,))
    follower = ReadOnly(database.url, as_roles=True)
    ledger = PostgresLedger(follower)
    try:
        event = Drafts(ACME, SnowflakeGenerator(1, lambda: time.time_ns() // 1_000_000).mint).execution(7)
        with pytest.raises(Unavailable, match="read-only"):
            await ledger.append(execution_stream(ACME, 7), [event])
    finally:
        await ledger.close()
        await follower.close()


async def test_a_pool_keeps_open_what_it_is_told(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    other = Database(database.url, as_roles=True, pool_min=3, pool_max=5)
    killer = await database.connect("runtime")
    try:
        pool = await other.pool()
        assert pool.get_size() == 3
        await killer.fetch(CUT)

        async def there_again() -> bool:
            return 3 <= pool.get_size() <= 5

        # All at once: what was cut is opened again when it is asked for, whether the cut was noticed before or not.
        assert await asyncio.gather(*(answers(other, value) for value in range(3))) == [0, 1, 2]
        await until(there_again, "three open connections")
        assert not caplog.records
    finally:
        await killer.close()
        await other.close()


async def test_a_pool_whose_opening_is_cancelled_leaves_no_connection(
    owner_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = Database(owner_url)
    task = asyncio.create_task(opening.pool("operator"))

    async def cancelling(_: object) -> None:
        task.cancel()

    # It is cancelled while its first connection goes back to it.
    monkeypatch.setattr("noetl.kernel.ledger.postgres.database._reset", cancelling)
    with pytest.raises(asyncio.CancelledError):
        await task
    await opening.close()
    watcher = await database.connect("runtime")

    async def none_left() -> bool:
        return not await watcher.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'noetl_operator' AND datname = current_database()"
        )

    await until(none_left, "no connection of a pool that nobody has")
    await watcher.close()
