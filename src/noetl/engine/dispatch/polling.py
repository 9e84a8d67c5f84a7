"""Loops that look for work until they are stopped, the signal that wakes them early, and the wait between retries."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from noetl.errors import NoetlError
from noetl.kernel.ledger.after_commit import after_commit

_log = logging.getLogger(__name__)


class Repeating:
    """One background loop. `look` returns the seconds until the next look; `news`, where given, wakes it earlier."""

    def __init__(
        self,
        who: str,
        look: Callable[[], Awaitable[float]],
        *,
        every_seconds: float,
        news: Signal | None = None,
    ) -> None:
        self._who = who
        self._look = look
        self._every = every_seconds
        self._news = news or Signal()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"noetl: {self._who}")

    async def stop(self) -> None:
        """Look no more; what is under way is broken off."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            seen, wait = self._news.number, self._every
            try:
                wait = await self._look()
            except NoetlError as problem:
                _log.warning("%s could not look: %s", self._who, problem.message)
            except Exception:
                _log.exception("%s stumbled", self._who)
            await self._news.wait(seen, wait)


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


class Backoff(msgspec.Struct, frozen=True):
    """The first wait and the longest."""

    first_seconds: float
    longest_seconds: float

    def seconds(self, tries: int) -> float:
        """Return the wait after so many tries, from 1, anywhere between half and one and a half of its length."""
        length = min(self.longest_seconds, self.first_seconds * 2.0 ** min(tries - 1, 60))
        return length * random.uniform(0.5, 1.5)  # noqa: S311 - spreads load, hides nothing


TASK_RETRIES = Backoff(30.0, 600.0)
OUTBOX_RETRIES = Backoff(1.0, 300.0)
