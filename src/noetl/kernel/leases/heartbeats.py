"""Keeps leases of a process alive: beats for all of them together, and stops the work whose lease is lost.

It runs beside the work, never in it. When beats cannot get through, work is stopped by this process's own clock before
the lease can end, so that its successor never meets it. Where it can, it looks for work that was taken away more often
than it beats, so that what is cancelled stops soon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from noetl.errors import LeaseLost, NoetlError

_log = logging.getLogger(__name__)

Lease = TypeVar("Lease", bound=Hashable)
Done = TypeVar("Done")
Kept = TypeVar("Kept", bound=Hashable, contravariant=True)

STOP_AFTER = 0.8
"""The part of a lease after which work stops, if no beat got through since it was renewed."""

LOOK_SECONDS = 1.0
"""How often one looks whether longer work was taken away; shorter work is over by then, and costs no look."""


def stop_at(renewed: float, seconds: float) -> float:
    """Say when the holder of a lease stops its work unless it renews it, by its own clock."""
    return renewed + seconds * STOP_AFTER


@dataclass
class _Held:
    seconds: float
    granted: float
    renewed: float
    lost: Callable[[], None]

    @property
    def deadline(self) -> float:
        """When work under it stops unless it is renewed."""
        return stop_at(self.renewed, self.seconds)


class Renewing(Protocol[Lease]):
    """Whoever makes leases last longer."""

    async def heartbeat(self, leases: Sequence[Lease]) -> list[Lease]:
        """Make leases last longer and return those that are lost."""
        ...


class Holding(Protocol[Kept]):
    """Whoever keeps leases while there is work under them."""

    def hold(self, lease: Kept, seconds: float, lost: Callable[[], None]) -> None:
        """Keep a lease that was granted just now; `lost` is called if it cannot be kept."""
        ...

    def release(self, lease: Kept) -> None:
        """Keep a lease no longer."""
        ...


class Heartbeats(Generic[Lease]):
    """The leases of one process."""

    def __init__(
        self,
        dispatch: Renewing[Lease],
        *,
        every_seconds: float,
        clock: Callable[[], float],
        look: Callable[[Sequence[Lease]], Awaitable[list[Lease]]] | None = None,
    ) -> None:
        self._dispatch = dispatch
        self._looked_for = look
        self._every = every_seconds
        self._clock = clock
        self._held: dict[Lease, _Held] = {}
        self._tried = 0.0
        self._next_beat = 0.0
        self._sooner = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to beat."""
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._run(), name="noetl-heartbeat"))
        if self._looked_for is not None:
            self._tasks.append(loop.create_task(self._look_on(self._looked_for), name="noetl-look"))

    async def stop(self) -> None:
        """Beat no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def hold(self, lease: Lease, seconds: float, lost: Callable[[], None]) -> None:
        """Keep a lease that was granted just now; `lost` is called if it cannot be kept."""
        now = self._clock()
        held = self._held[lease] = _Held(seconds, now, now, lost)
        if self._due(held) < self._next_beat:
            self._sooner.set()

    def release(self, lease: Lease) -> None:
        """Keep a lease no longer."""
        self._held.pop(lease, None)

    async def keeping(self, lease: Lease, seconds: float, work: Awaitable[Done], lost: str) -> Done:
        """Do work under a lease that was granted just now; it is cancelled with the lease, and `LeaseLost` says `lost`."""
        working = asyncio.ensure_future(work)
        is_lost = False

        def stop() -> None:
            nonlocal is_lost
            is_lost = True
            working.cancel()

        self.hold(lease, seconds, stop)
        try:
            return await working
        except asyncio.CancelledError:
            if is_lost:
                raise LeaseLost(lost) from None
            raise
        finally:
            self.release(lease)
            if not working.done():
                working.cancel()
                await asyncio.wait([working])

    @property
    def count(self) -> int:
        """How many leases are held."""
        return len(self._held)

    async def _run(self) -> None:
        while True:
            self._sooner.clear()
            now = self._clock()
            self._next_beat = min(map(self._due, self._held.values()), default=now + self._every)
            try:
                async with asyncio.timeout(max(0.0, self._next_beat - now)):
                    await self._sooner.wait()
            except TimeoutError:
                await self.beat()

    async def _look_on(self, look: Callable[[Sequence[Lease]], Awaitable[list[Lease]]]) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            since = self._clock() - LOOK_SECONDS
            leases = [lease for lease, held in self._held.items() if held.granted <= since]
            if not leases:
                continue
            try:
                async with asyncio.timeout(self._every):
                    self._drop(await look(leases))
            except Exception as problem:
                # The beats tell who cannot be reached; a look more or less changes nothing.
                _log.debug("nobody could be asked what was taken away: %s", problem)

    def _drop(self, lost: Sequence[Lease]) -> None:
        for lease in lost:
            held = self._held.pop(lease, None)
            if held is not None:
                held.lost()

    def _due(self, held: _Held) -> float:
        """Say when a lease is to be renewed: thrice in its time, and once more when work under it has to stop."""
        return min(max(held.renewed, self._tried) + min(self._every, held.seconds / 3), held.deadline)

    async def beat(self) -> None:
        """Renew everything once, and stop what is lost or about to be."""
        if not self._held:
            return
        asked = self._tried = self._clock()
        leases = list(self._held)
        soonest = min(held.deadline for held in self._held.values())
        try:
            async with asyncio.timeout(max(0.05, soonest - asked)):
                lost = await self._dispatch.heartbeat(leases)
        except Exception as problem:
            # Whatever it was, the leases are to be kept on, or their work stopped in time.
            expected = isinstance(problem, NoetlError | TimeoutError)
            said = "nobody answered in time" if isinstance(problem, TimeoutError) else problem
            _log.warning("a heartbeat did not get through: %s", said, exc_info=None if expected else problem)
            self._stop_overdue()
            return
        self._drop(lost)
        for lease in leases:
            held = self._held.get(lease)
            if held is not None:
                held.renewed = asked

    def _stop_overdue(self) -> None:
        now = self._clock()
        for lease, held in list(self._held.items()):
            if now >= held.deadline:
                self._held.pop(lease)
                held.lost()
