"""The ledger itself as a stream: nothing is stored twice. Readers follow positions; notifications wake them.

The sequence of a message is its position in its shard. Durables are rows that say up to where each shard was
acknowledged. Committed events cannot be wiped: wiping makes every durable begin anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from noetl.errors import NotFound, Unsupported
from noetl.kernel.ledger.postgres.database import Database, Role
from noetl.kernel.ledger.postgres.notifier import CHANNEL
from noetl.kernel.stream.encoding import decode, message_id
from noetl.kernel.stream.port import EVENTS, DurableLag, Message, Place, Published, StreamState
from noetl.kernel.stream.postgres_subscription import PostgresSubscription
from noetl.kernel.stream.subjects import checked_durable, root
from noetl.model.stream import SHARD_COUNT

# No durable has an empty name, so this row can stand for the stream itself: its position says when it was made.
_MAKE = """
INSERT INTO noetl.stream_durable (name, durable, shard, position)
VALUES ($1, '', 0, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
ON CONFLICT (name, durable, shard) DO NOTHING
"""
_STATE = """
SELECT (SELECT position FROM noetl.stream_durable WHERE name = $1 AND durable = '') AS made,
       (SELECT sum(position)::bigint FROM noetl.shard) AS messages
"""
_LAGS = """
SELECT d.durable, d.shard, greatest(0, s.position - d.position) AS messages
FROM noetl.stream_durable AS d JOIN noetl.shard AS s USING (shard)
WHERE d.name = $1 AND d.durable <> '' ORDER BY d.durable, d.shard
"""
_AT = """
SELECT e.shard, e.position, e.tenant_id, e.organization_id, e.event_id FROM noetl.event AS e
JOIN unnest($1::smallint[], $2::bigint[]) AS asked (shard, position) USING (shard, position)
"""
_ENDS = """
SELECT e.shard, e.position, e.tenant_id, e.organization_id, e.event_id FROM noetl.event AS e
JOIN noetl.shard USING (shard, position)
"""
_CAME_AT = "SELECT ingest_time FROM noetl.event WHERE shard = $1 AND position > $2 ORDER BY position LIMIT 1"
_BEGIN = """
INSERT INTO noetl.stream_durable (name, durable, shard, position)
SELECT $1, $2, shard, $4 FROM unnest($3::smallint[]) AS shard
ON CONFLICT (name, durable, shard) DO NOTHING
"""


class PostgresStream:
    """The committed events of one database. The role must see the events of all tenants."""

    def __init__(
        self, database: Database, name: str = EVENTS, *, role: Role = "projector", poll_seconds: float = 1.0
    ) -> None:
        root(name)
        self.name = name
        self._database = database
        self._role = role
        self._poll_seconds = poll_seconds
        self._subscriptions: list[PostgresSubscription] = []

    async def open(self) -> StreamState:
        """Note when the stream was made, if nobody did yet."""
        async with self._database.transaction(None, self._role) as connection:
            await connection.execute(_MAKE, self.name)
        return await self.state()

    async def publish(self, messages: Sequence[Message]) -> list[Published]:
        """Wake the readers of committed events; what is not in the ledger cannot be published here."""
        events = [decode(message.body) for message in messages]
        async with self._database.transaction(None, self._role) as connection:
            rows = await connection.fetch("SELECT shard, position FROM noetl.shard")
            heads: dict[int, int] = {row["shard"]: row["position"] for row in rows}
            for event in events:
                if event.position > heads[event.shard]:
                    raise Unsupported(
                        f"event {event.event_id} is not in the ledger, and the stream {self.name} holds nothing else",
                        hint="append it to the ledger, or set event_store.distribution_backend to nats-jetstream",
                    )
            shards = sorted({event.shard for event in events})
            if shards:
                await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, ",".join(map(str, shards)))
        return [Published(event.position, duplicate=True) for event in events]

    async def subscribe(
        self,
        durable: str,
        shards: Sequence[int] | None = None,
        *,
        from_sequence: int | None = None,
        ack_wait_seconds: float = 30.0,
    ) -> PostgresSubscription:
        """Read as a durable."""
        wanted = list(range(SHARD_COUNT)) if shards is None else sorted(set(shards))
        async with self._database.transaction(None, self._role) as connection:
            await connection.execute(_BEGIN, self.name, checked_durable(durable), wanted, (from_sequence or 1) - 1)
        subscription = PostgresSubscription(
            self._database, self._role, self.name, durable, wanted, ack_wait_seconds, self._poll_seconds
        )
        self._subscriptions = [*(each for each in self._subscriptions if not each.closed), subscription]
        return subscription

    async def state(self) -> StreamState:
        """Return when the stream was made and how many events were ever committed; bytes are not counted."""
        async with self._database.transaction(None, self._role) as connection:
            row = await connection.fetchrow(_STATE, self.name)
        assert row is not None
        if row["made"] is None:
            raise NotFound(
                f"the stream {self.name} was never opened in this database",
                hint="its first reader makes it; `noetl relay` makes one on NATS",
            )
        messages = row["messages"]
        first = 1 if messages else messages + 1
        return StreamState(self.name, f"ledger-{row['made']}", first, messages, messages, 0)

    async def ids_at(self, places: Sequence[Place]) -> dict[Place, str]:
        """Look the events up."""
        shards, positions = [one.shard for one in places], [one.sequence for one in places]
        async with self._database.transaction(None, self._role) as connection:
            return dict(map(_standing, await connection.fetch(_AT, shards, positions)))

    async def ends(self) -> dict[Place, str]:
        """Look the events at the heads up."""
        async with self._database.transaction(None, self._role) as connection:
            return dict(map(_standing, await connection.fetch(_ENDS)))

    async def lags(self) -> list[DurableLag]:
        """Count the positions between what is acknowledged and the heads."""
        async with self._database.transaction(None, self._role) as connection:
            return [DurableLag(**dict(row)) for row in await connection.fetch(_LAGS, self.name)]

    async def came_at(self, shard: int, after: int) -> datetime | None:
        """Return when the event was taken in."""
        async with self._database.transaction(None, self._role) as connection:
            found: datetime | None = await connection.fetchval(_CAME_AT, shard, after)
        return found

    async def readers(self) -> set[str]:
        """Return none: rows that say how far somebody came tell nothing of who is there."""
        await self.state()  # says `NotFound` when the stream is what is missing
        return set()

    async def forget(self, durable: str) -> None:
        """Remove the rows of a durable."""
        async with self._database.transaction(None, self._role) as connection:
            await connection.execute(
                "DELETE FROM noetl.stream_durable WHERE name = $1 AND durable = $2", self.name, checked_durable(durable)
            )

    async def trim(self, upto: int) -> None:
        """Keep everything: the messages are the ledger."""

    async def wipe(self) -> None:
        """Forget all durables and note that the stream was made anew."""
        async with self._database.transaction(None, self._role) as connection:
            await connection.execute("DELETE FROM noetl.stream_durable WHERE name = $1", self.name)
            await connection.execute(_MAKE, self.name)

    async def close(self) -> None:
        """End subscriptions; the database stays open."""
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            await subscription.close()


def _standing(row: Any) -> tuple[Place, str]:
    own = message_id(row["tenant_id"], row["organization_id"], row["event_id"])
    return Place(row["shard"], row["position"]), own
