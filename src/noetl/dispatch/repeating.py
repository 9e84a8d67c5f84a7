"""Looks again and again for something to do, until stopped; what goes wrong in one look is told, and the next one follows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from noetl.dispatch.signal import Signal
from noetl.errors import NoetlError

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
