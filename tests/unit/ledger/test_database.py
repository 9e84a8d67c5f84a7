"""Transactions on pooled connections that the server cut while nobody used them."""

from __future__ import annotations

import asyncio

import pytest

from noetl.errors import Unavailable
from noetl.ledger.database import Database
from noetl.model.stream import Scope

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
