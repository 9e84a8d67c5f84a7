"""The chain as PostgreSQL stores it: links by shard and position, and Merkle trees of complete subtrees from 256
leaves on.

It is read as a database role that serves all tenants.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from noetl.errors import Corrupt
from noetl.kernel.ledger.chain.heads import Head, tree_leaf
from noetl.kernel.ledger.chain.links import NO_LINK, Link
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.merkle import MerkleFrontier, Subtree, audit_path, root_of, subtrees
from noetl.model.stream import Scope

CHUNK_LEVEL: Final = 8
_CHUNK: Final = 1 << CHUNK_LEVEL
_COUNT: Final = "SELECT count(*) FROM noetl.ledger_node WHERE shard = $1 AND level = $2"
_NODES: Final = """
SELECT n.level, n.number, n.hash FROM unnest($2::smallint[], $3::bigint[]) AS asked (level, number)
JOIN noetl.ledger_node AS n ON n.shard = $1 AND n.level = asked.level AND n.number = asked.number
"""
_KEEP: Final = """
INSERT INTO noetl.ledger_node (shard, level, number, hash)
SELECT $1, n.level, n.number, n.hash FROM unnest($2::smallint[], $3::bigint[], $4::bytea[]) AS n (level, number, hash)
ON CONFLICT DO NOTHING
"""
_HEADS: Final = "SELECT size, head FROM noetl.ledger_head WHERE shard = $1 ORDER BY size DESC"
_SIGNED: Final = """
INSERT INTO noetl.ledger_head (shard, size, head, signed_at) VALUES ($1, $2, $3, $4::text::timestamptz) ON CONFLICT DO NOTHING
"""


class Trees:
    """Reads and keeps trees and heads, as a role that serves all tenants."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.links = StoredLinks(database)

    async def ledger(self) -> str:
        """Return which ledger this is."""
        async with self.database.transaction(None, "projector") as connection:
            return str(await connection.fetchval("SELECT id FROM noetl.ledger_identity"))

    async def newest(self, shard: int) -> Head | None:
        """Return the newest signed head of a shard."""
        async with self.database.transaction(None, "projector") as connection:
            row = await connection.fetchrow(f"{_HEADS} LIMIT 1", shard)
        if row is None:
            return None
        try:
            head = msgspec.json.decode(row["head"], type=Head)
        except msgspec.DecodeError as problem:
            raise Corrupt(f"the head over {row['size']} events of shard {shard} cannot be read: {problem}") from None
        if (head.shard, head.size) != (shard, row["size"]):
            raise Corrupt(
                f"the head over {row['size']} events of shard {shard} is one over {head.size} of {head.shard}"
            )
        return head

    async def kept(self, shard: int) -> MerkleFrontier:
        """Return the tree over the complete chunks of a shard, as far as they are kept."""
        async with self.database.transaction(None, "projector") as connection:
            size = await connection.fetchval(_COUNT, shard, CHUNK_LEVEL) << CHUNK_LEVEL
        wanted = subtrees(0, size)
        found = await self._nodes(shard, wanted)
        return MerkleFrontier(size, [found[part] for part in wanted])

    async def keep(self, shard: int, nodes: Sequence[tuple[Subtree, bytes]]) -> None:
        """Keep complete subtrees; of two notaries that make one, both make the same, and whoever made another is found."""
        async with self.database.transaction(None, "projector") as connection:
            columns = (
                [level for (level, _), _ in nodes],
                [number for (_, number), _ in nodes],
                [node for _, node in nodes],
            )
            await connection.execute(_KEEP, shard, *columns)
        stored = await self._nodes(shard, [part for part, _ in nodes])
        for (level, number), node in nodes:
            if stored[level, number] != node:
                raise Corrupt(f"node {number} of level {level} in the tree of shard {shard} is not made of its leaves")

    async def sign(self, head: Head) -> None:
        """Record a signed head."""
        async with self.database.transaction(None, "projector") as connection:
            await connection.execute(_SIGNED, head.shard, head.size, head.line(), head.signed_at)

    async def paths(self, head: Head, positions: Sequence[int]) -> list[list[bytes]]:
        """Return the path of each position to the root of a head."""
        plans = [audit_path(position - head.first_position, head.size) for position in positions]
        wanted = {part for plan in plans for hash_parts in plan for part in hash_parts}
        found = await self._nodes(head.shard, [part for part in wanted if part[0] >= CHUNK_LEVEL])
        chunks: dict[int, list[bytes]] = {}
        for level, number in sorted(part for part in wanted if part[0] < CHUNK_LEVEL):
            chunk, start = divmod(number << level, _CHUNK)
            if chunk not in chunks:
                chunks[chunk] = await self._chunk(head, chunk)
                await asyncio.sleep(0)
            tree = MerkleFrontier()
            for leaf in chunks[chunk][start : start + (1 << level)]:
                tree.add(leaf)
            found[level, number] = tree.root()
        return [[root_of([found[part] for part in hash_parts]) for hash_parts in plan] for plan in plans]

    async def _chunk(self, head: Head, chunk: int) -> list[bytes]:
        """Return the leaves of a chunk, up to the head."""
        first = head.first_position + (chunk << CHUNK_LEVEL)
        last = min(first + _CHUNK - 1, head.last_position)
        found = [
            tree_leaf(position, link.leaf(position))
            async for page in self.links.links(head.shard, first, last)
            for link in page
            for position in range(max(first, link.first_position), min(last, link.last_position) + 1)
        ]
        if len(found) != last - first + 1:
            raise Corrupt(
                f"shard {head.shard} lacks links for positions {first} to {last}; `noetl verify --all` says more"
            )
        return found

    async def _nodes(self, shard: int, wanted: Sequence[Subtree]) -> dict[Subtree, bytes]:
        async with self.database.transaction(None, "projector") as connection:
            rows = await connection.fetch(
                _NODES, shard, [level for level, _ in wanted], [number for _, number in wanted]
            )
        found = {(row["level"], row["number"]): row["hash"] for row in rows}
        if len(found) < len(set(wanted)):
            raise Corrupt(f"the tree of shard {shard} lacks nodes that were kept before")
        return found


