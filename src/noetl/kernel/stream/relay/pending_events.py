"""Publishes what waits for the materializer: events of decided changes, in the order in which these committed.

They stay in the table until they are in the ledger, so a stream that lost them gets them again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from noetl.faults import reach
from noetl.kernel.leases.shards import fenced_of
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.stream.encoding import message_id
from noetl.kernel.stream.port import EventStream, Message, Place
from noetl.kernel.stream.relay.publisher import RelayMeter
from noetl.model.lease import Proof

_log = logging.getLogger(__name__)

BATCH_EVENTS: Final = 1000
OVERDUE_SECONDS: Final = 30.0
"""What was published this long ago and still waits is published once more: the stream may have lost it."""

_CURSORS = "SELECT shard, position FROM noetl.relay_cursor WHERE stream_name = $1 AND stream_created = $2"
_WAITING = """
SELECT p.shard, p.position, p.tenant_id, p.organization_id, p.execution_id, p.event_id, row_to_json(p)::text AS body
FROM unnest($1::smallint[], $2::bigint[]) AS mine (shard, position)
CROSS JOIN LATERAL (
    SELECT * FROM noetl.pending_event AS e WHERE e.shard = mine.shard AND e.position > mine.position
    ORDER BY e.position LIMIT $3
) AS p
"""
_ANY = "SELECT EXISTS (SELECT FROM noetl.pending_event WHERE shard = ANY ($1))"
_OVERDUE = """
SELECT DISTINCT shard FROM noetl.pending_event
WHERE shard = ANY ($1) AND ingest_time < clock_timestamp() - make_interval(secs => $2)
"""
_MOVE = """
INSERT INTO noetl.relay_cursor (stream_name, shard, position, stream_created)
SELECT $1, moved.shard, moved.position, $2 FROM unnest($3::smallint[], $4::bigint[]) AS moved (shard, position)
ON CONFLICT (stream_name, shard) DO UPDATE SET position = excluded.position, stream_created = excluded.stream_created,
    updated_at = clock_timestamp()
"""


class WaitingEvents:
    """The way of waiting events into the stream of writes."""

    def __init__(self, database: Database, stream: EventStream, meter: RelayMeter | None = None) -> None:
        self._database = database
        self._stream = stream
        self._meter = meter
        self._created: str | None = None
        self._proofs: dict[int, Proof] = {}
        self._at: dict[int, int] = {}
        self._last: tuple[Place, str] | None = None
        """Place and id of the message that was published last."""

    async def look(self) -> None:
        """See whether the stream is still the one it was, and whether anything waits for too long."""
        if self._created is None:
            return
        await self._see()
        if not await self._stands():
            self._last, self._at = None, dict.fromkeys(self._at, 0)
            return
        async with self._database.transaction(None, "relay") as connection:
            rows = await connection.fetch(_OVERDUE, list(self._proofs), OVERDUE_SECONDS)
        for row in rows:
            self._at[row["shard"]] = 0

    async def publish(self, proofs: Mapping[int, Proof]) -> int:
        """Publish what waits in the shards that are held with these proofs, and return how many events that was."""
        if self._created is None:
            # Where no event ever waits, there need not be a stream for them.
            if not await self._anything(proofs):
                return 0
            await self._see()
        await self._take_up(proofs)
        published = 0
        while self._proofs:
            async with self._database.transaction(None, "relay") as connection:
                rows = await connection.fetch(_WAITING, list(self._at), list(self._at.values()), BATCH_EVENTS)
            if not rows:
                break
            reach("waiting.before_publish")
            began = time.perf_counter()
            messages = [_message(row) for row in rows]
            stored = await self._stream.publish(messages)
            reach("waiting.after_publish")
            self._last = Place(messages[-1].shard, stored[-1].sequence), messages[-1].message_id
            if self._meter is not None:
                self._meter.acknowledged(time.perf_counter() - began)
                self._meter.decided(len(rows))
            await self._move({row["shard"]: row["position"] for row in rows})
            published += len(rows)
        return published

    async def _stands(self) -> bool:
        """Tell whether the stream has what was published last; one that does not may have lost more of what still waits."""
        if self._last is None:
            return True
        place, own = self._last
        return (await self._stream.ids_at([place])).get(place) == own

    async def _anything(self, proofs: Mapping[int, Proof]) -> bool:
        async with self._database.transaction(None, "relay") as connection:
            return bool(await connection.fetchval(_ANY, list(proofs)))

    async def _see(self) -> None:
        created = (await self._stream.open()).created
        if created != self._created:
            if self._created is not None:
                _log.warning("the stream %s was made anew: what still waits is published again", self._stream.name)
            self._created, self._last = created, None
            self._proofs.clear()

    async def _take_up(self, proofs: Mapping[int, Proof]) -> None:
        """Go on where the cursors stand in shards that were taken since the last time; forget those that were lost."""
        if proofs == self._proofs:
            return
        async with self._database.transaction(None, "relay") as connection:
            rows = await connection.fetch(_CURSORS, self._stream.name, self._created)
        known = {row["shard"]: row["position"] for row in rows}
        self._at = {
            shard: self._at[shard] if self._proofs.get(shard) == proof else known.get(shard, 0)
            for shard, proof in proofs.items()
        }
        self._proofs = dict(proofs)

    async def _move(self, reached: dict[int, int]) -> None:
        async with self._database.transaction(None, "relay") as connection:
            held = await fenced_of(connection, {shard: self._proofs[shard] for shard in reached})
            moved = {shard: reached[shard] for shard in sorted(held)}
            await connection.execute(_MOVE, self._stream.name, self._created, list(moved), list(moved.values()))
        self._at |= moved
        for lost in reached.keys() - held:
            del self._at[lost], self._proofs[lost]


def _message(row: Any) -> Message:
    own = message_id(row["tenant_id"], row["organization_id"], row["event_id"])
    return Message(row["tenant_id"], row["execution_id"], row["shard"], own, row["body"].encode())
