"""Wakes readers after commits, never inside the writing transaction: NOTIFY takes a lock that all its senders share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from noetl.errors import Unavailable
from noetl.kernel.ledger.postgres.database import LOST, Database, Role

CHANNEL = "noetl_events"
GATHER_SECONDS = 0.02
"""Commits within this time share one notification."""


class Notifier:
    """Sends which shards have news, coalesced. A lost notification costs a reader one poll interval, nothing else."""

    def __init__(self, database: Database, *, enabled: bool = True) -> None:
        self._database = database
        self._enabled = enabled
        self._shards: set[int] = set()
        self._sender: asyncio.Task[None] | None = None

    def touch(self, shards: set[int]) -> None:
        """Note that these shards grew."""
        if not shards or not self._enabled:
            return
        self._shards |= shards
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send(), name="noetl-notifier")

    async def close(self) -> None:
        """Send what is still noted."""
        if self._sender is not None:
            await self._sender

    async def _send(self) -> None:
        while self._shards:
            shards, self._shards = self._shards, set()
            with suppress(*LOST, Unavailable):
                pool = await self._database.pool()
                await pool.execute("SELECT pg_notify($1, $2)", CHANNEL, ",".join(map(str, sorted(shards))))
            await asyncio.sleep(GATHER_SECONDS)


class Listener:
    """Tells a reader that shards grew: by notification, or after the poll interval as a net."""

    def __init__(self, poll_seconds: float) -> None:
        self._poll_seconds = poll_seconds
        self._news = asyncio.Event()
        self._shards: set[int] = set()
        self.lost = False
        """Whether the connection is gone, so that only the poll interval is left."""

    def lose(self, _connection: Any) -> None:
        """Take the news that the connection is gone."""
        self.lost = True
        self._news.set()

    def hear(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        """Take a notification."""
        self._shards.update(int(part) for part in str(payload).split(",") if part)
        self._news.set()

    async def wait(self) -> set[int] | None:
        """Wait for news; return the shards that grew, or None when it is time to look at all."""
        try:
            async with asyncio.timeout(self._poll_seconds):
                await self._news.wait()
        except TimeoutError:
            return None
        self._news.clear()
        shards, self._shards = self._shards, set()
        return shards


@asynccontextmanager
async def listening(database: Database, role: Role, poll_seconds: float) -> AsyncIterator[Listener]:
    """Give a listener for the time of the block; when its connection is lost it goes on by polling."""
    listener = Listener(poll_seconds)
    connection = await database.connect(role)
    try:
        await connection.add_listener(CHANNEL, listener.hear)
        connection.add_termination_listener(listener.lose)
        yield listener
    finally:
        with suppress(*LOST):
            await connection.close(timeout=2)
