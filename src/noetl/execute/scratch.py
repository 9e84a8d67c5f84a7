"""A worker's own place on disk for what lasts as long as an execution: a directory for each, gone when it has ended.

Nothing else reads there. What a worker that died left behind is removed by the next one that uses the same place.
"""

from __future__ import annotations

import asyncio
import fcntl
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from noetl.execute.platform.waits import answered
from noetl.execute.tools.port import Resources
from noetl.model.stream import Scope

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
