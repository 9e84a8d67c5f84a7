"""What is accepted and not in the ledger yet: published facts and decided events, per shard and summed, or waited
for.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from noetl.errors import NoetlError, NotFound
from noetl.kernel.leases.shards import holders
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.stream.port import EventStream, StreamState
from noetl.model.stream import SHARD_COUNT

_REACHED = "SELECT shard, sequence FROM noetl.materialized WHERE stream_name = $1 AND stream_created = $2"
# What is published counts where it stands in the stream.
_WAITING = """
SELECT count(*) FILTER (WHERE p.position > coalesce(c.position, 0)) AS unpublished,
       coalesce(extract(epoch FROM clock_timestamp() - min(p.ingest_time)), 0)::float8 AS seconds
FROM noetl.pending_event AS p
LEFT JOIN noetl.relay_cursor AS c ON c.stream_name = $1 AND c.stream_created = $2 AND c.shard = p.shard
"""


class ShardWrites(msgspec.Struct, frozen=True):
    """How far one shard of the stream of writes is in the ledger, and which process brings it there."""

    shard: int
    sequence: int
    waiting_messages: int
    oldest_at: datetime | None
    """When the first message that waits came to the stream."""
    holder: str | None
    unpublished_events: int = 0
    """Decided events that wait in PostgreSQL and are not in the stream, where somebody looked for them."""
    unpublished_since: datetime | None = None


class Waiting(msgspec.Struct, frozen=True):
    """How many accepted events are not in the ledger, decided ones and facts, and the age of the oldest."""

    events: int
    seconds: float
    stale: bool = False
    """Whether the stream did not answer."""


async def shards_untouched(database: Database) -> list[ShardWrites]:
    """Return the shards of a stream of writes that is not there or cannot be asked."""
    held = await _materializers(database)
    return [ShardWrites(shard, 0, 0, None, held.get(shard)) for shard in range(SHARD_COUNT)]


async def shards_materialized(database: Database, stream: EventStream, state: StreamState) -> list[ShardWrites]:
    """Return how far each shard is materialized."""
    async with database.transaction(None, "projector") as connection:
        rows = await connection.fetch(_REACHED, stream.name, state.created)
    reached: dict[int, int] = {row["shard"]: row["sequence"] for row in rows}
    lags = {one.shard: one.messages for one in await stream.lags() if one.durable == f"materializer-{one.shard}"}
    held = await _materializers(database)
    lines = []
    for shard in range(SHARD_COUNT):
        sequence, behind, oldest = reached.get(shard, 0), lags.get(shard), None
        if behind is None or behind > 0:
            oldest = await stream.came_at(shard, sequence)
            # Where no materializer has ever read, nothing counts for it: it is known that messages are there.
            behind = 0 if oldest is None else max(behind or 0, 1)
        lines.append(ShardWrites(shard, sequence, behind, oldest, held.get(shard)))
    return lines


async def _materializers(database: Database) -> dict[int, str]:
    return {one.shard: one.holder for one in await holders(database) if one.role == "materializer"}


class WaitingWrites:
    """Tells what waits in PostgreSQL and, where there is a stream of writes, in it."""

    def __init__(self, database: Database, stream: EventStream | None, answer_seconds: float = 3.0) -> None:
        self._database = database
        self._stream = stream
        self._answer_seconds = answer_seconds
        self._seen = ("", list[ShardWrites]())

    async def read(self) -> Waiting:
        """Return what waits now; of a stream that does not answer, what it told last, which grows older."""
        stale = False
        if self._stream is not None:
            try:
                async with asyncio.timeout(self._answer_seconds):
                    self._seen = await _seen(self._database, self._stream)
            except (NoetlError, TimeoutError):
                stale = True
        created, lines = self._seen
        name = self._stream.name if self._stream is not None else ""
        async with self._database.transaction(None, "projector") as connection:
            row: Any = await connection.fetchrow(_WAITING, name, created)
        now = datetime.now(UTC)
        ages = [(now - one.oldest_at).total_seconds() for one in lines if one.oldest_at is not None]
        events = row["unpublished"] + sum(one.waiting_messages for one in lines)
        return Waiting(events, max(0.0, row["seconds"], *ages), stale)


async def _seen(database: Database, stream: EventStream) -> tuple[str, list[ShardWrites]]:
    try:
        state = await stream.state()
    except NotFound:
        return "", []  # nobody has published a write yet
    return state.created, await shards_materialized(database, stream, state)


_LOOK_SECONDS: Final = 0.2
_UNPUBLISHED: Final = """
SELECT p.shard, count(*) AS events, min(p.ingest_time) AS since FROM noetl.pending_event AS p
LEFT JOIN noetl.relay_cursor AS c ON c.stream_name = $1 AND c.stream_created = $2 AND c.shard = p.shard
WHERE p.position > coalesce(c.position, 0) GROUP BY p.shard
"""
_HEADS: Final = "SELECT shard, position FROM noetl.shard_outbox"
_DECIDED_WAITING: Final = """
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
            events = int(await connection.fetchval(_DECIDED_WAITING, list(heads), list(heads.values())))
        if not events or time.monotonic() > deadline:
            return events
        await asyncio.sleep(_LOOK_SECONDS)
