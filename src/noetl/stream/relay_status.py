"""How far a stream is filled and read: cursors, heads and leases go in, lines per shard and per durable come out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

import msgspec

from noetl.leases.shards import holders
from noetl.ledger.database import Database
from noetl.stream.port import DurableLag
from noetl.stream.relay_cursors import Cursor, Cursors


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
