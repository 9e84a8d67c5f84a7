"""A superuser changes the ledger: every change is found and named, and one that is covered up is found by a kept head."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from noetl.errors import Corrupt
from noetl.kernel.ledger.chain.heads import Signer
from noetl.kernel.ledger.chain.notary import HeadFile, Notary
from noetl.kernel.ledger.chain.stored import Trees
from noetl.kernel.ledger.history import History
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.replay.chain import ChainCheck, ChainReport
from noetl.model.event import Draft
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.testing.attacks.ledger_rewriting import CHANGES, REMOVE, cover_up, insert_after, swap
from noetl.testing.samples.drafts import Drafts

pytestmark = [pytest.mark.service, pytest.mark.no_parity]

IDS = SnowflakeGenerator(29, lambda: time.time_ns() // 1_000_000)
KEPT = ("noetl.event", "noetl.ledger_head", "noetl.ledger_link", "noetl.ledger_node", "noetl.shard")


class RewritingTestbed:
    """A ledger with two executions of two tenants in one shard, and signed heads in a file."""

    def __init__(self, database: Database, ledger: PostgresLedger, owner_url: str, folder: Path) -> None:
        self.ledger, self.trees = ledger, Trees(database)
        self.history = History(database, ledger, MemoryPayloadStore())
        self.signer = Signer(folder / "keys")
        self._folder, self._owner_url = folder, owner_url
        self.items: list[Draft] = []

    async def fill(self) -> None:
        own = Drafts(Scope("acme", "care"), IDS.mint)
        self.items = own.loop_items(own.mint(), own.mint(), 6)
        self.shard = self.items[0].stream.shard
        await self.ledger.append(self.items[0].stream, self.items[:4])
        other = Drafts(Scope("globex", "care"), IDS.mint)
        while (theirs := other.loop_items(other.mint(), other.mint(), 2))[0].stream.shard != self.shard:
            pass
        await self.ledger.append(theirs[0].stream, theirs)
        await self.ledger.append(self.items[0].stream, self.items[4:])

    async def file(self) -> HeadFile:
        return HeadFile(self._folder / "heads", await self.trees.ledger())

    async def notary(self, *, published: bool = True) -> Notary:
        file = await self.file()
        return Notary(self.trees, self.signer, file.publish, file.newest() if published else {})

    async def check(self, *, heads: bool = False) -> ChainReport:
        kept = (await self.file()).heads() if heads else []
        return await ChainCheck(self.history, self.trees, kept, self.signer.public).shards()

    @asynccontextmanager
    async def attacked(self) -> AsyncIterator[asyncpg.Connection]:
        """Give a superuser's connection; what it changed is put back afterwards."""
        connection = await asyncpg.connect(self._owner_url.replace("noetl_owner", "noetl_admin"))
        try:
            for table in KEPT:
                await connection.execute(f"CREATE TABLE saved_{table[6:]} AS TABLE {table}")
            yield connection
            for table in KEPT:
                await connection.execute(f"DELETE FROM {table}")
                await connection.execute(f"INSERT INTO {table} SELECT * FROM saved_{table[6:]}")
                await connection.execute(f"DROP TABLE saved_{table[6:]}")
        finally:
            await connection.close()


@pytest.fixture
async def testbed(database: Database, ledger: PostgresLedger, owner_url: str, tmp_path: Path) -> RewritingTestbed:
    made = RewritingTestbed(database, ledger, owner_url, tmp_path)
    await made.fill()
    return made


async def test_every_change_of_an_event_is_found_and_named(testbed: RewritingTestbed) -> None:
    """INV-204."""
    clean = await testbed.check()
    assert (clean.differences, clean.events, clean.before) == ([], 8, 0)
    victim = testbed.items[2].event_id
    place = f"{victim} (loop.item) at position 3 of shard {testbed.shard}"
    fields = {"an ingest time": "ingest_time", "a stream version": "stream_version"}
    for name, statement in CHANGES.items():
        async with testbed.attacked() as connection:
            await connection.execute(statement, victim)
            (found,) = (await testbed.check()).differences
            if name == "its digest column":
                assert found.id.startswith(f"{victim} at position 3")
                continue
            assert (found.where, found.id) == ("event", place), name
            assert found.field.startswith(fields.get(name, "leaf")), name
    assert (await testbed.check()).differences == []


