"""Wakes those who wait for something to happen in this process; what happens elsewhere they see when they look again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from noetl.ledger.after_commit import after_commit


class Signal:
    """A number that grows with every touch, and a way to wait until it is another."""

    def __init__(self) -> None:
        self.number = 0
        self.passed_on: Callable[[], None] | None = None
        """Told of every touch that happened here, for those who wait in other processes."""
        self._waiting: set[asyncio.Future[None]] = set()

    def touch(self, *, heard: bool = False) -> None:
        """Wake everybody who waits; `heard` says that another process passed it on."""
        self.number += 1
        if self.passed_on is not None and not heard:
            after_commit("waking other processes", self.passed_on)
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting.clear()

    async def wait(self, seen: int, timeout: float | None, waiter: asyncio.Future[None] | None = None) -> None:
        """Return once the number differs from the one seen before, after the timeout, or when a given waiter is done."""
        if self.number != seen:
            return
        waiter = waiter or asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            # Not `wait_for`, which swallows a cancellation that comes together with the touch.
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(waiter)
