"""What a worker's tools share, such as connection pools: each made once, all closed with the worker, the newest first."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from noetl.errors import Unavailable

_log = logging.getLogger(__name__)


class WorkerResources:
    """The `Resources` of one worker and one event loop."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], asyncio.Task[Any]] = {}
        self._closed = False

    async def get(self, key: tuple[Any, ...], make: Callable[[], Awaitable[Any]]) -> Any:
        """Return the resource under a key; the first asker's `make()` makes it, once.

        An asker that is cancelled leaves the making to the others. A failure reaches everybody who waits for it and
        is not remembered: the next asker tries anew.
        """
        if self._closed:
            raise Unavailable("this worker is closing down and opens nothing any more")
        task = self._made.get(key)
        if task is None:
            task = self._made[key] = asyncio.ensure_future(_made_by(make))
            task.add_done_callback(lambda ended: self._forget_failed(key, ended))
        elif task.done() and not task.cancelled() and task.exception() is None:
            return task.result()  # the common case, without a turn of the loop
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self._closed:
                raise Unavailable("this worker closed down while it was opening what the task needs") from None
            raise

    async def aclose(self) -> None:
        """Close everything that was made, the newest first; what fails to close is logged and does not stop the rest."""
        self._closed = True
        while self._made:
            key, task = self._made.popitem()
            if not task.done():
                task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and task.exception() is None:
                await _close(key, task.result())

    def _forget_failed(self, key: tuple[Any, ...], task: asyncio.Task[Any]) -> None:
        # Asking for the exception also marks it as seen when every asker has gone.
        failed = task.cancelled() or task.exception() is not None
        if failed and self._made.get(key) is task:
            del self._made[key]


async def _made_by(make: Callable[[], Awaitable[Any]]) -> Any:
    return await make()


async def _close(key: tuple[Any, ...], resource: Any) -> None:
    close = getattr(resource, "aclose", None) or getattr(resource, "close", None)
    if close is None:
        return
    try:
        closing = close()
        if inspect.isawaitable(closing):
            await closing
    except Exception as problem:
        # Keys and messages may name servers and users, so only the kind of the resource is told.
        _log.warning("a resource of the tool %r could not be closed: %s", key[0], type(problem).__name__)