async def test_removed_swapped_and_inserted_events_are_found(testbed: RewritingTestbed) -> None:
    """INV-204."""
    second, third = testbed.items[1].event_id, testbed.items[2].event_id
    async with testbed.attacked() as connection:
        await connection.execute(REMOVE, third)
        (found,) = (await testbed.check()).differences
        assert (found.where, found.id, found.field) == ("position", f"3 of shard {testbed.shard}", "event")
    async with testbed.attacked() as connection:
        await swap(connection, second, third)
        named = {
            (one.where, one.id.split(" ")[0], one.field.split(" ")[0]) for one in (await testbed.check()).differences
        }
        assert {("event", str(second), "leaf"), ("event", str(third), "leaf")} <= named
    async with testbed.attacked() as connection:
        await insert_after(connection, third)
        found = (await testbed.check()).differences
        assert any(one.id.startswith(f"{third + 1_000_000} ") and "position 4" in one.id for one in found)
        assert any(one.where == "positions" and one.id.startswith("9 to 9") for one in found)


async def test_a_changed_leaf_or_a_removed_link_is_found(testbed: RewritingTestbed) -> None:
    """INV-204."""
    async with testbed.attacked() as connection:
        await connection.execute(
            "UPDATE noetl.ledger_link SET leaves = set_byte(leaves, 4, get_byte(leaves, 4) # 1) WHERE first_position = 1"
        )
        found = (await testbed.check()).differences
        assert ("link", f"of positions 1 to 4 of shard {testbed.shard}", "link") in {
            (one.where, one.id, one.field) for one in found
        }
    async with testbed.attacked() as connection:
        await connection.execute("DELETE FROM noetl.ledger_link WHERE first_position = 5")
        found = (await testbed.check()).differences
        assert ("link", "first position", 5) in {(one.where, one.field, one.expected) for one in found}


async def test_a_change_that_is_covered_up_is_found_by_a_kept_head_alone(testbed: RewritingTestbed) -> None:
    """INV-206."""
    (head,) = await (await testbed.notary()).round()
    assert (head.size, head.shard) == (8, testbed.shard)
    assert (await testbed.check(heads=True)).differences == []
    async with testbed.attacked() as connection:
        await connection.execute(CHANGES["a result"], testbed.items[2].event_id)
        await cover_up(connection, testbed.shard)
        # Without a head nothing is left to tell: SECURITY.md says so.
        assert (await testbed.check()).differences == []
        (found,) = (await testbed.check(heads=True)).differences
        assert (found.where, found.field, found.expected) == ("head", "root", head.root)
        assert found.id.startswith(f"over 8 events of shard {testbed.shard}")
        # The notary signs nothing that left what it signed before.
        drafts = Drafts(Scope("acme", "care"), IDS.mint)
        more = drafts.loop_item(testbed.items[0].execution_id, testbed.items[0].loop_id or 0, 7)
        await testbed.ledger.append(more.stream, [more])
        with pytest.raises(Corrupt, match=f"shard {testbed.shard} was changed after its head over 8 events"):
            await (await testbed.notary()).round()
    async with testbed.attacked() as connection:
        await connection.execute(CHANGES["an ingest time"], testbed.items[2].event_id)
        await connection.execute(
            "UPDATE noetl.ledger_link SET ingest_times = '\\x00000000000f4240' WHERE first_position = 1"
        )
        await cover_up(connection, testbed.shard)
        fields = {(one.where, one.field) for one in (await testbed.check(heads=True)).differences}
        assert ("head", "link") in fields
    async with testbed.attacked() as connection:
        await connection.execute("DELETE FROM noetl.event WHERE position > 4")
        await connection.execute("DELETE FROM noetl.ledger_link WHERE first_position > 4")
        await connection.execute("UPDATE noetl.shard SET position = least(position, 4)")
        (found,) = (await testbed.check(heads=True)).differences
        assert (found.where, found.field, found.expected, found.found) == ("head", "size", 8, 4)


async def test_a_forged_head_is_found_by_its_signature(testbed: RewritingTestbed, tmp_path: Path) -> None:
    """INV-206."""
    (head,) = await (await testbed.notary()).round()
    forger = Signer(tmp_path / "other")
    forged = forger.sign(head)
    check = ChainCheck(testbed.history, testbed.trees, [forged], testbed.signer.public)
    (found,) = (await check.shards()).differences
    assert (found.where, found.field) == ("head", "signature")
