"""The Merkle trees of the shards as PostgreSQL keeps them: complete subtrees from 256 leaves on, all below made of leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from noetl.errors import Corrupt
from noetl.ledger.chain.heads import Head, tree_leaf
from noetl.ledger.chain.stored import StoredLinks
from noetl.ledger.database import Database
from noetl.model.merkle import MerkleFrontier, Subtree, audit_path, root_of, subtrees

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
