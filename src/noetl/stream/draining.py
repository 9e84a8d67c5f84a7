"""Waits until everything in the stream of writes is in the ledger: a barrier is published behind it, and followed.

Barriers are known by their ids. A stream that loses one, with whatever stood around it, gets another one behind all that
it still has: nobody waits for messages that are gone, and none that stands is passed over.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final
from uuid import uuid4

from noetl.errors import NotFound, Unavailable
from noetl.ledger.database import Database
from noetl.model.shard import SHARD_COUNT
from noetl.stream.port import EventStream, Message, Place
from noetl.stream.unread import not_written

BARRIER: Final = "noetl-barrier"
"""The header of a message that carries no row."""
_OWNER: Final = "noetl"
_LOOK_SECONDS = 0.02
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
                await asyncio.sleep(_LOOK_SECONDS)
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
            await asyncio.sleep(_LOOK_SECONDS)
    return min(place.sequence for place in placed)
