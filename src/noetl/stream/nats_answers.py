"""An inbox for the answers to many messages under way at once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import nats.errors
import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.errors import APIError

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
