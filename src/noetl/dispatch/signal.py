"""Wakes those who wait for something to happen in this process; what happens elsewhere they see when they look again."""

from __future__ import annotations

import asyncio


class Signal:
    """A number that grows with every touch, and a way to wait until it is another."""

    def __init__(self) -> None:
        self.number = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def touch(self) -> None:
        """Wake everybody who waits."""
        self.number += 1
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
            await asyncio.wait_for(waiter, timeout)
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(waiter)
