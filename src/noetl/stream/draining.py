"""Waits until everything in the stream of writes is in the ledger: a barrier is published behind it, and followed."""

from __future__ import annotations

import asyncio
from typing import Final
from uuid import uuid4

from noetl.errors import Unavailable
from noetl.ledger.database import Database
from noetl.model.shard import SHARD_COUNT
from noetl.stream.port import EventStream, Message

BARRIER: Final = "noetl-barrier"
"""The header of a message that carries no row."""
_OWNER: Final = "noetl"
_LOOK_SECONDS = 0.02
_REACHED = "SELECT shard, sequence FROM noetl.materialized WHERE stream_name = $1 AND stream_created = $2"


async def trimmed(database: Database, stream: EventStream) -> int:
    """Let a stream go of what is in the ledger, and return up to which sequence that is."""
    upto = await drained(database, stream) - 1
    await stream.trim(upto)
    return upto


async def drained(database: Database, stream: EventStream, seconds: float = 60.0) -> int:
    """Return when whatever was published before this call is in the ledger; after the time, raise `Unavailable`.

    Gives the sequence before which that is everything.
    """
    created = (await stream.open()).created
    own = uuid4().hex
    barriers = [
        Message(_OWNER, 0, shard, f"{own}-{shard}", b"", {BARRIER: "1"}) for shard in range(SHARD_COUNT)
    ]  # fmt: skip
    published = await stream.publish(barriers)
    ahead = {message.shard: one.sequence for message, one in zip(barriers, published, strict=True)}
    first = min(ahead.values())
    try:
        async with asyncio.timeout(seconds):
            while ahead:
                async with database.transaction(None) as connection:
                    rows = await connection.fetch(_REACHED, stream.name, created)
                reached = {row["shard"]: row["sequence"] for row in rows}
                ahead = {shard: sequence for shard, sequence in ahead.items() if reached.get(shard, 0) < sequence}
                if ahead:
                    await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        raise Unavailable(
            f"after {seconds:g} s shards {sorted(ahead)} still have writes that are not in the ledger",
            hint="start `noetl materializer`, and see `noetl stream status`",
        ) from None
    return first
