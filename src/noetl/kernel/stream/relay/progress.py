"""How far a stream is filled and read: cursors, heads and leases go in, lines per shard and per durable come out.

A cursor is read when a shard is taken, and moved only by the holder of the shard's lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

import msgspec

from noetl.kernel.leases.shards import fenced_of, holders
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.stream.port import DurableLag
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


class ShardRelayed(msgspec.Struct, frozen=True):
    """How far one shard is published, and which process does so."""

    shard: int
    head: int
    relayed: int
    lag_events: int
    holder: str | None


class Reader(msgspec.Struct, frozen=True):
    """A durable reader, the shards that it reads, and how many of their messages it has not acknowledged."""

    durable: str
    shards: list[int]
    lag_messages: int


async def shards_relayed(database: Database, stream: str, created: str | None) -> list[ShardRelayed]:
    """Return how far each shard is published to the making of a stream; None stands for a stream that is not there."""
    cursors = Cursors(database, stream)
    relays = {one.shard: one.holder for one in await holders(database) if one.role == "relay"}
    # Cursors first: read the other way round, a shard could seem to be ahead of the ledger.
    found = await cursors.all()
    heads = await cursors.heads()
    lines = []
    for shard, head in sorted(heads.items()):
        relayed = relayed_to(found, shard, created)
        lines.append(ShardRelayed(shard, head, relayed, head - relayed, relays.get(shard)))
    return lines


def relayed_to(cursors: Mapping[int, Cursor], shard: int, created: str | None) -> int:
    """Return up to which position a shard is published to this making of the stream."""
    cursor = cursors.get(shard)
    return 0 if cursor is None or created is None or cursor.stream_created != created else cursor.position


def readers_behind(lags: Iterable[DurableLag], held: Mapping[str, Set[int]]) -> list[Reader]:
    """Return how far each durable is behind in the shards that it reads.

    Of those whose shards are known to be held, only these count: in others its place stands still for a reason.
    """
    found: dict[str, dict[int, int]] = {durable: {} for durable in held}
    for one in lags:
        if one.shard in held.get(one.durable, {one.shard}):
            found.setdefault(one.durable, {})[one.shard] = one.messages
    return [Reader(durable, sorted(shards), sum(shards.values())) for durable, shards in sorted(found.items())]
