"""A stream whose messages prove where they come from: each carries a MAC under a key that only this installation has.

Whoever reaches the server of a stream can publish to it. What carries no MAC of ours is told and counted, and is given on
without its body, so that nothing of it is ever written and nothing behind it has to wait.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from noetl.kernel.stream.port import (
    Delivery,
    DurableLag,
    EventStream,
    Message,
    Place,
    Published,
    StreamState,
    Subscription,
)

HEADER: Final = "Noetl-Mac"
REFUSED: Final = "Noetl-Refused"
_LABEL: Final = b"noetl message, version 1"
_log = logging.getLogger(__name__)


class MacKey(NamedTuple):
    """A key, and the name by which messages call it, which says nothing about the key."""

    name: str
    secret: bytes


class MacKeys(Protocol):
    """The keys of an installation."""

    def signing(self) -> MacKey:
        """Return the newest key; `ConfigError` where there is none."""
        ...

    def named(self, name: str) -> MacKey | None:
        """Return a key by its name, also an old one; None where this process has no such key."""
        ...


def signed(stream: str, message: Message, key: MacKey) -> Message:
    """Return the message with the MAC that it is known by."""
    mac = _mac(stream, message, key.secret).hex()
    return replace(message, headers={**message.headers, HEADER: f"{key.name} {mac}"})


def is_ours(stream: str, message: Message, keys: MacKeys) -> bool:
    """Tell whether somebody with a key of ours signed this message, for this stream and this shard."""
    name, _, mac = message.headers.get(HEADER, "").partition(" ")
    key = keys.named(name) if name else None
    return key is not None and hmac.compare_digest(_mac(stream, message, key.secret).hex().encode(), mac.encode())


def _mac(stream: str, message: Message, secret: bytes) -> bytes:
    parts = (stream, message.tenant_id, str(message.execution_id), str(message.shard), message.message_id)
    said = [_LABEL, *(part.encode() for part in parts), message.body]
    # Each part is told with its length: no two messages come to the same bytes.
    return hmac.digest(secret, b"".join(len(part).to_bytes(8, "big") + part for part in said), "sha256")


class SignedStream:
    """Another stream, with a MAC on everything that is published and a look at it on everything that is read."""

    def __init__(
        self, stream: EventStream, keys: MacKeys, refused: Callable[[int], None] = lambda messages: None
    ) -> None:
        self.name = stream.name
        self._stream = stream
        self._keys = keys
        self._refused = refused

    async def publish(self, messages: Sequence[Message]) -> list[Published]:
        """Sign the messages and publish them."""
        key = self._keys.signing()
        return await self._stream.publish([signed(self.name, message, key) for message in messages])

    async def subscribe(
        self,
        durable: str,
        shards: Sequence[int] | None = None,
        *,
        from_sequence: int | None = None,
        ack_wait_seconds: float = 30.0,
    ) -> Subscription:
        """Read as a durable."""
        found = await self._stream.subscribe(
            durable, shards, from_sequence=from_sequence, ack_wait_seconds=ack_wait_seconds
        )
        return _Checked(found, self._check)

    def _check(self, deliveries: list[Delivery]) -> list[Delivery]:
        strange = [one for one in deliveries if not is_ours(self.name, one.message, self._keys)]
        if not strange:
            return deliveries
        self._refused(len(strange))
        first = strange[0]
        _log.error(
            "%d messages of the stream %s carry no MAC of this installation and are not written; the first is %r at sequence %d "
            "of shard %d. Somebody else can publish there, or a process has another master key",
            len(strange), self.name, first.message.message_id, first.sequence, first.message.shard,
        )  # fmt: skip
        passed = {one.sequence for one in strange}
        empty = {"body": b"", "headers": {REFUSED: "1"}}
        return [
            replace(one, message=replace(one.message, **empty)) if one.sequence in passed else one for one in deliveries
        ]

    async def open(self) -> StreamState:
        """Make the stream if it is absent."""
        return await self._stream.open()

    async def state(self) -> StreamState:
        """Return the stream's identity and extent."""
        return await self._stream.state()

    async def ids_at(self, places: Sequence[Place]) -> dict[Place, str]:
        """Return the ids of the messages at these places."""
        return await self._stream.ids_at(places)

    async def ends(self) -> dict[Place, str]:
        """Return the last message of each shard."""
        return await self._stream.ends()

    async def lags(self) -> list[DurableLag]:
        """Return how far every durable is behind."""
        return await self._stream.lags()

    async def came_at(self, shard: int, after: int) -> datetime | None:
        """Return when the first message behind a sequence came."""
        return await self._stream.came_at(shard, after)

    async def readers(self) -> set[str]:
        """Return the durables that are read now."""
        return await self._stream.readers()

    async def forget(self, durable: str) -> None:
        """Remove a durable."""
        await self._stream.forget(durable)

    async def trim(self, upto: int) -> None:
        """Let go of the messages up to a sequence."""
        await self._stream.trim(upto)

    async def wipe(self) -> None:
        """Make the stream anew."""
        await self._stream.wipe()

    async def close(self) -> None:
        """Let go of the server."""
        await self._stream.close()


class _Checked:
    """A subscription that looks at what it gives."""

    def __init__(self, subscription: Subscription, check: Callable[[list[Delivery]], list[Delivery]]) -> None:
        self._subscription = subscription
        self._check = check

    async def fetch(self, limit: int, wait_seconds: float) -> list[Delivery]:
        """Give messages as soon as there are any."""
        return self._check(await self._subscription.fetch(limit, wait_seconds))

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Note that these are done with."""
        await self._subscription.acknowledge(deliveries)

    async def lag(self) -> int:
        """Return how many messages are not acknowledged."""
        return await self._subscription.lag()

    async def close(self) -> None:
        """Stop reading."""
        await self._subscription.close()