PAGE_LINKS: Final = 1_000
_COLUMNS: Final = ", ".join(Link.__struct_fields__)
_LINKS: Final = (
    f"SELECT {_COLUMNS} FROM noetl.ledger_link WHERE shard = $1 AND first_position >= $2 AND first_position <= $3"  # noqa: S608
    " ORDER BY first_position LIMIT $4"
)
_AT: Final = "SELECT coalesce(max(first_position), 0) FROM noetl.ledger_link WHERE shard = $1 AND first_position <= $2"
_BEFORE: Final = (
    "SELECT link FROM noetl.ledger_link WHERE shard = $1 AND first_position < $2 ORDER BY first_position DESC LIMIT 1"
)
# What a digest column says is derived from the reference beside it, and an event as it is read has the reference alone.
_ASTRAY: Final = """
SELECT event_id, position FROM noetl.event WHERE shard = $1
  AND (payload_sha256 IS DISTINCT FROM payload_ref ->> 'sha256' OR fields_sha256 IS DISTINCT FROM fields_ref ->> 'sha256')
  AND ($2::text IS NULL OR (tenant_id, organization_id) = ($2, $3)) ORDER BY position LIMIT 10
"""
# Of all tenants, and nothing but positions.
_STANDING: Final = """
SELECT min(position), max(position) FROM (
    SELECT position, position - row_number() OVER (ORDER BY position) AS run
    FROM noetl.event WHERE shard = $1 AND position <= $2
) AS each GROUP BY run ORDER BY 1
"""
_LAST: Final = (1 << 63) - 1


class StoredLinks:
    """See `LinkReader` for the promises."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def links(
        self, shard: int, from_position: int = 1, to_position: int | None = None
    ) -> AsyncIterator[list[Link]]:
        """Give the links of a shard that hold positions within the bounds, in pages."""
        last = _LAST if to_position is None else to_position
        async with self._database.transaction(None, "projector") as connection:
            first = await connection.fetchval(_AT, shard, from_position)
        while True:
            async with self._database.transaction(None, "projector") as connection:
                rows = await connection.fetch(_LINKS, shard, first, last, PAGE_LINKS)
            if rows:
                yield [Link(*row) for row in rows]
            if len(rows) < PAGE_LINKS:
                return
            first = rows[-1]["first_position"] + 1

    async def before(self, shard: int, position: int) -> bytes:
        """Return the link that the one at a position follows."""
        async with self._database.transaction(None, "projector") as connection:
            return await connection.fetchval(_BEFORE, shard, position) or NO_LINK

    async def astray(self, shard: int, scope: Scope | None) -> list[tuple[int, int]]:
        """Return events, as id and position, whose digest columns say another digest than their references."""
        names = (None, None) if scope is None else (scope.tenant_id, scope.organization_id)
        async with self._database.transaction(None, "projector") as connection:
            rows = await connection.fetch(_ASTRAY, shard, *names)
        return [(row["event_id"], row["position"]) for row in rows]

    async def standing(self, shard: int, to_position: int) -> list[tuple[int, int]]:
        """Return which positions have a live event, of whatever organization, as runs without gaps."""
        async with self._database.transaction(None, "projector") as connection:
            return [(row[0], row[1]) for row in await connection.fetch(_STANDING, shard, to_position)]

    async def chained_from(self) -> list[int]:
        """Return for each shard the first position that has a link."""
        async with self._database.transaction(None, "projector") as connection:
            rows = await connection.fetch("SELECT chained_from FROM noetl.shard ORDER BY shard")
        return [row["chained_from"] for row in rows]
