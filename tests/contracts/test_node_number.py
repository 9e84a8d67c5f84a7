"""INV-11: no two live processes of a database mint ids under the same node number."""

from __future__ import annotations

import asyncio

import pytest

from noetl.kernel.ledger.postgres.database import Database
from noetl.runtime.node_number import Ids

pytestmark = pytest.mark.service

NODE_OF = (1 << 10) - 1


def node_of(snowflake: int) -> int:
    return snowflake >> 12 & NODE_OF


async def test_live_processes_have_different_numbers(database: Database) -> None:
    """INV-11"""
    all_ids = [Ids(database) for _ in range(12)]
    await asyncio.gather(*(ids.open() for ids in all_ids))
    minted = [ids.mint() for ids in all_ids]
    assert len({node_of(each) for each in minted}) == 12
    assert len({*minted, *all_ids[0].mint_many(100)}) == 112
    for ids in all_ids:
        await ids.close()


async def test_a_number_is_free_again_after_its_process(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.randrange", lambda _: 77)
    first = Ids(database)
    await first.open()
    assert node_of(first.mint()) == 77
    second = Ids(database)
    await second.open()
    assert node_of(second.mint()) == 78
    await first.close()
    third = Ids(database)
    await third.open()
    assert node_of(third.mint()) == 77
    await second.close()
    await third.close()


async def test_a_lost_connection_leads_to_a_number_that_is_held_again(database: Database) -> None:
    """INV-11: the lock goes with the connection, so the process takes a number anew before anybody can share it."""
    ids = Ids(database)
    await ids.open()
    before = ids._connection
    assert before is not None
    await (await database.pool()).execute("SELECT pg_terminate_backend($1)", before.get_server_pid())
    async with asyncio.timeout(20):
        while ids._reclaiming is None:
            await (await database.pool()).fetchval("SELECT 1")
        await ids._reclaiming
    assert ids._connection is not before
    held = await (await database.pool()).fetchval(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND granted", node_of(ids.mint())
    )
    assert held == 1
    await ids.close()
