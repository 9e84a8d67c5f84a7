"""Decided events that are not in the ledger: they wait in PostgreSQL, and are told by shard or waited for."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Final

import msgspec

from noetl.ledger.database import Database

_LOOK_SECONDS: Final = 0.2
_UNPUBLISHED: Final = """
SELECT p.shard, count(*) AS events, min(p.ingest_time) AS since FROM noetl.pending_event AS p
LEFT JOIN noetl.relay_cursor AS c ON c.stream_name = $1 AND c.stream_created = $2 AND c.shard = p.shard
WHERE p.position > coalesce(c.position, 0) GROUP BY p.shard
"""
_HEADS: Final = "SELECT shard, position FROM noetl.shard_outbox"
_WAITING: Final = """
SELECT count(*) FROM unnest($1::smallint[], $2::bigint[]) AS asked (shard, position)
JOIN noetl.pending_event AS p ON p.shard = asked.shard AND p.position <= asked.position
"""


class Unpublished(msgspec.Struct, frozen=True):
    """Decided events of a shard that are not in the stream, and when the first of them was decided."""

    events: int
    since: datetime


async def unpublished(database: Database, name: str, created: str | None) -> dict[int, Unpublished]:
    """Return the shards whose decided events are not all in this making of a stream; None is one that nobody can ask."""
    async with database.transaction(None, "projector") as connection:
        rows = await connection.fetch(_UNPUBLISHED, name, created)
    return {row["shard"]: Unpublished(row["events"], row["since"]) for row in rows}


async def still_waiting(database: Database, seconds: float) -> int:
    """Wait until what is decided now is in the ledger, and return how many events are not after the time."""
    deadline = time.monotonic() + seconds
    async with database.transaction(None, "projector") as connection:
        heads = {row["shard"]: row["position"] for row in await connection.fetch(_HEADS)}
    while True:
        async with database.transaction(None, "projector") as connection:
            events = int(await connection.fetchval(_WAITING, list(heads), list(heads.values())))
        if not events or time.monotonic() > deadline:
            return events
        await asyncio.sleep(_LOOK_SECONDS)
