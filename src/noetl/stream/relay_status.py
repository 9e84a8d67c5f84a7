"""How far a stream is filled: cursors, the ledger's heads and the leases go in, one line per shard comes out."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from noetl.ledger.database import Database
from noetl.ledger.shard_leases import holders
from noetl.stream.relay_cursors import Cursor, Cursors


class ShardRelayed(msgspec.Struct, frozen=True):
    """How far one shard is published, and which process does so."""

    shard: int
    head: int
    relayed: int
    lag_events: int
    holder: str | None


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
