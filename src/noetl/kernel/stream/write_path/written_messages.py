"""Up to which message each shard of the stream of writes is in the ledger, which are missing, and a wait until none
is.

While the last written message still stands in its place, everything before it in its shard is in the ledger. The
wait publishes a barrier behind everything and follows it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final
from uuid import uuid4

import msgspec

from noetl.errors import LeaseLost, NotFound, Unavailable
from noetl.kernel.leases.shards import fenced
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.stream.port import Delivery, EventStream, Message, Place
from noetl.model.lease import Proof
from noetl.model.stream import SHARD_COUNT

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


_LOOK_SECONDS: Final = 0.05


async def unread(database: Database, stream: EventStream) -> dict[Place, str]:
    """Return the last messages of those shards whose messages are not all in the ledger; a stream that is gone has none."""
    # What is written is looked at first: a shard that grows in between is told once too often, never too seldom.
    written = await written_places(database, stream.name)
    try:
        created = (await stream.state()).created
        ends = await stream.ends()
    except NotFound:
        return {}
    return {
        place: message_id
        for place, message_id in ends.items()
        if written.get(place.shard) != Written(created, place.sequence, message_id)
    }


async def still_unread(
    database: Database, stream: EventStream, found: Mapping[Place, str], seconds: float
) -> dict[Place, str]:
    """Wait until what was found unread is in the ledger or gone, and return what is neither after the time."""
    left = dict(found)
    deadline = asyncio.get_running_loop().time() + seconds
    while left and asyncio.get_running_loop().time() < deadline:
        try:
            left = await not_written(database, stream, (await stream.state()).created, left)
            standing = await stream.ids_at(list(left))
        except NotFound:
            return {}
        left = {place: own for place, own in left.items() if standing.get(place) == own}
        if left:
            await asyncio.sleep(_LOOK_SECONDS)
    return left


async def not_written(
    database: Database, stream: EventStream, created: str, messages: Mapping[Place, str]
) -> dict[Place, str]:
    """Return those of the messages that are not known to be in the ledger with all that stands before them.

    A later message of the shard that was written tells so only if it stands: otherwise its sequence was another message's.
    """
    written = {
        shard: one
        for shard, one in (await written_places(database, stream.name)).items()
        if one.created == created
    }  # fmt: skip
    later = {
        place: Place(place.shard, written[place.shard].sequence)
        for place in messages
        if place.shard in written and written[place.shard].sequence > place.sequence
    }
    standing = await stream.ids_at([*later.values()]) if later else {}

    def is_written(place: Place, message_id: str) -> bool:
        if place in later:
            return standing.get(later[place]) == written[place.shard].message_id
        return written.get(place.shard) == Written(created, place.sequence, message_id)

    return {place: own for place, own in messages.items() if not is_written(place, own)}


BARRIER: Final = "noetl-barrier"
"""The header of a message that carries no row."""
_OWNER: Final = "noetl"
_DRAIN_LOOK_SECONDS = 0.02
_PROOF_LOOKS: Final = 25
"""After so many looks it is seen whether the barriers still stand."""


async def trimmed(database: Database, stream: EventStream) -> int:
    """Let a stream go of what is in the ledger, and return up to which sequence that is."""
    upto = await drained(database, stream) - 1
    await stream.trim(upto)
    return upto


async def drained(database: Database, stream: EventStream, seconds: float = 60.0) -> int:
    """Return when whatever was published before this call and is not gone is in the ledger.

    Gives the sequence before which that is everything; after the time, raises `Unavailable`.
    """
    ahead: set[int] = set(range(SHARD_COUNT))
    await stream.open()
    try:
        async with asyncio.timeout(seconds):
            while True:
                # A server that loses messages is away for a moment first, and a stream that was wiped is made anew.
                with suppress(NotFound, Unavailable):
                    first = await _passed(database, stream, ahead)
                    if first is not None:
                        return first
                await asyncio.sleep(_DRAIN_LOOK_SECONDS)
    except TimeoutError:
        raise Unavailable(
            f"after {seconds:g} s shards {sorted(ahead)} still have writes that are not in the ledger",
            hint="start `noetl materializer`, and see `noetl stream status`",
        ) from None


async def _passed(database: Database, stream: EventStream, ahead: set[int]) -> int | None:
    """Publish barriers, and return the first one's sequence once all are passed and all stand; None if one is gone."""
    created = (await stream.open()).created
    own = uuid4().hex
    barriers = [
        Message(_OWNER, 0, shard, f"{own}-{shard}", b"", {BARRIER: "1"}) for shard in range(SHARD_COUNT)
    ]  # fmt: skip
    published = await stream.publish(barriers)
    placed = {
        Place(message.shard, one.sequence): message.message_id
        for message, one in zip(barriers, published, strict=True)
    }  # fmt: skip
    left, looks = placed, 0
    while left:
        left = await not_written(database, stream, created, left)
        ahead.clear()
        ahead.update(place.shard for place in left)
        looks += 1
        if (not left or looks % _PROOF_LOOKS == 0) and await stream.ids_at(list(placed)) != placed:
            return None
        if left:
            await asyncio.sleep(_DRAIN_LOOK_SECONDS)
    return min(place.sequence for place in placed)
