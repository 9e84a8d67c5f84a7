"""What somebody with the rights of a superuser may do to the ledger: change, remove, swap, insert, and cover it up."""

from __future__ import annotations

from typing import Final

import asyncpg
import msgspec

from noetl.kernel.ledger.chain.heads import tree_leaf
from noetl.kernel.ledger.chain.links import NO_LINK, Link
from noetl.kernel.ledger.normalizer import leaf_of
from noetl.kernel.ledger.rows import COLUMNS, to_events
from noetl.model.merkle import MerkleFrontier, Subtree

CHANGES: Final = {
    "a result": "UPDATE noetl.event SET result = '{\"rows\":999}' WHERE event_id = $1",
    "an event time": "UPDATE noetl.event SET event_time = event_time + interval '1 microsecond' WHERE event_id = $1",
    "an ingest time": "UPDATE noetl.event SET ingest_time = ingest_time + interval '1 microsecond' WHERE event_id = $1",
    "a stream version": "UPDATE noetl.event SET stream_version = stream_version + 1000 WHERE event_id = $1",
    "its producer": "UPDATE noetl.event SET producer = 'noetl://tenant/x/org/x/y/z' WHERE event_id = $1",
    "its digest column": "UPDATE noetl.event SET payload_sha256 = repeat('0', 64) WHERE event_id = $1",
}
"""Statements that change one event in place."""

REMOVE: Final = "DELETE FROM noetl.event WHERE event_id = $1"

INVENT_REMOVAL: Final = """
INSERT INTO noetl.event_archive (tenant_id, organization_id, partition, first_execution_id, last_execution_id, events,
    executions, bounds, manifest_ref, manifest_sha256, archived_at, dropped_at, removed_at)
SELECT 'nobody', 'nothing', 'event_2020_01', 1, 2, 9, 1, json_object_agg(shard::text, json_build_array(1, 1000000)),
    '{"uri":"x","sha256":"x","media_type":"x","bytes":0,"stored_sha256":"x"}', repeat('0', 64), now(), now(), now()
FROM noetl.shard
"""
"""Says that an archive of an organization that never was has been removed, and reached over everything."""


async def swap(connection: asyncpg.Connection, one: int, other: int) -> None:
    """Let two events of a shard change places."""
    rows = await connection.fetch("SELECT event_id, position FROM noetl.event WHERE event_id = ANY ($1)", [one, other])
    at = {row["event_id"]: row["position"] for row in rows}
    for event_id, position in ((one, -1), (other, at[one]), (one, at[other])):
        await connection.execute("UPDATE noetl.event SET position = $2 WHERE event_id = $1", event_id, position)


async def insert_after(connection: asyncpg.Connection, event_id: int) -> None:
    """Put a copy of an event behind it, moving everything after it on, and the shard's head with it."""
    await connection.execute(
        "UPDATE noetl.event SET position = -position - 1 WHERE (shard, position) IN (SELECT e.shard, e.position FROM"
        " noetl.event AS e JOIN noetl.event AS own ON own.event_id = $1 AND e.shard = own.shard AND e.position > own.position)",
        event_id,
    )
    await connection.execute("UPDATE noetl.event SET position = -position WHERE position < 0")
    await connection.execute("CREATE TEMP TABLE forged AS SELECT * FROM noetl.event WHERE event_id = $1", event_id)
    await connection.execute(
        "UPDATE forged SET event_id = event_id + 1000000, position = position + 1, stream_version = stream_version + 1000"
    )
    await connection.execute("INSERT INTO noetl.event SELECT * FROM forged")
    await connection.execute(
        "UPDATE noetl.shard AS s SET position = s.position + 1 FROM forged WHERE s.shard = forged.shard"
    )
    await connection.execute("DROP TABLE forged")


async def cover_up(connection: asyncpg.Connection, shard: int) -> None:
    """Make the leaves and links of a shard anew from its events as they stand."""
    rows = await connection.fetch(f"SELECT {COLUMNS} FROM noetl.event WHERE shard = $1 ORDER BY position", shard)  # noqa: S608
    leaves = {event.position: leaf_of(event) for event in to_events(rows)}
    previous = NO_LINK
    for link in await _links(connection, shard):
        places = range(link.first_position, link.last_position + 1)
        made = msgspec.structs.replace(link, leaves=b"".join(leaves[place] for place in places))
        previous = made.after(previous)
        await connection.execute(
            "UPDATE noetl.ledger_link SET leaves = $3, link = $4 WHERE shard = $1 AND first_position = $2",
            shard,
            made.first_position,
            made.leaves,
            previous,
        )


async def tree_of(
    connection: asyncpg.Connection, shard: int
) -> tuple[MerkleFrontier, Link, list[tuple[Subtree, bytes]]]:
    """Return the tree over the links of a shard as they stand, the last of them, and the nodes that were made."""
    tree, nodes, links = MerkleFrontier(), list[tuple[Subtree, bytes]](), await _links(connection, shard)
    for link in links:
        for position in range(link.first_position, link.last_position + 1):
            nodes += tree.add(tree_leaf(position, link.leaf(position)))
    return tree, links[-1], nodes


async def _links(connection: asyncpg.Connection, shard: int) -> list[Link]:
    names = ", ".join(Link.__struct_fields__)
    select = f"SELECT {names} FROM noetl.ledger_link WHERE shard = $1 ORDER BY first_position"  # noqa: S608
    return [Link(*row) for row in await connection.fetch(select, shard)]
