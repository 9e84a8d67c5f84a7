"""The events of held shards as a stream delivers them, for a projector that has no ledger: in order, and without gaps.

Each shard has a durable reader that whoever holds the shard takes over, acknowledged once the shard's checkpoint covers
what it gave. A gap is waited for, since it may be delivered again; then the shard stands still and says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from noetl.errors import HistoryNotKept, NoetlError
from noetl.kernel.projections.wakeups import Checkpoints
from noetl.kernel.stream.cancellation import ended
from noetl.kernel.stream.encoding import decode
from noetl.kernel.stream.port import Delivery, EventStream, Subscription
from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.model.stream import SHARD_COUNT, Scope

log = logging.getLogger("noetl.projector")

AT_ONCE: Final = 2_000
WAITING_MOST: Final = 10_000
"""Events of a shard that wait in memory, at most; further ones stay in the stream."""
AGAIN_SECONDS: Final = 1.0


class StreamEvents:
    """What a projector reads in the place of a ledger, and what wakes it."""

    def __init__(
        self,
        stream: EventStream,
        durable: str,
        checkpoints: Checkpoints,
        *,
        redelivery_seconds: float = 30.0,
        poll_seconds: float = 1.0,
    ) -> None:
        self._stream = stream
        self._durable = durable
        self._checkpoints = checkpoints
        self._redelivery_seconds = redelivery_seconds
        self._poll_seconds = poll_seconds
        self._feeds: dict[int, asyncio.Task[None]] = {}
        self._readers: dict[int, Subscription] = {}
        self._waiting: dict[int, dict[int, tuple[Event, Delivery]]] = {}
        self._gap_since: dict[int, float] = {}
        self._room = {shard: asyncio.Event() for shard in range(SHARD_COUNT)}
        self._news = asyncio.Event()
        self._grown: set[int] = set()

    def hold(self, shards: Collection[int]) -> None:
        """Read these shards from now on and no others."""
        for shard in self._feeds.keys() - set(shards):
            self._feeds.pop(shard).cancel()
            self._waiting.pop(shard, None)
            self._gap_since.pop(shard, None)
        for shard in set(shards) - self._feeds.keys():
            self._waiting[shard] = {}
            self._feeds[shard] = asyncio.create_task(self._feed(shard), name=f"noetl-projector-feed-{shard}")

    async def close(self) -> None:
        """Stop reading. What was not acknowledged is given to the next reader."""
        feeds = list(self._feeds.values())
        self.hold(())
        await ended(*feeds)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[StreamEvents]:
        """Be the listener of a projector."""
        yield self

    async def wait(self) -> set[int] | None:
        """Wait for news; return the shards that grew, or None when it is time to look at all."""
        try:
            async with asyncio.timeout(self._poll_seconds):
                await self._news.wait()
        except TimeoutError:
            return None
        self._news.clear()
        grown, self._grown = self._grown, set()
        return grown

    async def read_shard(
        self, shard: int, from_position: int = 1, *, scope: Scope | None = None, to_position: int | None = None
    ) -> AsyncIterator[Event]:
        """Give the events that were delivered and continue each other, from a position on."""
        waiting, position = self._waiting.get(shard, {}), from_position
        while position in waiting and (to_position is None or position <= to_position):
            yield waiting[position][0]
            position += 1
        if position == from_position and any(later > position for later in waiting) and self._overdue(shard):
            raise HistoryNotKept(
                f"event {position} of shard {shard} did not come by the stream, and later ones did",
                hint="run `noetl stream rebuild` where the ledger is; then this projector goes on by itself",
                position=position,
            )

    async def head(self) -> Mark:
        """Return how far the delivered events continue the checkpoints; a gap that stays counts as one more."""
        positions = list((await self._checkpoints()).positions)
        for shard, waiting in self._waiting.items():
            position = positions[shard]
            while position + 1 in waiting:
                position += 1
            if position == positions[shard] and any(later > position for later in waiting):
                position += self._overdue(shard)
            else:
                self._gap_since.pop(shard, None)
            positions[shard] = position
        return Mark(positions)

    async def projected(self, shard: int, events: Sequence[Event]) -> None:
        """Acknowledge what a committed checkpoint covers."""
        waiting, reader = self._waiting.get(shard, {}), self._readers.get(shard)
        upto = events[-1].position
        covered = [waiting.pop(position)[1] for position in sorted(waiting) if position <= upto]
        self._gap_since.pop(shard, None)
        self._room[shard].set()
        if reader is not None and (finished := _finished(covered, waiting)):
            await reader.acknowledge(finished)

    def _overdue(self, shard: int) -> bool:
        now = asyncio.get_running_loop().time()
        return now - self._gap_since.setdefault(shard, now) > 2 * self._redelivery_seconds

    async def _feed(self, shard: int) -> None:
        while True:
            try:
                await self._stream.open()
                reader = await self._stream.subscribe(
                    f"{self._durable}-{shard}", [shard], ack_wait_seconds=self._redelivery_seconds
                )
                self._readers[shard] = reader
                try:
                    await self._fill(shard, reader, self._waiting[shard])
                finally:
                    self._readers.pop(shard, None)
                    with suppress(NoetlError):
                        await reader.close()
            except NoetlError as problem:
                log.warning("shard %s cannot be read from the stream for now: %s", shard, problem.message)
                await asyncio.sleep(AGAIN_SECONDS)

    async def _fill(self, shard: int, reader: Subscription, waiting: dict[int, tuple[Event, Delivery]]) -> None:
        while True:
            while len(waiting) >= WAITING_MOST:
                self._room[shard].clear()
                await self._room[shard].wait()
            given = [(decode(one.message.body), one) for one in await reader.fetch(AT_ONCE, self._poll_seconds)]
            if not given:
                continue
            at = (await self._checkpoints()).positions[shard]
            waiting |= {event.position: (event, one) for event, one in given if event.position > at}
            known = _finished([one for event, one in given if event.position <= at], waiting)
            if known:
                await reader.acknowledge(known)
            self._grown.add(shard)
            self._news.set()


def _finished(done: Sequence[Delivery], waiting: Mapping[int, tuple[Event, Delivery]]) -> list[Delivery]:
    """Return what can be acknowledged, which covers all that came before: none of it may still wait to be projected.

    A repetition can come behind events that wait, and so can one that was lost on the way and sent again. What is held back is
    delivered again, and acknowledged once nothing before it waits.
    """
    first = min((one.sequence for _, one in waiting.values()), default=None)
    return [one for one in done if first is None or one.sequence < first]
