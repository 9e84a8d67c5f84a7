"""Keeps the leases of a lane from a thread with an event loop and a connection of its own.

Rows may hold up the lane's event loop for a while; its leases last all the same.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from noetl.dispatch.grants import LeaseRef
from noetl.leases.heartbeats import Heartbeats, Renewing

Beats = Callable[[], AbstractAsyncContextManager[Renewing[LeaseRef]]]
"""Connects whoever renews leases; called in the thread."""


class KeeperThread:
    """Holds leases for the event loop that starts it."""

    def __init__(self, beats: Beats, *, every_seconds: float) -> None:
        self._beats = beats
        self._thread = threading.Thread(target=self._run, name="noetl-heartbeat", daemon=True)
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._keeper: Heartbeats[LeaseRef] = Heartbeats(self, every_seconds=every_seconds, clock=time.monotonic)
        self._renewing: Renewing[LeaseRef] | None = None
        self._home: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin to beat; what is lost is told in the event loop that called this."""
        self._home = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """Beat no more."""
        self._loop.call_soon_threadsafe(self._stopped.set)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    def hold(self, lease: LeaseRef, seconds: float, lost: Callable[[], None]) -> None:
        """Keep a lease that was granted just now; `lost` is called if it cannot be kept."""
        home = self._home
        assert home is not None, "start before holding"

        def tell() -> None:
            home.call_soon_threadsafe(lost)

        self._loop.call_soon_threadsafe(self._keeper.hold, lease, seconds, tell)

    def release(self, lease: LeaseRef) -> None:
        """Keep a lease no longer."""
        self._loop.call_soon_threadsafe(self._keeper.release, lease)

    async def heartbeat(self, leases: Sequence[LeaseRef]) -> list[LeaseRef]:
        """Make leases last longer over the thread's own connection."""
        assert self._renewing is not None, "the thread connects before it beats"
        return await self._renewing.heartbeat(leases)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._beating())

    async def _beating(self) -> None:
        async with self._beats() as self._renewing:
            self._keeper.start()
            try:
                await self._stopped.wait()
            finally:
                await self._keeper.stop()
