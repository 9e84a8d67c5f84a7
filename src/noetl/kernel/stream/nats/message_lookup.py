"""Looks messages of a JetStream stream up by their places, at the server that leads it: places go in, message ids come out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from nats.js.api import RawStreamMsg
from nats.js.client import JetStreamContext
from nats.js.errors import NotFoundError

from noetl.kernel.stream.port import Place
from noetl.kernel.stream.subjects import of_shard, parts
from noetl.model.stream import SHARD_COUNT

_AT_ONCE: Final = 256
"""Questions under way; a server drops those of a client that asks for far more than it answers."""
_NO_MESSAGE: Final = 10037
"""What JetStream calls a message that is not there, as opposed to a stream that is not."""


async def ids_at(jetstream: JetStreamContext, stream: str, places: Sequence[Place]) -> dict[Place, str]:
    """Return the ids of the messages that stand at these places."""
    found: dict[Place, str] = {}
    for start in range(0, len(places), _AT_ONCE):
        some = places[start : start + _AT_ONCE]
        answers = await asyncio.gather(*(_there(partial(jetstream.get_msg, stream, seq=one.sequence)) for one in some))
        found.update(_standing(message) for message in answers if message is not None)
    # A sequence counts all shards: what stands there now may be of another one.
    return {place: found[place] for place in places if place in found}


async def ends(jetstream: JetStreamContext, stream: str) -> dict[Place, str]:
    """Return places and ids of the last messages of the shards."""
    asked = (
        _there(partial(jetstream.get_msg, stream, subject=of_shard(stream, shard))) for shard in range(SHARD_COUNT)
    )
    return dict(_standing(message) for message in await asyncio.gather(*asked) if message is not None)


async def _there(ask: Callable[[], Awaitable[RawStreamMsg]]) -> RawStreamMsg | None:
    try:
        return await ask()
    except NotFoundError as problem:
        if problem.err_code != _NO_MESSAGE:
            raise
        return None


def _standing(message: RawStreamMsg) -> tuple[Place, str]:
    assert message.subject is not None
    assert message.seq is not None
    _, _, shard = parts(message.subject)
    return Place(shard, message.seq), (message.headers or {}).get("Nats-Msg-Id", "")
