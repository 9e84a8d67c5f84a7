"""What wakes a projector: notifications, the clock, or a stream that says which shards grew.

Events are read from the ledger all the same. A stream that is away, late or wiped costs a poll interval and nothing
else.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final, Protocol

from blake3 import blake3

from noetl.errors import NoetlError
from noetl.kernel.stream.encoding import decode
from noetl.kernel.stream.port import Delivery, EventStream, Subscription
from noetl.model.mark import Mark


class Listener(Protocol):
    """Tells that shards grew."""

    async def wait(self) -> set[int] | None:
        """Wait for news; return the shards that grew, or None when it is time to look at all."""
        ...


Listen = Callable[[], AbstractAsyncContextManager[Listener]]
"""Opens a listener, such as `lambda: listening(database, "projector", poll_seconds)`."""


class look_each_second:  # noqa: N801 - reads as what it does where a listener is opened
    """A listener without notifications."""

    async def __aenter__(self) -> look_each_second:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def wait(self) -> None:
        """Say after a second that it is time to look."""
        await asyncio.sleep(1.0)


log = logging.getLogger("noetl.projector")

AT_ONCE: Final = 1_000
_LONGEST: Final = 125
"""Letters of a name that leave room for a shard's number: streams take 128."""
AGAIN_SECONDS: Final = 5.0
"""How long a stream that failed is left alone."""

Checkpoints = Callable[[], Awaitable[Mark]]


def durable_of(name: str, store: str | None = None) -> str:
    """Return the name of a projector's durable reader, or of the one it has for a store beside the default one.

    No two have the same, and a projector that is started again has the one it had. Letters, digits and dashes stand for
    themselves, anything else for its bytes: `a.b` is `projector-a_2eb`.
    """
    return _bounded(f"projector-{_escaped(name)}" + ("" if store is None else f"__{_escaped(store)}"))


def far_durables_of(cluster: str) -> str:
    """Return the name of a far side's durable readers, of which each has its shard's number after a dash."""
    return _bounded(f"far-{_escaped(cluster)}")


def _escaped(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]", lambda found: "".join(f"_{byte:02x}" for byte in found[0].encode()), name)


def _bounded(durable: str) -> str:
    """Shorten a name that a stream would refuse; what takes the place of its end is told from a whole one by its length."""
    if len(durable) < _LONGEST:
        return durable
    digest = blake3(durable.encode()).hexdigest(length=16)
    return f"{durable[: _LONGEST - len(digest)]}{digest}"


class StreamWaking:
    """Opens listeners that hear of held shards from a stream, and from elsewhere while the stream is away."""

    def __init__(self, stream: EventStream, durable: str, checkpoints: Checkpoints, otherwise: Listen) -> None:
        self._stream = stream
        self._durable = durable
        self._checkpoints = checkpoints
        self._otherwise = otherwise
        self._shards: frozenset[int] = frozenset()

    def hold(self, shards: Collection[int]) -> None:
        """Hear of these shards from now on."""
        self._shards = frozenset(shards)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[StreamListener]:
        """Give a listener for the time of the block."""
        async with self._otherwise() as otherwise:
            listener = StreamListener(self._stream, self._durable, self._checkpoints, otherwise, lambda: self._shards)
            try:
                yield listener
            finally:
                await listener.close()


class StreamListener:
    """See `Listener`; what it heard is acknowledged when the projections have it."""

    def __init__(
        self,
        stream: EventStream,
        durable: str,
        checkpoints: Checkpoints,
        otherwise: Listener,
        shards: Callable[[], frozenset[int]],
        poll_seconds: float = 1.0,
    ) -> None:
        self._stream = stream
        self._durable = durable
        self._checkpoints = checkpoints
        self._otherwise = otherwise
        self._wanted = shards
        self._poll_seconds = poll_seconds
        self._subscription: Subscription | None = None
        self._shards: frozenset[int] = frozenset()
        self._heard: list[tuple[int, int, Delivery]] = []
        self._away_until = 0.0

    async def wait(self) -> set[int] | None:
        """Wait for news; return the shards that grew, or None when it is time to look at all."""
        loop = asyncio.get_running_loop()
        if not self._wanted() or loop.time() < self._away_until:
            return await self._otherwise.wait()
        try:
            return await self._fetched()
        except NoetlError as problem:
            log.warning("the stream does not wake this projector for now: %s", problem.message)
            self._away_until = loop.time() + AGAIN_SECONDS
            await self.close()
            return None

    async def close(self) -> None:
        """Stop hearing; what was not acknowledged is given again, which changes nothing."""
        subscription, self._subscription, self._heard = self._subscription, None, []
        if subscription is not None:
            with suppress(NoetlError):
                await subscription.close()

    async def _fetched(self) -> set[int] | None:
        subscription = await self._subscribed()
        deliveries = await subscription.fetch(AT_ONCE, self._poll_seconds)
        for delivery in deliveries:
            event = decode(delivery.message.body)
            self._heard.append((event.shard, event.position, delivery))
        await self._acknowledge(subscription)
        return {delivery.message.shard for delivery in deliveries} or None

    async def _subscribed(self) -> Subscription:
        wanted = self._wanted()
        if self._subscription is None or wanted != self._shards:
            await self.close()
            # A new reader has nothing to hear of what stands: it looks for itself.
            state = await self._stream.open()
            self._subscription = await self._stream.subscribe(
                self._durable, sorted(wanted), from_sequence=state.last_sequence + 1
            )
            self._shards = wanted
        return self._subscription

    async def _acknowledge(self, subscription: Subscription) -> None:
        if not self._heard:
            return
        at = (await self._checkpoints()).positions
        done = [delivery for shard, position, delivery in self._heard if position <= at[shard]]
        if done:
            await subscription.acknowledge(done)
            self._heard = [one for one in self._heard if one[1] > at[one[0]]]
