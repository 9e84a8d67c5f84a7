"""Publishes messages to JetStream: as atomic batches where the server has them, otherwise many at a time in order.

One inbox receives the answers to all messages under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

import nats.errors
import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.errors import APIError

from noetl.kernel.stream.nats.connection import NatsConnection
from noetl.kernel.stream.port import Message, Published
from noetl.kernel.stream.subjects import subject

BATCH = 1000
"""Messages of an atomic batch; servers refuse more."""

BATCH_BYTES = 4 << 20
"""Bytes after which a batch ends early, since the server holds an open batch in memory."""

_MESSAGE_ID = "Nats-Msg-Id"
_SENT_AT_ONCE = 128
"""Messages after which others may use the processor, the answer to an earlier batch among them."""


class Publisher:
    """The publishing side of one stream. Calls wait for one another, so that each one's messages stay together."""

    def __init__(self, connection: NatsConnection, stream: str) -> None:
        self.atomic = False
        """Whether the stream takes atomic batches."""
        self._connection = connection
        self._stream = stream
        self._one_at_a_time = asyncio.Lock()
        self._answers: Answers | None = None

    async def publish(self, messages: Sequence[Message]) -> list[Published]:
        """Publish in order and return once all is answered."""
        published: list[Published] = []
        ending: asyncio.Task[list[Published]] | None = None
        async with self._one_at_a_time:
            try:
                for batch in _batches(messages):
                    # A batch is sent while the one before it is being written, and ended once that one stands.
                    client = await self._connection.client()
                    name = await self._begin(client, batch)
                    if ending is not None:
                        published += await ending
                    ending = asyncio.create_task(self._end(client, batch, name), name="noetl-nats-publish")
                if ending is not None:
                    published += await ending
            finally:
                if ending is not None and not ending.done():
                    ending.cancel()
        return published

    async def close(self) -> None:
        """Let go of the inbox for answers."""
        answers, self._answers = self._answers, None
        if answers is not None:
            await answers.close()

    async def _begin(self, client: Client, batch: Sequence[Message]) -> str | None:
        """Send all of a batch but its last message, and return its name; None where it is not sent as a batch."""
        if not self.atomic or len(batch) == 1:
            return None
        name = uuid4().hex
        for number, message in enumerate(batch[:-1], 1):
            headers = {
                "Nats-Batch-Id": name,
                "Nats-Batch-Sequence": str(number),
                _MESSAGE_ID: message.message_id,
                **message.headers,
            }
            await client.publish(self._subject(message), message.body, headers=headers)
            if not number % _SENT_AT_ONCE:
                await asyncio.sleep(0)
        return name

    async def _end(self, client: Client, batch: Sequence[Message], name: str | None) -> list[Published]:
        """Send the last message, with which all are stored or none."""
        if name is None:
            return await self._each(client, batch)
        last = batch[-1]
        headers = {
            "Nats-Batch-Id": name,
            "Nats-Batch-Sequence": str(len(batch)),
            "Nats-Batch-Commit": "1",
            _MESSAGE_ID: last.message_id,
            **last.headers,
        }
        seconds = self._connection.request_seconds
        answer = await client.request(self._subject(last), last.body, timeout=seconds, headers=headers)
        try:
            sequence = answered(answer)["seq"]
        except APIError as problem:
            if problem.code != 400:
                raise
            return await self._each(client, batch)
        return [Published(number, duplicate=False) for number in range(sequence - len(batch) + 1, sequence + 1)]

    async def _each(self, client: Client, batch: Sequence[Message]) -> list[Published]:
        if self._answers is None or self._answers.client is not client:
            self._answers = Answers(client, self._connection.request_seconds)
            await self._answers.open()
        answers, unbroken = self._answers, self._connection.breaks
        answers.expect(len(batch))
        for number, message in enumerate(batch):
            if answers.full:
                await answers.room()
            if self._connection.breaks != unbroken:
                # Over a new connection it would stand before those that were on their way when the old one broke.
                raise ConnectionResetError("the connection broke while messages were on their way")
            headers = {_MESSAGE_ID: message.message_id, **message.headers}
            reply = answers.subject(number)
            await client.publish(self._subject(message), message.body, reply=reply, headers=headers)
        said = [answered(answer) for answer in await answers.all()]
        return [Published(each["seq"], "duplicate" in each) for each in said]

    def _subject(self, message: Message) -> str:
        return subject(self._stream, message.tenant_id, message.execution_id, message.shard)


def _batches(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Cut at the number and the bytes a batch may have."""
    begin, size = 0, 0
    for place, message in enumerate(messages):
        if place - begin == BATCH or (size + len(message.body) > BATCH_BYTES and place > begin):
            yield messages[begin:place]
            begin, size = place, 0
        size += len(message.body)
    if begin < len(messages):
        yield messages[begin:]


WINDOW = 512
"""Messages under way; more were measured not to be quicker."""


class Answers:
    """Collects the answers to one batch at a time. Waiting ends when the server is silent for `seconds`."""

    def __init__(self, client: Client, seconds: float) -> None:
        self.client = client
        self._seconds = seconds
        self._prefix = client.new_inbox()
        self._batch = 0
        self._sent = 0
        self._came = 0
        self._answers: list[Msg | None] = []
        self._news = asyncio.Event()
        self._subscription: Subscription | None = None

    async def open(self) -> None:
        """Listen for answers."""
        self._subscription = await self.client.subscribe(f"{self._prefix}.*.*", cb=self._take)

    async def close(self) -> None:
        """Listen no more."""
        if self._subscription is not None:
            with suppress(nats.errors.Error, OSError):
                await self._subscription.unsubscribe()

    def expect(self, number: int) -> None:
        """Begin a batch; answers to earlier ones are no longer awaited."""
        self._batch += 1
        self._sent = self._came = 0
        self._answers = [None] * number

    def subject(self, number: int) -> str:
        """Return where the answer to a message of the batch goes."""
        self._sent += 1
        return f"{self._prefix}.{self._batch}.{number}"

    @property
    def full(self) -> bool:
        """Whether as many messages are under way as may be."""
        return self._sent - self._came >= WINDOW

    async def room(self) -> None:
        """Wait until another message may be sent."""
        while self.full:
            await self._more()

    async def all(self) -> list[Msg]:
        """Return the answers in the order of the messages once all are there."""
        while self._came < len(self._answers):
            await self._more()
        return [answer for answer in self._answers if answer is not None]

    async def _more(self) -> None:
        self._news.clear()
        async with asyncio.timeout(self._seconds):
            await self._news.wait()

    async def _take(self, answer: Msg) -> None:
        _, batch, number = answer.subject.rsplit(".", 2)
        if int(batch) == self._batch and self._answers[int(number)] is None:
            self._answers[int(number)] = answer
            self._came += 1
            self._news.set()


def answered(answer: Msg) -> dict[str, Any]:
    """Return what the server says of a stored message, or raise what it says instead."""
    if answer.headers and answer.headers.get("Status") == "503":
        raise nats.errors.NoRespondersError
    said: dict[str, Any] = orjson.loads(answer.data)
    if "error" in said:
        APIError.from_error(said["error"])
    return said
