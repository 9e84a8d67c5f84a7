"""Reads the ledger as a durable: what stands after the acknowledged positions of its shards, woken by notifications."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from noetl.errors import NotFound
from noetl.kernel.ledger.postgres.database import Connection, Database, Role
from noetl.kernel.ledger.postgres.notifier import Listener, listening
from noetl.kernel.ledger.rows import COLUMNS, to_events
from noetl.kernel.stream.encoding import message_of
from noetl.kernel.stream.port import Delivery

_WHERE = """
SELECT s.shard, s.position AS head, d.position AS floor
FROM noetl.shard AS s
LEFT JOIN noetl.stream_durable AS d ON d.name = $1 AND d.durable = $2 AND d.shard = s.shard
WHERE s.shard = ANY ($3::smallint[])
"""
_READ = f"SELECT {COLUMNS} FROM noetl.event WHERE shard = $1 AND position BETWEEN $2 AND $3 ORDER BY position LIMIT $4"  # noqa: S608
_ACKNOWLEDGE = """
UPDATE noetl.stream_durable AS d
SET position = greatest(d.position, done.position), updated_at = clock_timestamp()
FROM unnest($3::smallint[], $4::bigint[]) AS done (shard, position)
WHERE d.name = $1 AND d.durable = $2 AND d.shard = done.shard
"""


class Place:
    """Where a reader stands in one shard."""

    def __init__(self) -> None:
        self.head = 0
        self.floor = 0
        self.given = 0
        """The last position given since the floor was last begun from."""
        self.ever_given = 0
        self.due: float | None = None
        """When to begin from the floor again, unless more is acknowledged by then."""


class PostgresSubscription:
    """One reader of one durable."""

    def __init__(
        self,
        database: Database,
        role: Role,
        stream: str,
        durable: str,
        shards: Sequence[int],
        ack_wait_seconds: float,
        poll_seconds: float,
    ) -> None:
        self._database = database
        self._role: Role = role
        self._stream = stream
        self._durable = durable
        self._places = {shard: Place() for shard in shards}
        self._order = list(shards)
        self._ack_wait_seconds = ack_wait_seconds
        self._poll_seconds = poll_seconds
        self._listener: Listener | None = None
        self._held = AsyncExitStack()
        self.closed = False

    async def fetch(self, limit: int, wait_seconds: float) -> list[Delivery]:
        """Give events as soon as there are any."""
        clock = asyncio.get_running_loop().time
        until = clock() + wait_seconds
        while True:
            listener = await self._listening()
            async with self._database.transaction(None, self._role) as connection:
                await self._look(connection, clock())
                found = await self._gather(connection, limit, clock())
            left = min(until, self._next_due(until)) - clock()
            if found or clock() >= until:
                return found
            try:
                async with asyncio.timeout(left):
                    await listener.wait()
            except TimeoutError:
                continue

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Raise the position of each shard."""
        done: dict[int, int] = {}
        for delivery in deliveries:
            shard = delivery.message.shard
            done[shard] = max(done.get(shard, 0), delivery.sequence)
        if not done:
            return
        shards = sorted(done)
        positions = [done[shard] for shard in shards]
        async with self._database.transaction(None, self._role) as connection:
            told = await connection.execute(_ACKNOWLEDGE, self._stream, self._durable, shards, positions)
        if told != f"UPDATE {len(shards)}":
            raise self._gone()
        now = asyncio.get_running_loop().time()
        for shard, position in done.items():
            place = self._places[shard]
            place.floor = max(place.floor, position)
            place.due = now + self._ack_wait_seconds if place.given > place.floor else None

    async def lag(self) -> int:
        """Return how many positions stand between what is acknowledged and the heads."""
        async with self._database.transaction(None, self._role) as connection:
            await self._look(connection, asyncio.get_running_loop().time())
        return sum(max(0, place.head - place.floor) for place in self._places.values())

    async def close(self) -> None:
        """Stop listening; the rows stay."""
        self.closed = True
        self._listener = None
        await self._held.aclose()

    async def _listening(self) -> Listener:
        if self.closed:
            raise self._gone()
        if self._listener is None or self._listener.lost:
            await self._held.aclose()
            self._listener = await self._held.enter_async_context(
                listening(self._database, self._role, self._poll_seconds)
            )
        return self._listener

    async def _look(self, connection: Connection, now: float) -> None:
        """See how far the shards are, and begin again from the floor where an acknowledgement is overdue."""
        for row in await connection.fetch(_WHERE, self._stream, self._durable, self._order):
            if row["floor"] is None:
                raise self._gone()
            place = self._places[row["shard"]]
            place.head = row["head"]
            place.floor = max(place.floor, row["floor"])
            if place.due is not None and place.due <= now:
                place.given, place.due = place.floor, None
            place.given = max(place.given, place.floor)

    async def _gather(self, connection: Connection, limit: int, now: float) -> list[Delivery]:
        """Take what is there, each time from another shard first, so that a busy one keeps nobody waiting."""
        self._order.append(self._order.pop(0))
        found: list[Delivery] = []
        for shard in self._order:
            place = self._places[shard]
            if place.head <= place.given or len(found) == limit:
                continue
            rows = await connection.fetch(_READ, shard, place.given + 1, place.head, limit - len(found))
            for event in to_events(rows):
                found.append(Delivery(message_of(event), event.position, event.position <= place.ever_given))
            if not rows:
                place.given = place.head  # retention took what stood there
                continue
            place.given = found[-1].sequence
            place.ever_given = max(place.ever_given, place.given)
            if place.due is None:
                place.due = now + self._ack_wait_seconds
        return found

    def _next_due(self, otherwise: float) -> float:
        return min((place.due for place in self._places.values() if place.due is not None), default=otherwise)

    def _gone(self) -> NotFound:
        return NotFound(
            f"the subscription of {self._durable} to {self._stream} has ended",
            hint="subscribe again; the durable was forgotten, or its stream made anew",
        )
