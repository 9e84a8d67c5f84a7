"""Parts of the platform that go away and come back: a lost directory, a disk that is full or fills up, a ledger that does not answer."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO

from noetl.errors import Unavailable
from noetl.kernel.ledger.memory import MemoryLedger
from noetl.kernel.ledger.transition import Transition
from noetl.kernel.payloads.objects.local import LocalBucket
from noetl.kernel.projections.folds.organization.fold import FoldedRows
from noetl.model.event import Appended


class Gate:
    """Two pipes between a test and a shell task: the task says that it has begun, and waits until it may go on."""

    def __init__(self, home: Path, name: str = "gate") -> None:
        self._begun, self._go = home / f"{name}.begun", home / f"{name}.go"
        os.mkfifo(self._begun)
        os.mkfifo(self._go)

    @property
    def command(self) -> str:
        """What a shell runs to pass it."""
        return f"echo > {self._begun}; cat {self._go} > /dev/null"

    async def reached(self) -> None:
        """Wait until a task stands before it."""
        await asyncio.to_thread(self._begun.read_text)

    async def open(self) -> None:
        """Let the task that stands before it go on."""
        await asyncio.to_thread(self._go.write_text, "on")


class LostDirectory:
    """The directory of a local store, which can be taken away as an unmounted disk is."""

    def __init__(self, root: Path) -> None:
        self._root, self._elsewhere = root, root.with_name(f"{root.name}.elsewhere")

    def take_away(self) -> None:
        """Let it be gone."""
        self._root.rename(self._elsewhere)

    def bring_back(self) -> None:
        """Let it be there again, with what it held."""
        self._elsewhere.rename(self._root)


class FullDisk(LocalBucket):
    """A local store on a disk that can be full: what is written then goes to a device that has no room."""

    is_full = False

    def _write(self, target: Path, spool: IO[bytes], *, replace: bool) -> bool:
        if self.is_full:
            with Path("/dev/full").open("wb", buffering=0) as device:
                device.write(b"x")
        return super()._write(target, spool, replace=replace)


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size: a write that goes further is cut short, as on a disk that fills up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class LostLedger(MemoryLedger):
    """A ledger in memory that can stop taking changes of work, as a database does that is away."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        super().__init__(clock, FoldedRows)
        self._tries = 0
        self._tried = asyncio.Condition()
        self.is_away = False

    async def transact(self, transition: Transition) -> tuple[Appended, ...]:
        """Record a change of work, unless the ledger is away."""
        if self.is_away:
            async with self._tried:
                self._tries += 1
                self._tried.notify_all()
            raise Unavailable("PostgreSQL does not answer: connection refused")
        return await super().transact(transition)

    async def tried(self, times: int) -> None:
        """Wait until changes were refused so many times."""
        async with asyncio.timeout(20), self._tried:
            await self._tried.wait_for(lambda: self._tries >= times)
