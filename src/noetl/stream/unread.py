"""Which messages of the stream of writes are not in the ledger yet: those that stand there, compared with what was written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from noetl.errors import NotFound
from noetl.ledger.database import Database
from noetl.stream.port import EventStream, Place
from noetl.stream.written import Written, written_places

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
