"""Keeps a worker's leases alive: beats for all of them together, and stops the work whose lease is lost.

It runs beside the work, never in it. When beats cannot get through, work is stopped by this process's own clock before
the lease can end, so that its successor never meets it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from noetl.dispatch.grants import LeaseRef
from noetl.dispatch.port import Dispatch
from noetl.errors import NoetlError

_log = logging.getLogger(__name__)

MARGIN = 0.8
"""The part of a lease after which work stops, if no beat got through since it was renewed."""


@dataclass
class _Held:
    seconds: float
    renewed: float
    lost: Callable[[], None]


class Keeper:
    """The leases of one worker."""

    def __init__(self, dispatch: Dispatch, *, every_seconds: float, clock: Callable[[], float]) -> None:
        self._dispatch = dispatch
        self._every = every_seconds
        self._clock = clock
        self._held: dict[LeaseRef, _Held] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to beat."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="noetl-heartbeat")

    async def stop(self) -> None:
        """Beat no more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def hold(self, lease: LeaseRef, seconds: float, lost: Callable[[], None]) -> None:
        """Keep a lease that was granted just now; `lost` is called if it cannot be kept."""
        self._held[lease] = _Held(seconds, self._clock(), lost)

    def release(self, lease: LeaseRef) -> None:
        """Keep a lease no longer."""
        self._held.pop(lease, None)

    @property
    def count(self) -> int:
        """How many leases are held."""
        return len(self._held)

    async def _run(self) -> None:
        while True:
            shortest = min((held.seconds for held in self._held.values()), default=self._every * 3)
            await asyncio.sleep(min(self._every, shortest / 3))
            await self.beat()

    async def beat(self) -> None:
        """Renew everything once, and stop what is lost or about to be."""
        if not self._held:
            return
        asked, leases = self._clock(), list(self._held)
        soonest = min(held.renewed + held.seconds * MARGIN for held in self._held.values())
        try:
            async with asyncio.timeout(max(0.05, soonest - asked)):
                lost = await self._dispatch.heartbeat(leases)
        except (NoetlError, TimeoutError) as problem:
            _log.warning("a heartbeat did not get through: %s", problem)
            self._stop_overdue()
            return
        gone = set(lost)
        for lease in leases:
            held = self._held.get(lease)
            if held is None:
                continue
            if lease in gone:
                self._held.pop(lease)
                held.lost()
            else:
                held.renewed = asked

    def _stop_overdue(self) -> None:
        now = self._clock()
        for lease, held in list(self._held.items()):
            if now >= held.renewed + held.seconds * MARGIN:
                self._held.pop(lease)
                held.lost()
