"""A stream in the memory of one process, for tests and simulation: everything is gone with the object."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from operator import itemgetter

from noetl.errors import LeaseLost, NotFound
from noetl.kernel.stream.port import Delivery, DurableLag, Message, Place, Published, StreamState
from noetl.kernel.stream.subjects import checked_durable, root
from noetl.model.stream import SHARD_COUNT

_MAKINGS = count(1)


class Reading:
    """What one durable knows of one shard: what it acknowledged, and when it was given what it did not."""

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.due: dict[int, float] = {}
        """For each message given and not acknowledged, when it is to be given again."""
        self.given = 0
        """The last message given, whoever read."""


class Durable:
    """The readings of a durable, by shard, and its one live subscription."""

    def __init__(self) -> None:
        self.readings: dict[int, Reading] = {}
        self.subscription: MemorySubscription | None = None


class MemoryStream:
    """Messages in lists, one per shard."""

    def __init__(self, name: str) -> None:
        root(name)
        self.name = name
        self.changed = asyncio.Event()
        self.durables: dict[str, Durable] = {}
        self._make()

    def _make(self) -> None:
        self._created = f"memory-{next(_MAKINGS)}"
        self.shards: list[list[tuple[int, Message]]] = [[] for _ in range(SHARD_COUNT)]
        self._known: dict[str, int] = {}
        self._times: dict[int, datetime] = {}
        self._last = 0
        self._bytes = 0

    async def open(self) -> StreamState:
        """Return what is there."""
        return await self.state()

    async def publish(self, messages: Sequence[Message]) -> list[Published]:
        """Store the messages; all ids are remembered for ever."""
        published = []
        for message in messages:
            known = self._known.get(message.message_id)
            if known is None:
                self._last += 1
                self._bytes += len(message.body)
                self._known[message.message_id] = self._last
                self._times[self._last] = datetime.now(UTC)
                self.shards[message.shard].append((self._last, message))
            published.append(Published(known or self._last, known is not None))
        self.wake()
        return published

    async def subscribe(
        self,
        durable: str,
        shards: Sequence[int] | None = None,
        *,
        from_sequence: int | None = None,
        ack_wait_seconds: float = 30.0,
    ) -> MemorySubscription:
        """Read as a durable."""
        found = self.durables.setdefault(checked_durable(durable), Durable())
        wanted = range(SHARD_COUNT) if shards is None else sorted(set(shards))
        for shard in wanted:
            found.readings.setdefault(shard, Reading((from_sequence or 1) - 1)).due.clear()
        found.subscription = MemorySubscription(self, durable, wanted, ack_wait_seconds)
        self.wake()
        return found.subscription

    async def state(self) -> StreamState:
        """Return identity and extent."""
        count_of_messages = sum(map(len, self.shards))
        first = 1 if count_of_messages else self._last + 1
        return StreamState(self.name, self._created, first, self._last, count_of_messages, self._bytes)

    async def ids_at(self, places: Sequence[Place]) -> dict[Place, str]:
        """Look the messages up."""
        found = {}
        for place in places:
            own = self.shards[place.shard]
            at = bisect_left(own, place.sequence, key=itemgetter(0))
            if at < len(own) and own[at][0] == place.sequence:
                found[place] = own[at][1].message_id
        return found

    async def ends(self) -> dict[Place, str]:
        """Look the last messages up."""
        return {Place(shard, own[-1][0]): own[-1][1].message_id for shard, own in enumerate(self.shards) if own}

    async def lags(self) -> list[DurableLag]:
        """Count what stands above the floors."""
        return [
            DurableLag(name, shard, sum(sequence > reading.floor for sequence, _ in self.shards[shard]))
            for name, durable in sorted(self.durables.items())
            for shard, reading in sorted(durable.readings.items())
        ]

    async def came_at(self, shard: int, after: int) -> datetime | None:
        """Look for the first message behind."""
        return next((self._times[sequence] for sequence, _ in self.shards[shard] if sequence > after), None)

    async def readers(self) -> set[str]:
        """Look whose subscription is open."""
        return {
            name
            for name, durable in self.durables.items()
            if durable.subscription is not None and not durable.subscription.closed
        }

    async def forget(self, durable: str) -> None:
        """Remove a durable."""
        self.durables.pop(checked_durable(durable), None)
        self.wake()

    async def trim(self, upto: int) -> None:
        """Forget old messages."""
        self.shards = [[one for one in shard if one[0] > upto] for shard in self.shards]

    async def wipe(self) -> None:
        """Remove everything."""
        self.durables.clear()
        self._make()
        self.wake()

    async def close(self) -> None:
        """End subscriptions; messages and durables stay while the object does."""
        for durable in self.durables.values():
            if durable.subscription is not None:
                await durable.subscription.close()

    def wake(self) -> None:
        """Let all who wait look again."""
        self.changed.set()
        self.changed = asyncio.Event()


class MemorySubscription:
    """One reader of one durable."""

    def __init__(self, stream: MemoryStream, durable: str, shards: Sequence[int], ack_wait_seconds: float) -> None:
        self._stream = stream
        self._name = durable
        self._shards = list(shards)
        self._ack_wait_seconds = ack_wait_seconds
        self.closed = False

    async def fetch(self, limit: int, wait_seconds: float) -> list[Delivery]:
        """Give messages as soon as there are any."""
        clock = asyncio.get_running_loop().time
        until = clock() + wait_seconds
        while True:
            changed = self._stream.changed
            found = self._gather(self._durable(), limit, clock())
            now = clock()
            if found or now >= until:
                return found
            try:
                async with asyncio.timeout(min(until, self._next_due(until)) - now):
                    await changed.wait()
            except TimeoutError:
                continue

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Raise the floor of each shard."""
        durable = self._durable()
        for delivery in deliveries:
            reading = durable.readings[delivery.message.shard]
            reading.floor = max(reading.floor, delivery.sequence)
            reading.due = {sequence: due for sequence, due in reading.due.items() if sequence > reading.floor}

    async def lag(self) -> int:
        """Return how many messages stand above the floors."""
        readings = self._durable().readings
        return sum(
            sequence > readings[shard].floor for shard in self._shards for sequence, _ in self._stream.shards[shard]
        )

    async def close(self) -> None:
        """Stop reading."""
        self.closed = True
        self._stream.wake()

    def _durable(self) -> Durable:
        durable = self._stream.durables.get(self._name)
        if self.closed or durable is None:
            raise NotFound(f"the subscription of {self._name} to {self._stream.name} has ended", hint="subscribe again")
        if durable.subscription is not self:
            raise LeaseLost(f"another reader took over the durable {self._name} of {self._stream.name}")
        return durable

    def _gather(self, durable: Durable, limit: int, now: float) -> list[Delivery]:
        self._shards.append(self._shards.pop(0))
        found: list[Delivery] = []
        for shard in self._shards:
            reading = durable.readings[shard]
            for sequence, message in self._stream.shards[shard]:
                if len(found) == limit:
                    return found
                if sequence > reading.floor and reading.due.get(sequence, now) <= now:
                    found.append(Delivery(message, sequence, sequence <= reading.given))
                    reading.given = max(reading.given, sequence)
                    reading.due[sequence] = now + self._ack_wait_seconds
        return found

    def _next_due(self, otherwise: float) -> float:
        readings = self._durable().readings
        return min((due for shard in self._shards for due in readings[shard].due.values()), default=otherwise)
