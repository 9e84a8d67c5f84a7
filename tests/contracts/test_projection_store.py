"""The projection store contract, kept in PostgreSQL and in memory, and what only PostgreSQL can show."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.projections.stores.memory import MemoryProjectionStore
from noetl.kernel.projections.stores.port import ProjectionStore
from noetl.kernel.projections.stores.postgres.store import PostgresProjectionStore
from noetl.testing.contracts.projections.contract import ProjectionStoreContract
from noetl.testing.contracts.projections.samples import SHARD, folded, ids_of


class TestMemory(ProjectionStoreContract):
    """The simulation's store."""

    @pytest.fixture
    def store(self) -> ProjectionStore:
        return MemoryProjectionStore()


@pytest.mark.service
class TestPostgres(ProjectionStoreContract):
    """The reference."""

    @pytest.fixture
    def store(self, database: Database) -> ProjectionStore:
        return PostgresProjectionStore(database)

    async def test_a_rebuild_repairs_a_row_that_was_tampered_with(self, store: ProjectionStore, owner_url: str) -> None:
        await store.save_projections(SHARD, 0, 4, [folded("1"), folded("2")], [])
        await _tamper(owner_url, """UPDATE noetl.projection SET state = '{"status":"FAKE"}' WHERE row_id = '1'""")
        async with store.replacing(SHARD) as replacement:
            await replacement.put([folded("1"), folded("2")])
            replaced = await replacement.finish(4, {})
        assert (replaced.changed, replaced.added, replaced.removed) == (1, 0, 0)
        assert await store.load_projections([folded("1").key]) == [folded("1")]

    async def test_a_projector_waits_for_a_rebuild_and_then_starts_over(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD, 0, 4, [folded("old")], [])
        async with store.replacing(SHARD) as replacement:
            saving = asyncio.create_task(store.save_projections(SHARD, 4, 5, [folded("late")], []))
            await replacement.put([folded("new")])
            await replacement.finish(5, {})
            assert not saving.done()
        assert await saving is False
        assert await ids_of(store) == ["new"]

    async def test_of_two_saves_at_once_one_wins(self, store: ProjectionStore) -> None:
        saves = [store.save_projections(SHARD, 0, 4, [folded(str(number))], []) for number in range(8)]
        assert sorted(await asyncio.gather(*saves)) == [False] * 7 + [True]
        assert len(await ids_of(store)) == 1

    async def test_shards_that_open_the_same_rows_at_once_do_not_deadlock(self, store: ProjectionStore) -> None:
        async def save(shard: int) -> bool:
            rows = [folded(str(number), shard=shard) for number in range(200)]
            return await store.save_projections(shard, 0, 4, rows if shard % 2 else rows[::-1], [])

        assert sorted(await asyncio.gather(*map(save, range(8)))) == [False] * 7 + [True]


async def _tamper(owner_url: str, statement: str) -> None:
    connection = await asyncpg.connect(owner_url, user="noetl_projector")
    await connection.execute(statement)
    await connection.close()
