"""Up to which message each shard of the stream of writes is in the ledger, and whether that message still stands there.

While it does, everything that stands before it in its shard is in the ledger. Once it does not, the stream lost messages
and may have given their sequences to others: then the shard is read from the stream's beginning, which writes nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from noetl.errors import LeaseLost
from noetl.leases.shards import fenced
from noetl.ledger.database import Database
from noetl.model.lease import Proof
from noetl.stream.port import Delivery, EventStream, Place

_log = logging.getLogger(__name__)

_WRITTEN = "SELECT shard, stream_created, sequence, message_id FROM noetl.materialized WHERE stream_name = $1"
_ANEW = "UPDATE noetl.materialized SET sequence = 0, message_id = NULL WHERE stream_name = $1 AND shard = $2"


class Written(msgspec.Struct, frozen=True):
    """The last message of a shard that is in the ledger, with all that stood before it."""

    created: str
    sequence: int
    message_id: str | None


async def written_places(database: Database, name: str) -> dict[int, Written]:
    """Return how far the shards of a stream are written."""
    async with database.transaction(None) as connection:
        rows = await connection.fetch(_WRITTEN, name)
    return {row["shard"]: Written(row["stream_created"], row["sequence"], row["message_id"]) for row in rows}


class WrittenPlaces:
    """What a materializer knows of the shards that it writes."""

    def __init__(self, database: Database, stream: EventStream, proof: Callable[[int], Proof | None]) -> None:
        self._database = database
        self._stream = stream
        self._proof = proof
        self._last: dict[int, Written] = {}

    async def begin(self, shard: int, created: str, durable: str) -> None:
        """See that a durable goes on behind what is written: one whose last message is not there begins anew."""
        self._last.pop(shard, None)
        known = (await written_places(self._database, self._stream.name)).get(shard)
        if known is None or known.created != created or not known.sequence:
            await self._stream.forget(durable)
            return
        self._last[shard] = known
        if not await self.stands(shard, created):
            del self._last[shard]
            _log.warning(
                "the stream %s lost messages of shard %d that it had acknowledged: what it has of it is read again",
                self._stream.name, shard,
            )  # fmt: skip
            # First the durable: whoever finds a place that is not there does both.
            await self._stream.forget(durable)
            await self._forget(shard)

    async def stands(self, shard: int, created: str) -> bool:
        """Tell whether the stream is still the same, and has the message that was written last."""
        last = self._last.get(shard)
        if last is None:
            return (await self._stream.state()).created == created
        place = Place(shard, last.sequence)
        return (await self._stream.ids_at([place])).get(place) == last.message_id

    def moved(self, shard: int, created: str, delivery: Delivery) -> None:
        """Take the news that all up to a message is written."""
        last = self._last.get(shard)
        # What is delivered again stands before what was written.
        if last is None or last.sequence <= delivery.sequence:
            self._last[shard] = Written(created, delivery.sequence, delivery.message.message_id)

    async def _forget(self, shard: int) -> None:
        proof = self._proof(shard)
        async with self._database.transaction(None, "materializer") as connection:
            if proof is None or not await fenced(connection, proof):
                raise LeaseLost(f"shard {shard} is not held here")
            await connection.execute(_ANEW, self._stream.name, shard)
