"""How far each shard was published to a stream: read when a shard is taken, moved only by whoever holds its lease."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from noetl.leases.shards import fenced_of
from noetl.ledger.database import Database
from noetl.model.lease import Proof

_HEADS = "SELECT shard, position FROM noetl.shard"
_CURSORS = "SELECT shard, position, stream_created, stream_sequence FROM noetl.relay_cursor WHERE stream_name = $1"
_MOVE = """
INSERT INTO noetl.relay_cursor (stream_name, shard, position, stream_created, stream_sequence)
SELECT $1, shard, position, $2, $3 FROM unnest($4::smallint[], $5::bigint[]) AS told (shard, position)
ON CONFLICT (stream_name, shard) DO UPDATE
    SET position = excluded.position, stream_created = excluded.stream_created,
        stream_sequence = excluded.stream_sequence, updated_at = clock_timestamp()
"""
_FIRST = "SELECT position FROM noetl.event WHERE shard = $1 ORDER BY position LIMIT 1"


class Cursor(msgspec.Struct, frozen=True):
    """The last published position of a shard, the making of the stream it was published to, and how far that was then."""

    position: int
    stream_created: str | None
    stream_sequence: int


class Cursors:
    """The cursors of one stream."""

    def __init__(self, database: Database, stream: str) -> None:
        self._database = database
        self._stream = stream

    async def all(self) -> dict[int, Cursor]:
        """Return the cursors of all shards that were ever published."""
        async with self._database.transaction(None, "relay") as connection:
            rows = await connection.fetch(_CURSORS, self._stream)
        return {row["shard"]: Cursor(row["position"], row["stream_created"], row["stream_sequence"]) for row in rows}

    async def heads(self) -> dict[int, int]:
        """Return the last position of each shard in the ledger."""
        async with self._database.transaction(None, "relay") as connection:
            return {row["shard"]: row["position"] for row in await connection.fetch(_HEADS)}

    async def first(self, shard: int) -> int | None:
        """Return the first position of a shard that is still in the ledger."""
        async with self._database.transaction(None, "relay") as connection:
            found: int | None = await connection.fetchval(_FIRST, shard)
        return found

    async def move(
        self, positions: Mapping[int, int], created: str, sequence: int, proofs: Mapping[int, Proof]
    ) -> frozenset[int]:
        """Move the cursors of those shards that the proofs hold, and return which these are."""
        async with self._database.transaction(None, "relay") as connection:
            held = await fenced_of(connection, proofs)
            moved = {shard: position for shard, position in positions.items() if shard in held}
            await connection.execute(_MOVE, self._stream, created, sequence, list(moved), list(moved.values()))
        return frozenset(moved)
