"""What a worker's tools share: connections, closed with the worker, and a scratch directory for each execution."""

from __future__ import annotations

import asyncio
import fcntl
import inspect
import logging
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from noetl.engine.platform.waits import answered
from noetl.engine.tools.port import Resources
from noetl.errors import Unavailable
from noetl.model.stream import Scope

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


_KEY: Final = ("scratch",)
_LOCK: Final = ".lock"


@dataclass
class _Kept:
    path: Path
    users: int = 0


class Scratch:
    """The directories of one worker; the first one asked for makes its place, with a lock that says that it lives."""

    def __init__(self, root: Path, *, alone: bool = False) -> None:
        """Take a directory to make the place in; one who is `alone` in it removes it at the end, too."""
        self._root = root
        self._alone = alone
        self._own = root / secrets.token_hex(8)
        self._lock: IO[bytes] | None = None
        self._opening = asyncio.Lock()
        self._kept: dict[int, _Kept] = {}

    @property
    def root(self) -> Path:
        """The directory that the place is in, made now if there is none."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._root.absolute()

    @asynccontextmanager
    async def lent(self, owner: Scope, execution_id: int) -> AsyncIterator[Path]:
        """Lend the directory of an execution; while it is lent it stays."""
        kept = self._kept.get(execution_id)
        if kept is None:
            path = self._own / owner.tenant_id / owner.organization_id / str(execution_id)
            kept = self._kept.setdefault(execution_id, _Kept(path))
        kept.users += 1
        try:
            async with self._opening:
                await answered("worker's disk", lambda: asyncio.to_thread(self._make, kept.path))
            yield kept.path
        finally:
            kept.users -= 1

    def held(self) -> list[int]:
        """Return the executions that have a directory which nobody uses now."""
        return [execution_id for execution_id, kept in self._kept.items() if not kept.users]

    async def drop(self, executions: Iterable[int]) -> None:
        """Remove the directories of executions, but for those in use."""
        async with self._opening:
            for execution_id in executions:
                kept = self._kept.get(execution_id)
                if kept is not None and not kept.users:
                    del self._kept[execution_id]
                    await asyncio.to_thread(shutil.rmtree, kept.path, ignore_errors=True)

    async def aclose(self) -> None:
        """Remove everything."""
        await asyncio.to_thread(self._remove)

    def _make(self, path: Path) -> None:
        if self._lock is None:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            # One worker at a time makes its place or looks for left ones, so nobody takes a new one for a left one.
            with (self._root / _LOCK).open("ab") as everybody:
                fcntl.flock(everybody, fcntl.LOCK_EX)
                _remove_left(self._root)
                self._own.mkdir(mode=0o700)
                self._lock = (self._own / _LOCK).open("ab")
                fcntl.flock(self._lock, fcntl.LOCK_EX)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _remove(self) -> None:
        if self._lock is not None:
            shutil.rmtree(self._own, ignore_errors=True)
            self._lock.close()
            self._lock = None
        if self._alone:
            shutil.rmtree(self._root, ignore_errors=True)


def _remove_left(root: Path) -> None:
    """Remove the places of workers that are gone: nobody holds their lock any more."""
    for place in root.iterdir():
        if not place.is_dir():
            continue
        try:
            with (place / _LOCK).open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(place, ignore_errors=True)
        except OSError:
            continue  # it is in use, or another account's


async def keep_scratch(resources: Resources, root: Path) -> Scratch:
    """Give a worker's tools their scratch place under a directory."""

    async def make() -> Scratch:
        return Scratch(root)

    scratch: Scratch = await resources.get(_KEY, make)
    return scratch


async def scratch_of(resources: Resources) -> Scratch:
    """Return the worker's scratch place; one that was given none has it among the temporary files."""

    async def make() -> Scratch:
        return Scratch(Path(tempfile.mkdtemp(prefix="noetl-")), alone=True)

    scratch: Scratch = await resources.get(_KEY, make)
    return scratch
