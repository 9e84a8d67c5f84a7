"""Reads committed events of several shards at once: positions go in, messages in the order of the positions come out."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from noetl.ledger.database import Database
from noetl.ledger.rows import COLUMNS, to_events
from noetl.stream.encoding import message_of
from noetl.stream.port import Message

# A shard's events lie in the partitions of many months, each with its own index: asked per shard, each is read in order.
_PENDING = f"""
SELECT found.* FROM unnest($1::smallint[], $2::bigint[], $3::bigint[]) AS wanted (shard, behind, upto)
CROSS JOIN LATERAL (
    SELECT {COLUMNS} FROM noetl.event
    WHERE shard = wanted.shard AND position > wanted.behind AND position <= wanted.upto
    ORDER BY position LIMIT $4) AS found
"""  # noqa: S608


class Page(msgspec.Struct, frozen=True):
    """Messages, and for each shard the position behind which they begin and the one up to which nothing is missing."""

    messages: list[Message]
    behind: dict[int, int]
    reached: dict[int, int]


async def read_page(database: Database, behind: Mapping[int, int], upto: Mapping[int, int], limit: int) -> Page | None:
    """Return the next events of each shard, about `limit` in all; None when no shard has any before its bound."""
    wanted = {shard: position for shard, position in behind.items() if position < upto[shard]}
    if not wanted:
        return None
    each = max(1, limit // len(wanted))
    bounds = [upto[shard] for shard in wanted]
    async with database.transaction(None, "relay") as connection:
        rows = await connection.fetch(_PENDING, list(wanted), list(wanted.values()), bounds, each)
    messages: list[Message] = []
    counts, last = dict.fromkeys(wanted, 0), dict(wanted)
    for event in to_events(rows):
        messages.append(message_of(event))
        counts[event.shard] += 1
        last[event.shard] = event.position
    # Fewer than asked for: what is left up to the bound was archived.
    reached = {shard: last[shard] if counts[shard] == each else upto[shard] for shard in wanted}
    return Page(messages, wanted, reached)
