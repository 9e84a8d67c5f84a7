"""Sorts a partition's events by organization on local disk, so that one pass over the table serves all of them.

Pages of events by shard and position go in; files of at most so many events of one organization and shard come out.
Memory holds one page, whatever the partition's size and however many organizations share it.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, groupby
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from types import TracebackType

from noetl.kernel.ledger.archive.partition import Partition
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.rows import COLUMNS, to_events
from noetl.model.canonical import canonical_json
from noetl.model.event import Event, to_json
from noetl.model.stream import SHARD_COUNT, Scope

OBJECT_EVENTS = 20_000
PAGE_EVENTS = 1_000
_PIECE = 1 << 20
_PREFIX = "noetl-archive-"
_STRAY_SECONDS = 24 * 3600.0

_PAGE = f"SELECT {COLUMNS} FROM noetl.event WHERE shard = $1 AND position > $2 AND execution_id >= $3 AND execution_id < $4 ORDER BY position LIMIT $5"  # noqa: S608


@dataclass
class Filled:
    """Consecutive events of one organization in one shard, as lines in a file."""

    scope: Scope
    shard: int
    path: Path
    count: int = 0
    first_position: int = 0
    last_position: int = 0
    first_execution_id: int = 0
    last_execution_id: int = 0

    async def read(self) -> AsyncIterator[bytes]:
        """Yield the file's bytes."""
        with await asyncio.to_thread(self.path.open, "rb") as file:
            while piece := await asyncio.to_thread(file.read, _PIECE):
                yield piece

    def extend(self, events: list[Event]) -> None:
        """Write events behind those that stand there."""
        with self.path.open("ab") as file:
            file.writelines(canonical_json(to_json(event)) + b"\n" for event in events)
        executions = [event.execution_id for event in events]
        if self.count == 0:
            self.first_position, self.first_execution_id = events[0].position, executions[0]
        self.count += len(events)
        self.last_position = events[-1].position
        self.first_execution_id = min(self.first_execution_id, *executions)
        self.last_execution_id = max(self.last_execution_id, *executions)


class Spools:
    """The files being filled."""

    def __init__(self, object_events: int) -> None:
        self._object_events = object_events
        _sweep()
        self._directory = TemporaryDirectory(prefix=_PREFIX)
        self._filling: dict[Scope, Filled] = {}
        self._shard = -1
        self._numbers = count()

    def __enter__(self) -> Spools:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._directory.cleanup()

    async def add(self, page: tuple[int, list[Event]], wanted: set[Scope]) -> AsyncIterator[Filled]:
        """Take a page and yield the files that are full; each is deleted when the next is asked for."""
        shard, events = page
        if shard != self._shard:
            async for filled in self._empty(list(self._filling)):
                yield filled
            self._shard = shard
        by_scope = sorted(events, key=lambda event: (event.tenant_id, event.organization_id))
        for (tenant_id, organization_id), group in groupby(
            by_scope, key=lambda event: (event.tenant_id, event.organization_id)
        ):
            scope, rest = Scope(tenant_id, organization_id), list(group)
            while rest and scope in wanted:
                filled = self._filling.get(scope) or self._new(scope)
                room = self._object_events - filled.count
                await asyncio.to_thread(filled.extend, rest[:room])
                rest = rest[room:]
                if filled.count == self._object_events:
                    async for full in self._empty([scope]):
                        yield full

    def _new(self, scope: Scope) -> Filled:
        path = Path(self._directory.name) / str(next(self._numbers))
        self._filling[scope] = Filled(scope, self._shard, path)
        return self._filling[scope]

    async def _empty(self, scopes: list[Scope]) -> AsyncIterator[Filled]:
        for scope in scopes:
            filled = self._filling.pop(scope)
            yield filled
            await asyncio.to_thread(filled.path.unlink)


def _sweep() -> None:
    """Remove what killed archivers left behind: these are plain events, and nobody else would ever delete them."""
    for stray in Path(gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - stray.stat().st_mtime > _STRAY_SECONDS:
                shutil.rmtree(stray, ignore_errors=True)


async def pages_of(database: Database, month: Partition) -> AsyncIterator[tuple[int, list[Event]]]:
    """Yield a partition's events of all organizations by shard and position, page by page, and one empty page last."""
    for shard in range(SHARD_COUNT):
        position = 0
        while True:
            # Each page is its own transaction: a slow payload store must not hold the database's horizon back.
            async with database.transaction(None, "retention") as connection:
                rows = await connection.fetch(_PAGE, shard, position, month.first_id, month.end_id, PAGE_EVENTS)
            if rows:
                position = rows[-1]["position"]
                yield shard, to_events(rows)
            if len(rows) < PAGE_EVENTS:
                break
    yield SHARD_COUNT, []
