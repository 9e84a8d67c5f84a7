"""Connections kept between statements: taken again, given back when unused, after errors and when lost."""

from __future__ import annotations

import asyncio

import pytest

from noetl.kernel.ledger.postgres import kept_connections as kept_module
from noetl.kernel.ledger.postgres.database import Database
from noetl.testing.engines.short_leases import until

PID = "SELECT pg_backend_pid()"


async def test_a_connection_is_kept_and_taken_again(database: Database) -> None:
    kept = await database.kept()
    async with kept.taken() as connection:
        first = await connection.fetchval(PID)
        assert database.in_use() == 1
    assert (kept.idle, database.in_use()) == (1, 0)
    async with kept.taken() as connection:
        assert await connection.fetchval(PID) == first
    await database.give_back()
    assert kept.idle == 0


async def test_no_more_are_kept_than_work_needs(database: Database) -> None:
    kept = await database.kept()
    async with kept.taken(), kept.taken(), kept.taken():
        pass
    assert kept.idle == kept_module.KEPT
    await database.give_back()


async def test_a_small_pool_keeps_none(database: Database) -> None:
    small = Database(database.url, as_roles=True, pool_max=2)
    kept = await small.kept()
    async with kept.taken() as connection:
        await connection.fetchval(PID)
    assert kept.idle == 0
    await small.close()


async def test_after_an_error_the_connection_goes_back(database: Database) -> None:
    kept = await database.kept()
    with pytest.raises(ZeroDivisionError):
        async with kept.taken():
            raise ZeroDivisionError
    assert kept.idle == 0


async def test_an_unused_connection_goes_back_by_itself(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_module, "IDLE_SECONDS", 0.01)
    kept = await database.kept()
    async with kept.taken() as connection:
        await connection.fetchval(PID)
    pool = await database.pool()

    async def given_back() -> bool:
        return pool.get_idle_size() == pool.get_size() > 0

    await until(given_back, "a connection given back")
    assert kept.idle == 0


async def test_a_lost_connection_is_not_given_out(database: Database) -> None:
    kept = await database.kept()
    lost = asyncio.Event()
    async with kept.taken() as connection:
        connection.add_termination_listener(lambda _: lost.set())
        pid = await connection.fetchval(PID)
    async with database.transaction(None) as other:
        await other.execute("SELECT pg_terminate_backend($1)", pid)
    await lost.wait()
    async with kept.taken() as connection:
        assert await connection.fetchval(PID) != pid
    await database.give_back()
