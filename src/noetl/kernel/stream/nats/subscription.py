"""Reads a JetStream stream as a durable: one consumer per shard, so that order and acknowledgements are the shard's own.

A consumer acknowledges up to a sequence, one answer for many messages. That is safe only while every message that the
server counted as given has reached this reader, so each lane checks the consumer's own numbering; at a gap, after a new
connection and for a new subscription, the consumer is made again behind what was acknowledged, which gives the rest
anew at once and in order. Whoever made it last holds it; an earlier holder finds out and stops.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

import nats.errors
import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import ConsumerInfo
from nats.js.client import JetStreamContext

from noetl.errors import NotFound
from noetl.kernel.stream.nats.connection import NatsConnection
from noetl.kernel.stream.nats.consumers import Consumers, floor_of, given_by, waiting_for
from noetl.kernel.stream.nats.deliveries import PULL_SECONDS, Lane
from noetl.kernel.stream.port import Delivery

AHEAD = 512
"""Messages of a shard that are asked for ahead of the reader."""


class NatsSubscription:
    """The lanes of one durable."""

    def __init__(
        self, connection: NatsConnection, stream: str, durable: str, shards: Sequence[int], ack_wait_seconds: float
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._durable = durable
        self._consumers = Consumers(stream, durable, ack_wait_seconds)
        self._lanes = {shard: Lane(shard) for shard in shards}
        self._order = list(self._lanes.values())
        self._news = asyncio.Event()
        self._making = asyncio.Lock()
        self.closed = False

    async def open(self, from_sequence: int | None) -> None:
        """Take the durable over, making what is not there yet."""
        with self._connection.translated():
            jetstream = await self._connection.jetstream()
            known = await self._consumers.known(jetstream)
            first = (from_sequence or 1) - 1
            await _all(
                self._make(jetstream, lane, 0 if lane.shard in known else first, known.get(lane.shard, []))
                for lane in self._order
            )

    async def fetch(self, limit: int, wait_seconds: float) -> list[Delivery]:
        """Give messages as soon as there are any."""
        deadline = time.monotonic() + wait_seconds
        with self._connection.translated():
            while True:
                self._news.clear()
                await self._ask(min(limit, AHEAD))
                if any(lane.buffered for lane in self._order):
                    # What came in with the same read of the socket is on its way through the client's queue.
                    await asyncio.sleep(0)
                    return self._gathered(limit)
                left = deadline - time.monotonic()
                if left <= 0:
                    return []
                with suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._news.wait()

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge up to the last of each shard, and wait for the server's word."""
        self._check()
        last: dict[int, int] = {}
        for delivery in deliveries:
            shard = delivery.message.shard
            last[shard] = max(last.get(shard, 0), delivery.sequence)
        with self._connection.translated():
            client = await self._connection.client()
            await _all(self._acknowledge(client, self._lanes[shard], last[shard]) for shard in last)

    async def lag(self) -> int:
        """Return what the consumers have not given or not seen acknowledged."""
        self._check()
        with self._connection.translated():
            jetstream = await self._connection.jetstream()
            known = await self._consumers.known(jetstream)
            held = [self._consumers.held(known.get(lane.shard)) for lane in self._order]
        return sum(map(waiting_for, held))

    async def close(self) -> None:
        """Stop reading; the consumers stay."""
        self.closed = True
        self._news.set()
        for lane in self._order:
            await _leave(lane)

    def _check(self) -> None:
        if self.closed:
            raise NotFound(f"the subscription of {self._durable} to {self._stream} is closed")

    async def _ask(self, ahead: int) -> None:
        self._check()
        client = await self._connection.client()
        await self._remake({})
        for lane in self._order:
            if wanted := lane.ask(ahead):
                assert lane.inbox is not None
                await client.publish(
                    f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{lane.consumer}",
                    orjson.dumps({"batch": wanted, "expires": int(PULL_SECONDS * 1e9)}),
                    reply=lane.inbox.subject,
                )

    def _taking(self, lane: Lane, made: int) -> Callable[[Msg], Awaitable[None]]:
        async def take(message: Msg) -> None:
            # What an earlier making of the consumer sent is given again by this one.
            if lane.made == made:
                lane.take(message)
                self._news.set()

        return take

    def _gathered(self, limit: int) -> list[Delivery]:
        """Take what is there, each time from another shard first, so that a busy one keeps nobody waiting."""
        self._order.append(self._order.pop(0))
        taken: list[Delivery] = []
        for lane in self._order:
            for sequence in list(lane.buffered)[: limit - len(taken)]:
                taken.append(lane.buffered.pop(sequence))
        return taken

    async def _acknowledge(self, client: Client, lane: Lane, sequence: int) -> None:
        if sequence <= lane.acknowledged:
            return
        reply = lane.replies.get(sequence)
        if reply is None or lane.making != self._connection.making:
            # Given by an earlier making of the consumer: it is made again behind this message.
            lane.making = -1
            await self._remake({lane.shard: sequence})
            return
        await client.request(reply, b"+ACK", timeout=self._connection.request_seconds)
        lane.done(sequence)

    async def _remake(self, done: dict[int, int]) -> None:
        """Make the consumers again that need it, behind what is acknowledged and what `done` says by shard."""
        if not self._lost():
            return
        async with self._making:
            jetstream = await self._connection.jetstream()
            known = await self._consumers.known(jetstream)
            for lane in self._lost():
                self._consumers.held(known.get(lane.shard))
            await _all(
                self._make(jetstream, lane, max(lane.acknowledged, done.get(lane.shard, 0)), known[lane.shard])
                for lane in self._lost()
            )

    def _lost(self) -> list[Lane]:
        return [lane for lane in self._order if lane.making != self._connection.making]

    async def _make(self, jetstream: JetStreamContext, lane: Lane, floor: int, former: Sequence[ConsumerInfo]) -> None:
        making = self._connection.making
        floor = max(floor, floor_of(former))
        lane.consumer = await self._consumers.make(jetstream, lane.shard, floor, former)
        await _leave(lane)
        client = await self._connection.client()
        lane.made += 1
        inbox = await client.subscribe(client.new_inbox(), cb=self._taking(lane, lane.made))
        lane.begin(making, inbox, floor, given_by(former))


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all of it and only then say what failed, so that nothing goes on behind the back of a second try."""
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


async def _leave(lane: Lane) -> None:
    inbox, lane.inbox = lane.inbox, None
    if inbox is not None:
        with suppress(nats.errors.Error, OSError):
            await inbox.unsubscribe()
