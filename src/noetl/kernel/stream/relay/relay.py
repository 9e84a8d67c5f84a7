"""The relay: keeps a stream filled with committed events, shard by shard in the order of their positions.

First the stream has them, then the cursor moves: a crash in between publishes them again under the same ids. It goes on
by itself after PostgreSQL or the stream were away, and never decides what an event means.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final

import asyncpg

from noetl.errors import NoetlError
from noetl.kernel.leases.shards import ShardLeases
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.notifier import CHANNEL, Listener
from noetl.kernel.stream.port import EventStream
from noetl.kernel.stream.relay.pending_events import WaitingEvents
from noetl.kernel.stream.relay.publisher import BATCH_EVENTS, Filling, RelayMeter

_log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0


class Relay:
    """Publishes the events of the shards that this process has leases on, of which no two processes have the same."""

    def __init__(
        self,
        database: Database,
        stream: EventStream,
        leases: ShardLeases,
        listen: Callable[[], AbstractAsyncContextManager[Listener]],
        *,
        meter: RelayMeter | None = None,
        told: Callable[[frozenset[int]], None] = lambda _: None,
        batch_events: int = BATCH_EVENTS,
        waiting: WaitingEvents | None = None,
    ) -> None:
        self._waiting = waiting
        self._filling = Filling(database, stream, leases, meter, batch_events)
        self._leases = leases
        self._listen = listen
        self._told = told
        self._listener: Listener | None = None
        self._stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> asyncio.Task[None]:
        """Take shards and begin to publish; returns the task that does so until `stop`."""
        await self._leases.start(self._changed)
        self._running = asyncio.create_task(self._run(), name="noetl-relay")
        return self._running

    async def stop(self) -> None:
        """Finish the batch under way, stop, and give the shards back."""
        self._stopping.set()
        self._nudge()
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)
        await self._leases.stop()

    async def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            try:
                async with self._listen() as self._listener:
                    await self._filling.open()
                    if pause > _FIRST_PAUSE:
                        _log.info("the relay goes on")
                        pause = _FIRST_PAUSE
                    await self._follow(self._listener)
            except (NoetlError, asyncpg.PostgresError) as problem:
                _log.warning("the relay waits and tries again: %s", problem)
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._stopping.wait()
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _follow(self, listener: Listener) -> None:
        """Publish what there is and wait for more, until stopped or until nobody would tell of more."""
        while not (self._stopping.is_set() or listener.lost):
            # What waits for the materializer goes first: mirroring it comes after it stands in the ledger.
            await self._publish_waiting()
            await self._filling.catch_up(self._stopping)
            if await listener.wait() is None:
                await self._filling.look()
                if self._waiting is not None:
                    await self._waiting.look()

    def _changed(self, held: frozenset[int]) -> None:
        self._nudge()
        self._told(held)

    async def _publish_waiting(self) -> None:
        if self._waiting is not None:
            held = {shard: proof for shard in self._leases.held if (proof := self._leases.proof(shard)) is not None}
            await self._waiting.publish(held)

    def _nudge(self) -> None:
        if self._listener is not None:
            self._listener.hear(None, 0, CHANNEL, "")
