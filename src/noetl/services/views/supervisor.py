"""Keeps views running: whichever nobody runs is taken under a lease, run, and tried again when it fails. For ever, or once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from noetl.engine.dispatch.polling import Backoff, Repeating
from noetl.errors import Conflict, LeaseLost, NoetlError, Unavailable
from noetl.kernel.leases.heartbeats import Heartbeats
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.services.views.barriers import Barrier
from noetl.services.views.run import Surroundings, ViewRun
from noetl.services.views.versions import Version, ViewLease

_log = logging.getLogger(__name__)

BACKOFF: Final = Backoff(2.0, 300.0)
TRIES: Final = 3
_AGAIN_SECONDS: Final = 1.0


class Keeping:
    """Runs views of all organizations, or of one, in this process; any number of processes may do so at once."""

    def __init__(
        self,
        around: Surroundings,
        *,
        worker: str,
        lease_seconds: float,
        every_seconds: float,
        together: int,
        scope: Scope | None = None,
        names: Collection[str] = (),
        backoff: Backoff = BACKOFF,
    ) -> None:
        self._around = around
        self._worker = worker
        self._lease_seconds = lease_seconds
        self._every = every_seconds
        self._together = together
        self._scope = scope
        self._names = names
        self._backoff = backoff
        self._runs: dict[asyncio.Task[None], ViewRun] = {}
        self._beats: Heartbeats[ViewLease] = Heartbeats(
            around.versions, every_seconds=lease_seconds / 3, clock=asyncio.get_running_loop().time
        )
        self._repeating = Repeating("the keeper of views", self._look, every_seconds=every_seconds)

    def start(self) -> None:
        """Take and run views from now on."""
        self._beats.start()
        self._repeating.start()

    async def stop(self) -> None:
        """Let every run end in good order, and give the views to whoever comes next."""
        await self._repeating.stop()
        for run in self._runs.values():
            run.stop()
        if self._runs:
            await asyncio.wait(self._runs)
        await self._beats.stop()

    async def once(self, scope: Scope, version: Version, upto: Mark) -> Barrier | None:
        """Bring one version up to a mark and return its barrier; `Conflict` if another process runs it.

        What may go away by itself, such as a driver that was lost, is tried a few times.
        """
        self._beats.start()
        try:
            for tries in range(1, TRIES + 1):
                lease = await self._claimed(scope, version)
                try:
                    return await self._held(lease, version, lambda run: run.keep(upto))
                except Unavailable as problem:
                    if tries == TRIES:
                        raise
                    _log.warning("view %s is tried again: %s", version.view, problem.message)
        finally:
            await self._beats.stop()
        raise AssertionError("it was tried at least once")

    async def _claimed(self, scope: Scope, version: Version) -> ViewLease:
        """Take a version as it is now; whatever ran it before must have let it go."""
        found = {one.version_id: one for one in await self._around.versions.of(scope, version.view)}
        now = found.get(version.version_id)
        if now is not None and now.ended_at is None and not now.is_held:
            lease = await self._around.versions.claim(scope, now, self._worker, self._lease_seconds)
            if lease is not None:
                return lease
        raise Conflict(f"another process runs view {version.view}", hint="`noetl views status` tells how far it is")

    async def _look(self) -> float:
        versions = self._around.versions
        for scope in await versions.scopes() if self._scope is None else [self._scope]:
            for version in await versions.due(scope):
                if self._names and version.view not in self._names:
                    continue
                if len(self._runs) >= self._together:
                    return self._every
                lease = await versions.claim(scope, version, self._worker, self._lease_seconds)
                if lease is not None:
                    task = asyncio.create_task(self._kept(lease, version), name=f"view {version.view}")
                    self._runs[task] = ViewRun(self._around, version, lease)
                    task.add_done_callback(self._forget)
        return self._every

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._runs.pop(task, None)

    async def _kept(self, lease: ViewLease, version: Version) -> None:
        task = asyncio.current_task()
        assert task is not None
        run = self._runs[task]
        try:
            await self._held(lease, version, lambda _: run.keep(), run)
        except NoetlError as problem:
            _log.warning("view %s of %s: %s", lease.view, lease.scope.organization_id, problem.message)

    async def _held(
        self,
        lease: ViewLease,
        version: Version,
        work: Callable[[ViewRun], Awaitable[Barrier | None]],
        run: ViewRun | None = None,
    ) -> Barrier | None:
        """Work while the lease is kept, and record how it ended."""
        run = run or ViewRun(self._around, version, lease)
        lost = f"view {lease.view} is no longer run by this process"
        try:
            barrier = await self._beats.keeping(lease, lease.seconds, work(run), lost)
        except LeaseLost:
            raise
        except NoetlError as problem:
            await self._ended(lease, problem.message)
            raise
        except Exception as problem:
            await self._ended(lease, f"{type(problem).__name__}: {problem}")
            raise
        await self._ended(lease, None)
        return barrier

    async def _ended(self, lease: ViewLease, error: str | None) -> None:
        """Record the end of a run; while the database is away it is tried again, since nobody else can take the view."""
        delay = 0.0 if error is None else self._backoff.seconds(min(lease.attempt, 8))
        deadline = asyncio.get_running_loop().time() + self._lease_seconds
        while True:
            try:
                await self._around.versions.end(lease, error, delay)
                return
            except LeaseLost:
                return
            except Unavailable:
                if asyncio.get_running_loop().time() > deadline:
                    return  # the lease is over by then, and whoever comes next goes on
                await asyncio.sleep(_AGAIN_SECONDS)
