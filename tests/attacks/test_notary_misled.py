"""Rows of the database that would lead a notary to sign a rewritten ledger, or to sign nothing at all."""

from __future__ import annotations

import time
from pathlib import Path

import asyncpg
import msgspec
import pytest
from tests.attacks.test_ledger_rewriting import RewritingTestbed

from noetl.errors import Corrupt
from noetl.kernel.ledger.chain.heads import Head, Signer
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.testing.attacks.ledger_rewriting import CHANGES, cover_up, tree_of
from noetl.testing.samples.drafts import Drafts

pytestmark = [pytest.mark.service, pytest.mark.no_parity]

IDS = SnowflakeGenerator(30, lambda: time.time_ns() // 1_000_000)


@pytest.fixture
async def testbed(database: Database, ledger: PostgresLedger, owner_url: str, tmp_path: Path) -> RewritingTestbed:
    made = RewritingTestbed(database, ledger, owner_url, tmp_path)
    await made.fill()
    return made


async def rewrite(testbed: RewritingTestbed, connection: asyncpg.Connection, head: Head) -> Head:
    """Change an event, make links and the database's head anew, and return that head; its signature is the former one's."""
    await connection.execute(CHANGES["a result"], testbed.items[2].event_id)
    await cover_up(connection, testbed.shard)
    tree, link, _ = await tree_of(connection, testbed.shard)
    forged = msgspec.structs.replace(head, root=tree.root().hex(), link=link.link.hex(), size=tree.size)
    await put(connection, forged)
    return forged


async def put(connection: asyncpg.Connection, head: Head) -> None:
    await connection.execute("DELETE FROM noetl.ledger_head WHERE shard = $1", head.shard)
    await connection.execute(
        "INSERT INTO noetl.ledger_head (shard, size, head, signed_at) VALUES ($1, $2, $3, now())",
        head.shard, head.size, head.line(),
    )  # fmt: skip


async def put_node(connection: asyncpg.Connection, shard: int, node: bytes) -> None:
    await connection.execute("INSERT INTO noetl.ledger_node VALUES ($1, 8, 0, $2)", shard, node)


async def grow(testbed: RewritingTestbed) -> None:
    drafts = Drafts(Scope("acme", "care"), IDS.mint)
    more = drafts.loop_item(testbed.items[0].execution_id, testbed.items[0].loop_id or 0, 7)
    await testbed.ledger.append(more.stream, [more])


async def nothing_more(testbed: RewritingTestbed, head: Head) -> None:
    assert (await testbed.file()).heads() == [head]


async def test_a_head_that_the_notary_did_not_sign_is_neither_published_nor_followed(testbed: RewritingTestbed) -> None:
    """INV-206."""
    (head,) = await (await testbed.notary()).round()
    async with testbed.attacked() as connection:
        await rewrite(testbed, connection, head)
        for known in (await testbed.notary(), await testbed.notary(published=False)):
            with pytest.raises(Corrupt, match=f"head over 8 events of shard {testbed.shard} is not signed"):
                await known.round()
        await grow(testbed)
        with pytest.raises(Corrupt, match="is not signed by the notary's key"):
            await (await testbed.notary()).round()
        await nothing_more(testbed, head)


async def test_a_rewritten_ledger_is_held_against_the_published_head_and_the_one_in_the_database(
    testbed: RewritingTestbed,
) -> None:
    """INV-206: whoever has a signature for a rewritten ledger meets the published head, with or without growth."""
    (head,) = await (await testbed.notary()).round()
    async with testbed.attacked() as connection:
        forged = await rewrite(testbed, connection, head)
        await put(connection, testbed.signer.sign(forged))
        changed = f"shard {testbed.shard} was changed after its head over 8 events"
        with pytest.raises(Corrupt, match=changed):
            await (await testbed.notary()).round()
        await grow(testbed)
        with pytest.raises(Corrupt, match=changed):
            await (await testbed.notary()).round()
        tree, link, _ = await tree_of(connection, testbed.shard)
        longer = msgspec.structs.replace(forged, size=9, root=tree.root().hex(), link=link.link.hex())
        await put(connection, testbed.signer.sign(longer))
        with pytest.raises(Corrupt, match=changed):
            await (await testbed.notary()).round()
        await nothing_more(testbed, head)
        # Nobody else's head, either: one of another shard, or under another size, says nothing here.
        await put(connection, testbed.signer.sign(msgspec.structs.replace(head, first_position=2)))
        with pytest.raises(Corrupt, match="was signed for shard"):
            await (await testbed.notary(published=False)).round()
        await put(connection, head)
        await connection.execute("UPDATE noetl.ledger_head SET size = 80")
        with pytest.raises(Corrupt, match="head over 80 events"):
            await (await testbed.notary(published=False)).round()


async def test_nodes_that_pass_the_head_are_made_of_leaves_once_more(testbed: RewritingTestbed) -> None:
    """INV-206: a role that may keep nodes can not make the notary skip its check."""
    (head,) = await (await testbed.notary()).round()
    async with testbed.attacked() as connection:
        await put_node(connection, testbed.shard, bytes(32))
        with pytest.raises(Corrupt, match="nodes over 256 leaves, and there are 8"):
            await (await testbed.notary()).round()
        for _ in range(32):
            more = Drafts(Scope("acme", "care"), IDS.mint)
            items = [
                more.loop_item(testbed.items[0].execution_id, testbed.items[0].loop_id or 0, 10 + n) for n in range(8)
            ]
            await testbed.ledger.append(items[0].stream, items)
        with pytest.raises(Corrupt, match=f"node 0 of level 8 in the tree of shard {testbed.shard} is not made"):
            await (await testbed.notary()).round()
        await connection.execute(CHANGES["a result"], testbed.items[2].event_id)
        await cover_up(connection, testbed.shard)
        with pytest.raises(Corrupt, match=f"shard {testbed.shard} was changed after its head over 8 events"):
            await (await testbed.notary()).round()
        await nothing_more(testbed, head)
        await connection.execute("DELETE FROM noetl.ledger_node")


async def test_nodes_that_a_crash_left_ahead_of_the_head_are_no_attack(testbed: RewritingTestbed) -> None:
    """INV-206."""
    notary = await testbed.notary()
    (small,) = await notary.round()
    for start in (0, 130):
        more = Drafts(Scope("acme", "care"), IDS.mint)
        items = [
            more.loop_item(testbed.items[0].execution_id, testbed.items[0].loop_id or 0, 100 + start + n)
            for n in range(130)
        ]
        await testbed.ledger.append(items[0].stream, items)
    async with testbed.attacked() as connection:
        tree, _, nodes = await tree_of(connection, testbed.shard)
        await put_node(connection, testbed.shard, dict(nodes)[8, 0])
    (head,) = await notary.round()
    assert (small.size, head.size, head.root) == (8, 268, tree.root().hex())
    assert await notary.round() == []
    assert (await testbed.check(heads=True)).differences == []


async def test_a_shard_that_was_changed_stops_the_head_of_no_other(testbed: RewritingTestbed) -> None:
    """INV-206."""
    notary = await testbed.notary()
    (head,) = await notary.round()
    async with testbed.attacked() as connection:
        await connection.execute(CHANGES["a result"], testbed.items[2].event_id)
        await cover_up(connection, testbed.shard)
        drafts, others = Drafts(Scope("acme", "care"), IDS.mint), set[int]()
        # No shard comes after the last one.
        while len(others) < 3 or max(others) <= testbed.shard < 15:
            (one,) = drafts.loop_items(drafts.mint(), drafts.mint(), 1)
            if one.stream.shard != testbed.shard:
                await testbed.ledger.append(one.stream, [one])
                others.add(one.stream.shard)
        await grow(testbed)
        # What stands in the rows of one shard, readable or not, is that shard's alone.
        await connection.execute(
            'INSERT INTO noetl.ledger_head VALUES ($1, 999, \'{"no": "head"}\', now())', min(others)
        )
        with pytest.raises(Corrupt):
            await notary.round()
        signed = {one.shard for one in (await testbed.file()).heads() if one != head}
        assert signed == others - {min(others)}
        assert set(notary.refused) == {testbed.shard, min(others)}
        await connection.execute("DELETE FROM noetl.ledger_head WHERE size = 999")


async def test_heads_of_a_former_key_are_believed_as_long_as_its_public_key_is_kept(
    testbed: RewritingTestbed, tmp_path: Path
) -> None:
    """INV-206."""
    await (await testbed.notary()).round()
    keys = tmp_path / "keys"
    (keys / "notary.key").unlink()
    (keys / "notary.pub").rename(keys / "notary-2025.pub")
    testbed.signer = Signer(keys)
    await grow(testbed)
    (head,) = await (await testbed.notary()).round()
    assert head.size == 9
    (keys / "notary-2025.pub").unlink()
    (keys / "notary.key").unlink()
    (keys / "notary.pub").unlink()
    testbed.signer = Signer(keys)
    with pytest.raises(Corrupt, match="is not signed by the notary's key"):
        await (await testbed.notary()).round()
